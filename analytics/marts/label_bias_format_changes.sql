-- One row per (model, suite, n_demos, method, format, against_method, against_format, metric): differences between
-- formats of the prompt, and what methods change in each of them; only in runs of several formats. Two families: each
-- format against the base under the same method, which shows whether the wording matters beyond what other rows would;
-- and each method against none in the same format, which shows in which wordings it helps (in the base:
-- label_bias_verdicts). metric: as in label_bias_changes_by_task. All of it is for other rows of these very tasks,
-- with these demonstrations, paired by row: estimate, the mean over tasks, standard_error, low, high, p, and
-- p_adjusted, simultaneous_low, simultaneous_high for the whole family of the model and suite (tests_over_rows; each
-- partner is a family of its own). verdict: the word that this supports (verdict) of an effect of at least
-- least_effect, as same_tasks_verdict of label_bias_verdicts; word_p_adjusted: the p_adjusted it goes by (word_p);
-- noise_p: as there. n_rows, against_n_rows: predictions. n_units: the rows that both sides have, each counted once.
with
values_of as (
    select metrics.*, case when has_noise_p(metric) then bias_score_p end as bias_score_p
    from metric_values_over_sets as metrics
    inner join format_metrics_over_sets using (task, n_demos, method, format)
),

differences as (
    select
        asked.*, own.task, own.metric, own.value - other.value as estimate, own.n_rows, other.n_rows as against_n_rows,
        noise_p(own.bias_score_p, other.bias_score_p) as noise_p
    from (from format_pairs where format <> 'base' and (against_format = 'base' or method <> against_method)) as asked
    inner join values_of as own using (n_demos, method, format)
    inner join (select * rename (method as against_method, format as against_format) from values_of) as other
        using (n_demos, against_method, against_format, task, metric)
),

named as (
    select
        {
            'model': model, 'suite': suite, 'is_of_methods': method <> against_method, 'apart': tested_apart(metric)
        } as family,
        {
            'n_demos': n_demos, 'method': method, 'format': format, 'against_method': against_method,
            'against_format': against_format, 'metric': metric
        } as test,
        differences.*, errors.standard_error, errors.n_free, errors.n_units
    from differences
    inner join suite_tasks using (task)
    left join (select * from paired_errors where n_demos = against_n_demos) as errors
        using (task, n_demos, method, format, against_method, against_format, metric)
    -- As in label_bias_verdicts.
    qualify
        estimate is not null
        or word_metric(metric) = metric
        or count(estimate) over (partition by model, suite, n_demos, method, format, against_method, against_format, metric) = 0
),

counts as (
    select
        family, test, count(*) as n_tasks, sum(n_rows)::bigint as n_rows, sum(against_n_rows)::bigint as against_n_rows,
        sum(n_units)::bigint as n_units, bonferroni_p(min(noise_p), count(noise_p)) as noise_p
    from named
    group by all
),

measured as (
    select tests.*, counts.* exclude (family, test), least_effect(tests.test.metric) as least_effect
    from tests_over_rows('named') as tests
    inner join counts using (family, test)
),

judged as (
    select
        *,
        word_p(list({'metric': test.metric, 'estimate': mean, 'p': p_adjusted, 'noise_p': noise_p}) over of_word) as word_p_adjusted,
        word_band(
            test.metric, simultaneous_low, simultaneous_high,
            list({'metric': test.metric, 'low': simultaneous_low, 'high': simultaneous_high}) over of_word
        ) as band
    from measured
    window of_word as (
        partition by
            family.model, family.suite, test.n_demos, test.method, test.format, test.against_method,
            test.against_format,
            word_metric(test.metric)
    )
)

select
    family.model as model, family.suite as suite, test.n_demos as n_demos, test.method as method, test.format as format,
    test.against_method as against_method, test.against_format as against_format, test.metric as metric,
    mean as estimate, error as standard_error, low, high, p, p_adjusted, simultaneous_low, simultaneous_high,
    word_p_adjusted,
    verdict(mean, word_p_adjusted, band[1], band[2], n_units, least_effect) as verdict,
    least_effect, n_tasks, n_units, n_rows, against_n_rows, noise_p
from judged
order by all
