-- Rows here: a setting, seed and instruction that lacks a way of predicting, or a calibration, that the run asked for.
with
ways as (
    select ways.predict, adapted.adaptation as method
    from (select unnest(predict) as predict from run_settings) as ways
    cross join (select unnest(adaptations) as adaptation from run_settings) as adapted
    union all
    select 'likelihood' as predict, method_name(adapted.adaptation, calibration) as method
    from (select unnest(calibration) as calibration from run_settings) as calibrations
    cross join (select unnest(adaptations) as adaptation from run_settings) as adapted
)

select
    format('{}, setting {}, seed {}, {} instruction: no predictions by {}, {}',
           task, setting, seed, if(instruction, 'with', 'without'), predict, method) as problem,
    task, setting, seed, instruction, predict, method
from (select distinct task, n_demos, instruction, seed from majority_contexts)
cross join settings
cross join ways
anti join majority_by_setting using (task, n_demos, instruction, setting, seed, predict, method)
order by all
