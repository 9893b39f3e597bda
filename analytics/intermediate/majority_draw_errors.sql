-- One row per pair of majority_pairs but rb_at_10: error_draws, the standard error of the difference over other draws of
-- demonstrations for the same proportions, behind the same test rows, and draws_df, its degrees of freedom.
-- Both sides have the same demonstrations, so the difference in each setting and seed is paired, by the derivatives of
-- the metric (majority_weights). With several seeds: from the variance over seeds within settings, by Satterthwaite
-- (1946). With one: from that over at least 6 settings, which holds what proportions change too, and not for sd_f1. No
-- row where there is nothing to tell it from. draws_df is null where nothing varies. n_seeds: the most of a setting.
with

f1_values as (

    select
        * exclude (of_mean, of_sd, of_tails, of_middle, weighted_f1),
        unnest(['mean_f1', 'sd_f1', 'tails_f1', 'middle_f1']) as metric,
        unnest([of_mean, of_sd, of_tails, of_middle]) * weighted_f1 as value
    from majority_weights

),

changes as (

    select
        majority_pairs.*,
        changed.setting,
        changed.number,
        changed.seed,
        changed.n_seeds,
        round(changed.value - plain.value, 12) as value
    from majority_pairs
    inner join f1_values as changed using (task, n_demos, instruction, predict, method, metric)
    inner join f1_values as plain
        on
            majority_pairs.task = plain.task
            and majority_pairs.n_demos = plain.n_demos
            and majority_pairs.against_instruction = plain.instruction
            and majority_pairs.predict = plain.predict
            and majority_pairs.against_method = plain.method
            and majority_pairs.metric = plain.metric
            and changed.setting = plain.setting
            and changed.seed = plain.seed
    where changed.value is not null and plain.value is not null

),

setting_changes as (

    select
        * exclude (seed, value, setting, n_seeds),
        max(n_seeds) as n_seeds,
        sum(value order by seed) as value,
        max(n_seeds) * var_samp(value order by seed) as variance
    from changes
    group by all

),

variances as (

    select
        * exclude (number, n_seeds, value, variance),
        max(n_seeds) as n_seeds,
        case
            when max(n_seeds) > 1 then sum(variance order by number)
            when max(metric) <> 'sd_f1' and count(*) >= 6 then count(*) * var_samp(value order by number)
        end as variance,
        case
            when max(n_seeds) > 1
                then sum(variance order by number) ** 2
                / nullif(sum(variance ** 2 / (n_seeds - 1) order by number), 0)
            else count(*) - 1
        end as draws_df
    from setting_changes
    group by all

)

select
    * exclude (variance, n_seeds, draws_df),
    sqrt(variance) as error_draws,
    draws_df,
    n_seeds
from variances
where variance is not null
