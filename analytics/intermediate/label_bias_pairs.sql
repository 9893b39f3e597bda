-- One row per (model, n_demos, method, against_n_demos, against_method): the compared pairs. against_format: 'sets of
-- lora' where adapters are of fewer demonstration sets than none (calibrated_predictions), else base. Every other method
-- stands against none at the same n_demos, calibration of the adapted model (lora+cc) also against lora alone; none
-- itself stands against none at the smallest n_demos.
with
settings as (
    select distinct model, n_demos, method
    from label_bias_by_task_over_sets
)

select
    settings.model, settings.n_demos, settings.method, against.n_demos as against_n_demos,
    against.method as against_method,
    case when settings.method like 'lora%' and against.method = 'none' then coalesce(sets.format, 'base') else 'base' end
        as against_format
from settings
inner join settings as against using (model)
left join (select distinct n_demos, format from format_metrics where format = 'sets of lora') as sets
    on settings.n_demos = sets.n_demos
where
    case
        when settings.method = 'none' then
            against.method = 'none'
            and settings.n_demos > against.n_demos
            and against.n_demos = (select min(n_demos) from settings)
        else
            (against.method = 'none' or starts_with(settings.method, against.method || '+'))
            and settings.n_demos = against.n_demos
    end
