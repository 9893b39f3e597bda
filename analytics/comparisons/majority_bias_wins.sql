-- One row per ordered pair (run, other_run), n_demos, instruction, predict and method: on how many predictions, one per
-- setting, seed and test row that both have (majority_bias_disagreements), only other_run (n_wins) or only run
-- (n_losses) is right.
select
    run,
    other_run,
    n_demos,
    instruction,
    predict,
    method,
    count(*) filter (is_win) as n_wins,
    count(*) filter (not is_win) as n_losses
from majority_bias_disagreements
group by all
order by all
