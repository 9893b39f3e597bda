-- One row per (task, n_demos, demo_set, format, setting, instruction, calibration of the run, label): the logarithm of
-- p_hat, the label's mean probability. The method names the adaptation too where there is one: lora+cc.
-- The plain mean over the method's inputs, or, by gold (looc), the mean of the means within each gold label that occurs.
-- A variant takes the first of them (dc/5) and raises p_hat to its strength (dc@0.7) where it divides.
with

-- Variants of a method that take as many of its inputs share their means.
takes as (

    select distinct
        purpose,
        n_inputs
    from calibration_variants

),

label_probabilities as (

    select
        * exclude (labels, log_probabilities),
        unnest(labels) as label,
        unnest(log_probabilities) as log_probability
    from calibration_inputs
    inner join takes using (purpose)
    where row < coalesce(takes.n_inputs, row + 1)

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

),

means as (

    select
        * exclude (logs, peak),
        peak + ln(list_avg(list_transform(logs, lambda x: exp(x - peak)))) as log_p_hat
    from label_lists

)

select
    means.task,
    means.n_demos,
    means.demo_set,
    means.format,
    means.setting,
    means.instruction,
    means.adaptation,
    method_name(means.adaptation, calibration_variants.method) as method,
    calibration_variants.strength,
    means.label,
    means.log_p_hat,
    means.n_rows
from means
inner join calibration_variants
    on
        means.purpose = calibration_variants.purpose
        and means.n_inputs is not distinct from calibration_variants.n_inputs
