-- One row per (task, n_demos, demo_set, setting, instruction, method, label): the logarithm of
-- p_hat, the label's mean probability. The method names the adaptation too where there is one: lora+cc.
-- The plain mean over the method's rows, or, by gold (looc), the mean of the means within each gold label that occurs.
with

label_probabilities as (

    select
        task,
        n_demos,
        demo_set,
        setting,
        instruction,
        adaptation,
        method_name(adaptation, purpose) as method,
        row,
        case when is_by_gold then gold end as gold,
        unnest(labels) as label,
        unnest(log_probabilities) as log_probability
    from prompt_probabilities
    inner join calibration_methods on purpose = calibration_methods.method

),

gold_lists as (

    select
        * exclude (row, log_probability),
        list(log_probability order by row) as logs,
        max(log_probability) as peak,
        count(*) as n_rows
    from label_probabilities
    group by all

),

gold_means as (

    select
        * exclude (logs, peak),
        peak + ln(list_avg(list_transform(logs, lambda x: exp(x - peak)))) as log_mean
    from gold_lists

),

label_lists as (

    select
        * exclude (gold, log_mean, n_rows),
        list(log_mean order by gold) as logs,
        max(log_mean) as peak,
        sum(n_rows)::bigint as n_rows
    from gold_means
    group by all

)

select
    task,
    n_demos,
    demo_set,
    setting,
    instruction,
    adaptation,
    method,
    label,
    peak + ln(list_avg(list_transform(logs, lambda x: exp(x - peak)))) as log_p_hat,
    n_rows
from label_lists
