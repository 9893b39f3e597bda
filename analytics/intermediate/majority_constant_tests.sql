-- One row per (task, n_demos, instruction, setting, seed, predict, method): is it better than the best constant answer?
-- seed null: the mean over the seeds of a setting; setting null, too: the mean over settings. constant_p: of
-- tests_above_constant; each of the three levels is a family. is_above_constant: by that and by the values.
-- n_seeds_not_above, n_settings_above, n_settings_not_above: of the seeds of a setting, and of the settings.
with
places as (
    select
        *, (seed is null, setting is null) as family,
        {
            'task': task, 'n_demos': n_demos, 'instruction': instruction, 'setting': setting, 'seed': seed,
            'predict': predict, 'method': method
        } as place
    from majority_constant_differences
),

judged as (
    select
        place, any_value(constant_p) as constant_p, any_value(majority_accuracy) as majority_accuracy,
        any_value(constant_f1) as constant_f1,
        is_above_constant(
            any_value(constant_p),
            list(value order by metric),
            [any_value(majority_accuracy), any_value(constant_f1)]
        ) as is_above_constant
    from places
    inner join tests_above_constant('places') using (place)
    group by place
)

select
    unnest(place), * exclude (place, is_level),
    count(*) filter (place.seed is not null and not is_above_constant) over of_setting as n_seeds_not_above,
    count(*) filter (is_level and is_above_constant) over of_model as n_settings_above,
    count(*) filter (is_level and not is_above_constant) over of_model as n_settings_not_above
from (select *, place.seed is null and place.setting is not null as is_level from judged)
window
    of_setting as (
        partition by place.task, place.n_demos, place.instruction, place.predict, place.method, place.setting
    ),
    of_model as (partition by place.task, place.n_demos, place.instruction, place.predict, place.method)
