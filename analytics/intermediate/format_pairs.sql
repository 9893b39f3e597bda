-- One row per (model, n_demos, method, format, against_method, against_format): the comparisons in a run of several
-- formats of the prompt: each format with those before it (the base, then as in the spec) under the same method, and in
-- each format every other method with none.
with
places as (
    select unnest(formats) as format, unnest(range(len(formats))) as place
    from run_settings
    where len(formats) > 1
),

settings as (
    select distinct model, n_demos, method, format, place
    from format_metrics
    inner join places using (format)
)

select
    settings.model, settings.n_demos, settings.method, settings.format, against.method as against_method,
    against.format as against_format
from settings
inner join settings as against using (model, n_demos)
where
    (settings.method = against.method and settings.place > against.place)
    or (settings.format = against.format and settings.method <> 'none' and against.method = 'none')
