-- One row per (model, question, heuristic) that takes part in the measurement: the value, exact match and F1 (0 to 1).
select
    qa_predictions.model, dataset, qa_attributes.heuristic, example_id, qa_examples.row, qa_attributes.value,
    qa_predictions.exact_match, qa_predictions.f1
from qa_predictions
inner join qa_attributes using (dataset, example_id)
inner join qa_examples using (dataset, example_id)
where qa_attributes.is_measured
