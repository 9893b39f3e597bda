-- One row per calibration of the run: how probabilities are divided by p_hat (cc, cc@0.7, dc@0.7/5). Those that its spec
-- asks for; a method whose inputs were scored and that the spec does not name is taken as published.
-- purpose: of the prompts that are its inputs. strength: the power of p_hat, 1 as published, 0 for none. n_inputs: of
-- these inputs the first so many; null: all.
with

asked as (

    select unnest(calibration) as method
    from run_settings

),

-- Mostly none, so that prompts need not be read.
not_asked as materialized (

    select method
    from calibration_methods
    where method not in (select regexp_extract(asked.method, '^[a-z]+') from asked)

),

names as (

    select method
    from asked

    union all

    select method
    from not_asked
    where method in (select purpose from prompts)

)

select
    method,
    regexp_extract(method, '^[a-z]+') as purpose,
    coalesce(try_cast(nullif(regexp_extract(method, '@([^/]+)', 1), '') as double), 1) as strength,
    try_cast(nullif(regexp_extract(method, '/([0-9]+)', 1), '') as bigint) as n_inputs
from names
