-- One row per (model, task, n_demos, instruction, setting, predict, method, draw): majority_draws, averaged over seeds.
select
    model, task, n_demos, instruction, setting, number, predict, method, draw,
    avg(weighted_f1 order by seed) as weighted_f1
from majority_draws
group by all
order by all
