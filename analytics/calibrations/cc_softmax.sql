-- shown: CC softmax
-- meaning: Contextual calibration as the text of Reif & Schwartz (2024) prints it: the softmax of the probabilities divided
--   by those of CC. It predicts as CC does, with flatter probabilities.
-- by: content-free inputs, then a softmax
-- inputs: cc
-- gives: log_probability
with
means as (
    select * exclude (row, input, gold, log_probability), log_mean(list(log_probability order by row)) as log_p_hat
    from calibration_scores
    where method = 'cc_softmax'
    group by all
)

select own.prompt_id, own.adaptation, own.label, exp(own.log_probability - means.log_p_hat) as log_probability
from label_probabilities as own
inner join means using (task, n_demos, demo_set, format, adaptation, label)
where own.setting is not distinct from means.setting and own.instruction is not distinct from means.instruction
