-- One row per (task, n_demos, instruction, predict, method, seed): rb_at_10 over the settings of one seed, which holds
-- what that draw of demonstrations does; the mean over seeds is not the RB@10 of the means over seeds
-- (majority_by_model).
select task, n_demos, instruction, predict, method, seed, rb_at_k(list(weighted_f1 order by number), 10) as rb_at_10
from majority_by_setting
group by all
