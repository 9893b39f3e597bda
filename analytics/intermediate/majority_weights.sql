-- One row per (task, n_demos, instruction, setting, seed, predict, method): weighted_f1, accuracy, n_seeds of the
-- setting, and of_*, the derivatives by weighted F1 of the metrics over settings, a setting counting with its mean over
-- seeds: mean weighted F1, that over a region (of_tails, of_middle: setting_regions; null outside it), and the sample
-- standard deviation over settings (null with one setting, or without any spread). A metric is the sum of derivative
-- times weighted F1.
with
f1s as (
    select task, n_demos, instruction, setting, number, seed, predict, method, weighted_f1, accuracy
    from majority_by_setting
),

setting_f1s as (
    select * exclude (seed, weighted_f1, accuracy), avg(weighted_f1 order by seed) as mean_f1, count(*) as n_seeds
    from f1s
    group by all
),

model_f1s as (
    select
        task, n_demos, instruction, predict, method, avg(mean_f1 order by number) as center,
        stddev_samp(mean_f1 order by number) as spread, count(*) as n_settings,
        count(*) filter (region = 'tails') as n_tails, count(*) filter (region = 'middle') as n_middle
    from setting_f1s
    inner join setting_regions using (setting)
    group by all
)

select
    f1s.*, n_seeds, 1 / n_settings / n_seeds as of_mean,
    case when region = 'tails' then 1 / n_tails / n_seeds end as of_tails,
    case when region = 'middle' then 1 / n_middle / n_seeds end as of_middle,
    case when spread > 1e-9 then (mean_f1 - center) / (n_settings - 1) / spread / n_seeds end as of_sd
from f1s
inner join setting_f1s using (task, n_demos, instruction, setting, number, predict, method)
inner join setting_regions using (setting)
inner join model_f1s using (task, n_demos, instruction, predict, method)
