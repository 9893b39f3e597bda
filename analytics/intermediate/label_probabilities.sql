-- One row per (prompt of main, bias_score, held_out or majority, adaptation, label): the logarithm of the label's
-- probability, not calibrated (prompt_probabilities).
select * exclude (labels, log_probabilities), unnest(labels) as label, unnest(log_probabilities) as log_probability
from prompt_probabilities
where purpose in ('main', 'bias_score', 'held_out', 'majority')
