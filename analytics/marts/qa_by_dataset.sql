-- One row per (model, dataset): exact match and F1 over its questions (0 to 1), with 95 % intervals: Wilson's for
-- exact match, the normal one for F1 (null with a single row). n_missing: questions that the model has no answer for.
with

sizes as (

    select
        dataset,
        role,
        count(*) as n_questions
    from qa_examples
    group by all

),

measured as (

    select
        qa_predictions.model,
        dataset,
        avg(qa_predictions.exact_match order by qa_examples.row) as exact_match,
        avg(qa_predictions.f1 order by qa_examples.row) as f1,
        1.959963984540054 * stddev_samp(qa_predictions.f1 order by qa_examples.row) / sqrt(count(*)) as half_width,
        count(*) as n_rows
    from qa_predictions
    inner join qa_examples using (dataset, example_id)
    group by all

)

select
    measured.model,
    dataset,
    sizes.role,
    measured.exact_match,
    wilson_interval(measured.exact_match, measured.n_rows)[1] as exact_match_low,
    wilson_interval(measured.exact_match, measured.n_rows)[2] as exact_match_high,
    measured.f1,
    if(measured.half_width is null, null, greatest(0, measured.f1 - measured.half_width)) as f1_low,
    if(measured.half_width is null, null, least(1, measured.f1 + measured.half_width)) as f1_high,
    measured.n_rows,
    sizes.n_questions - measured.n_rows as n_missing
from measured
inner join sizes using (dataset)
order by all
