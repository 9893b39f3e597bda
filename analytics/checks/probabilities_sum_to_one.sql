-- Rows here: a prompt and method whose probabilities are not in [0, 1] with sum 1 (1e-9).
select
    format('prompt {}, method {}: probabilities {}', prompt_id, method, coalesce(probabilities::varchar, 'null')) as problem,
    prompt_id, method
from calibrated_predictions
where
    not coalesce(abs(list_sum(probabilities) - 1) <= 1e-9, false)
    or len(probabilities) > list_count(probabilities)
    or list_min(probabilities) < 0
    or list_max(probabilities) > 1
    or prediction is null
order by all
