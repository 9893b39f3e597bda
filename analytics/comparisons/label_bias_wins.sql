-- One row per ordered pair (run, other_run), n_demos and method: on how many predictions for the rows that both share
-- (label_bias_disagreements) only other_run (n_wins) or only run (n_losses) is right.
select
    run,
    other_run,
    n_demos,
    method,
    count(*) filter (is_win) as n_wins,
    count(*) filter (not is_win) as n_losses
from label_bias_disagreements
group by all
order by all
