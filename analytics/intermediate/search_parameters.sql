-- One row per (trial, searched key): its value as text, and as a number where it is one.
with
texts as (
    select trial, key, json_extract_string(parameters, '$."' || key || '"') as value
    from (select trial, parameters, unnest(json_keys(parameters)) as key from trials)
)

select *, try_cast(value as double) as number
from texts
