-- method_name(adaptation, calibration): the method of the marts, such as cc, or lora+cc of the adapted model.
create macro method_name(adaptation, calibration) as
    case when adaptation = 'none' then calibration else adaptation || '+' || calibration end
