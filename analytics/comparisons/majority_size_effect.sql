-- One row per (run, larger_run, task, n_demos, instruction, predict, method): the effect of model size, which is the
-- larger model minus the smaller on the same data (majority_shared_data) with as many demonstrations. larger_run has
-- the next size: of the runs to compare with, the one with the fewest parameters beyond run's own, of the same family
-- and tuned or not as run is (size_pairs). tails_f1 and middle_f1: the gap in mean weighted F1 over the most skewed settings, and over all others. Intervals are over
-- resamples of the test rows, the same for both; null where the runs do not have the same rows and resamples, contexts
-- and scoring. They are percentiles, which no test is made of, and hold for these draws of demonstrations; those of
-- rb_at_10 and sd_f1 may lean to a side: resampling adds noise to each setting. *_sign: 1 or -1 where
-- majority_bias_comparison says that the larger model's is higher or lower, for other rows and other draws of
-- demonstrations, 0 for no difference at all (tolerance 1e-9), else null, also where contexts or scoring are not the
-- same. has_enough_rows: in both runs, so that rb_at_10 can be judged (majority_by_model). n_shared_rows: test rows
-- that both have.
with
pairs as (
    select majority_shared_data.*, n_parameters, larger_n_parameters, larger_model
    from majority_shared_data
    inner join size_pairs using (run, other_run)
),

differences as (
    select
        pairs.*,
        smaller.* exclude (run, rb_at_10, mean_f1, sd_f1, tails_f1, middle_f1),
        larger.rb_at_10 - smaller.rb_at_10 as rb_at_10, larger.mean_f1 - smaller.mean_f1 as mean_f1,
        larger.sd_f1 - smaller.sd_f1 as sd_f1, larger.tails_f1 - smaller.tails_f1 as tails_f1,
        larger.middle_f1 - smaller.middle_f1 as middle_f1
    from pairs
    inner join majority_draws_by_model as smaller using (run)
    inner join majority_draws_by_model as larger using (n_demos, instruction, predict, method, draw)
    -- Without the same prompts and scoring only the estimates can be compared.
    where larger.run = pairs.other_run and (draw = 0 or (has_same_rows and has_same_contexts and has_same_scoring))
    -- Next in size, among the runs that have this number of demonstrations, instruction and way of predicting.
    qualify larger_n_parameters = min(larger_n_parameters) over (partition by pairs.run, n_demos, instruction, predict, method)
),

effects as (
    select
        run, other_run as larger_run, model, larger_model, n_parameters, larger_n_parameters, task, n_demos,
        instruction, predict, method,
        estimate(columns('^(rb_at_10|mean_f1|sd_f1|tails_f1|middle_f1)$'), draw) as "\1",
        interval_low(columns('^(rb_at_10|mean_f1|sd_f1|tails_f1|middle_f1)$'), draw) as "\1_low",
        interval_high(columns('^(rb_at_10|mean_f1|sd_f1|tails_f1|middle_f1)$'), draw) as "\1_high",
        n_shared_rows
    from differences
    group by all
),

signs as (
    from (
        select
            run, other_run as larger_run, n_demos, instruction, predict, method, metric,
            case verdict when 'higher' then 1 when 'lower' then -1 end as sign
        from majority_bias_comparison
        semi join (select * from pairs where has_same_contexts and has_same_scoring) as alike using (run, other_run)
    ) pivot (any_value(sign) for metric in ('rb_at_10', 'mean_f1', 'sd_f1', 'tails_f1', 'middle_f1'))
)

select
    effects.*,
    smaller.is_any_setting_above_constant and larger.is_any_setting_above_constant as is_above_constant,
    if(abs(effects.rb_at_10) <= 1e-9, 0, signs.rb_at_10) as rb_at_10_sign,
    if(abs(effects.mean_f1) <= 1e-9, 0, signs.mean_f1) as mean_f1_sign,
    if(abs(effects.sd_f1) <= 1e-9, 0, signs.sd_f1) as sd_f1_sign,
    if(abs(effects.tails_f1) <= 1e-9, 0, signs.tails_f1) as tails_f1_sign,
    if(abs(effects.middle_f1) <= 1e-9, 0, signs.middle_f1) as middle_f1_sign,
    smaller.has_enough_rows and larger.has_enough_rows as has_enough_rows
from effects
inner join majority_by_model as smaller using (run, n_demos, instruction, predict, method)
inner join majority_by_model as larger using (n_demos, instruction, predict, method)
left join signs using (run, larger_run, n_demos, instruction, predict, method)
where larger.run = larger_run
order by all
