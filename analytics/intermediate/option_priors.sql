-- One row per (question of a calibration that permutes options, adaptation): the labels in code-point order and the
-- logarithms of their prior there: the geometric mean of a label's probability over the cyclic orders of the question's
-- options, normalised (Zheng et al. 2024, equation 7). Each option stands once behind each label, so that what options
-- say drops out. row: of the question, whose orders are the prompts labels * row to labels * (row + 1) - 1.
with

label_probabilities as (

    select
        task,
        n_demos,
        demo_set,
        setting,
        instruction,
        adaptation,
        purpose,
        row // len(labels) as question,
        row,
        unnest(labels) as label,
        unnest(log_probabilities) as log_probability
    from prompt_probabilities
    inner join calibration_methods on purpose = calibration_methods.method
    where permutes

),

label_means as (

    select
        * exclude (row, log_probability),
        avg(log_probability order by row) as log_mean
    from label_probabilities
    group by all

),

label_lists as (

    select
        * exclude (label, log_mean),
        list(label order by label) as labels,
        list(log_mean order by label) as log_means,
        max(log_mean) as peak
    from label_means
    group by all

),

normalizers as (

    select
        *,
        peak + ln(list_sum(list_transform(log_means, lambda x: exp(x - peak)))) as log_total
    from label_lists

)

select
    task,
    n_demos,
    demo_set,
    setting,
    instruction,
    adaptation,
    purpose,
    question as row,
    labels,
    list_transform(log_means, lambda x: x - log_total) as log_probabilities
from normalizers
