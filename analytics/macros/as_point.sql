-- as_point(parameters): a point of a search (JSON) as sentences write it: bias_scale 0.5, entropy_penalty 1.626.
create macro as_point(parameters) as
    array_to_string(list_transform(
        json_keys(parameters),
        lambda key: regexp_extract(key, '([^.]+)(\.\*)?$', 0) || ' ' || if(
            try_cast(json_extract_string(parameters, '$."' || key || '"') as double) is null,
            coalesce(json_extract_string(parameters, '$."' || key || '"'), 'null'),
            as_number(try_cast(json_extract_string(parameters, '$."' || key || '"') as double))
        )
    ), ', ')
