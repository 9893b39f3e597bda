-- One row per ordered pair (run, other_run), n_demos, instruction, predict and method: on how many predictions, one per
-- setting, seed and test row that both have (majority_bias_disagreements), only other_run (n_wins) or only run
-- (n_losses) is right.
from counted_wins('majority_bias_disagreements', ['run', 'other_run', 'n_demos', 'instruction', 'predict', 'method'])
