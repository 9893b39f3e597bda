-- Rows here: a setting whose draw 0 is not the rows themselves, or a verdict on another difference than its mart has.
with
differences as (
    select
        task, n_demos, instruction, instruction as against_instruction, predict, method,
        unnest(['mean_f1', 'sd_f1']) as metric, unnest([mean_f1, sd_f1]) as difference
    from majority_calibration_gain
    union all
    select
        task, n_demos, true as instruction, false as against_instruction, predict, method,
        format('{}_f1', region) as metric, gap as difference
    from majority_instruction_gap
)

-- One number, by the macro and by dot products.
select
    format('setting {}, seed {}, {}, {}: weighted F1 {}, of draw 0 {}',
           setting, seed, predict, method, weighted_f1, coalesce(draw_f1::varchar, 'null')) as problem
from majority_by_setting
left join (select * exclude (weighted_f1), weighted_f1 as draw_f1 from majority_draws where draw = 0)
    using (setting, seed, instruction, predict, method)
where not coalesce(abs(weighted_f1 - draw_f1) <= 1e-9, false)
union all
-- The mean of the rows' pseudo-values is the difference itself.
select format('verdict of {}, {}, {}: {}, of draw 0 {}', metric, predict, method, estimate, difference) as problem
from majority_verdicts
inner join differences using (task, n_demos, instruction, against_instruction, predict, method, metric)
where abs(estimate - difference) > 1e-9
order by all
