-- One row per calibration of the run (cc, cc@0.7, dc@0.7/5). Those that its spec asks for; a calibration whose inputs
-- were scored, and which no calibration that the spec names reads, is taken as published. name: of its file. purposes:
-- of the prompts that are its inputs. purpose: of those that are scored for calibrations alone, null where there are
-- none (bc). strength: the power of p_hat, 1 as published, 0 for none. n_inputs: of the inputs the first so many; null:
-- all.
with
asked as (
    select unnest(calibration) as method
    from run_settings
),

-- Mostly none, so that prompts need not be read.
not_asked as materialized (
    select method
    from calibration_methods
    where method in (select unnest(purposes) from calibration_methods)
        and method not in (
            select unnest(purposes)
            from asked
            inner join calibration_methods as methods on regexp_extract(asked.method, '^[a-z0-9_]+') = methods.method
        )
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
    names.method, methods.method as name, purposes,
    list_filter(purposes, lambda purpose: purpose not in ('main', 'majority'))[1] as purpose,
    coalesce(try_cast(nullif(regexp_extract(names.method, '@([^/]+)', 1), '') as double), 1) as strength,
    try_cast(nullif(regexp_extract(names.method, '/([0-9]+)', 1), '') as bigint) as n_inputs
from names
inner join calibration_methods as methods on regexp_extract(names.method, '^[a-z0-9_]+') = methods.method
