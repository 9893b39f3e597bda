-- One row per ordered pair (run, other_run), n_demos and method: on how many predictions for the rows that both share
-- (label_bias_disagreements) only other_run (n_wins) or only run (n_losses) is right.
from counted_wins('label_bias_disagreements', ['run', 'other_run', 'n_demos', 'method'])
