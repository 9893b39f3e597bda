-- One row per (model, task, n_demos, instruction, predict, method, draw): statistics over settings, of a resample of
-- the test rows. A setting counts with its mean over seeds. As a draw holds the same rows everywhere, differences
-- between instructions, methods and models have their bootstrap distribution here; draw 0 is the rows themselves.
-- Resampling adds noise to each setting: draws of rb_at_10 lean low and those of sd_f1 high, against draw 0.
-- tails_f1 and middle_f1 are the means over the settings of a region (setting_regions), null where it has none.
select
    model, task, n_demos, instruction, predict, method, draw,
    rb_at_k(list(weighted_f1 order by number), 10) as rb_at_10, avg(weighted_f1 order by number) as mean_f1,
    stddev_samp(weighted_f1 order by number) as sd_f1,
    avg(weighted_f1 order by number) filter (region = 'tails') as tails_f1,
    avg(weighted_f1 order by number) filter (region = 'middle') as middle_f1
from majority_draws_over_seeds
inner join setting_regions using (setting)
group by all
order by all
