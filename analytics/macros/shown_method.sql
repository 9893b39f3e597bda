-- shown_method(name): a method of the marts as pages call it: none, CC, CC 0.7, LoRA + DC.
create macro shown_method(name) as
    case
        when name = 'none' then 'no mitigation'
        when name = 'lora' then 'LoRA'
        else
            if(name like 'lora+%', 'LoRA + ', '')
            || coalesce(
                (
                    select shown
                    from calibration_methods
                    where calibration_methods.method = regexp_extract(name, '([a-z0-9_]+)(@|/|$)', 1)
                ),
                name
            )
            || coalesce(' ' || nullif(regexp_extract(name, '@([0-9.e-]+)', 1), ''), '')
            || coalesce(' (first ' || nullif(regexp_extract(name, '/([0-9]+)', 1), '') || ')', '')
    end
