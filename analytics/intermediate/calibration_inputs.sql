-- One row per (input of a calibration, adaptation): the labels in code-point order and the logarithms of what the input
-- says of each. An input is a prompt, and that is the label's probability. Where a method permutes options (pride), it is
-- a question, whose orders are the prompts labels * row to labels * (row + 1) - 1, and that is the prior of the label: the
-- geometric mean of its probability over the orders, normalised (Zheng et al. 2024). Each option stands once behind each
-- label, so that what options say drops out. gold: of the input, where means are taken by gold label.
with

inputs as (

    select
        task,
        purpose,
        n_demos,
        demo_set,
        format,
        setting,
        instruction,
        adaptation,
        permutes,
        case when permutes then row // len(labels) else row end as input,
        case when is_by_gold then gold end as gold,
        labels,
        list(log_probabilities order by row) as orders
    from prompt_probabilities
    inner join calibration_methods on purpose = calibration_methods.method
    group by all

),

means as (

    select
        * exclude (orders),
        case
            when permutes
                then
                    list_transform(
                        range(1, len(labels) + 1),
                        lambda place: list_avg(list_transform(orders, lambda logs: logs[place]))
                    )
            else orders[1]
        end as log_means
    from inputs

),

normalizers as (

    select
        *,
        case
            when permutes
                then
                    list_max(log_means)
                    + ln(list_sum(list_transform(log_means, lambda x: exp(x - list_max(log_means)))))
            else 0
        end as log_total
    from means

)

select
    task,
    purpose,
    n_demos,
    demo_set,
    format,
    setting,
    instruction,
    adaptation,
    input as row,
    gold,
    labels,
    list_transform(log_means, lambda x: x - log_total) as log_probabilities
from normalizers
