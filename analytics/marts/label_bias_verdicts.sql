-- One row per (model, suite, n_demos, method, against_n_demos, against_method, metric): what the differences of
-- label_bias_changes may be said to show; metric: as in label_bias_changes_by_task. Those of one model and suite are
-- one family (sign_flip_tests): the chance that any verdict among them is wrong where there is no effect is 5 %, and so
-- it is of any same_tasks_verdict. Other suites and other models are families of their own. So is each partner
-- (requires in analytics/metrics), which has no word of its own, and each metric that a spec adds. is_primary: the
-- change answers the spec's primary question, its method against none in its metric. Those changes are a family of
-- their own. unit: 'tasks', whose differences are tested, or 'rows' in a run of one task: pseudo-values, its difference
-- plus what each row moves it (row_influences). estimate, standard_error, low, high, p, p_adjusted, simultaneous_low,
-- simultaneous_high, smallest_detectable: as there. verdict: the word that this supports (verdict) of an effect of at
-- least least_effect, for tasks like these. word_p_adjusted: the p_adjusted that verdict goes by. RSD falls where
-- accuracy rises, also without any bias, and relative_variance does not: 'higher' or 'lower' of either of the two needs
-- both, so that this is the larger of RSD's p_adjusted and half of the other's, 1 where they differ in sign, and null
-- where no task has hits on both sides (word_p). A calibration moves the probabilities of all rows together, so that
-- BiasScore changes for sure where the side of each label is anything but sure: it needs squared_preference in the same
-- way, and noise_p: that no label is preferred on either side in any task (the smallest of the tasks', Bonferroni).
-- Null where no task has one, so that there is no word. 'negligible' of BiasScore takes both bands (word_band). Of
-- other metrics word_p_adjusted is their own. same_tasks_*: the same for other rows of these very tasks, with these
-- demonstrations: the mean, its error over the tasks' rows (same_tasks_error, with same_tasks_n_free degrees of
-- freedom), interval, p and a band for the family (tests_over_rows). Intervals are of the difference of what rows would
-- show on average: rows push RSD and BiasScore up, and more where bias is small, so that with many tasks they miss the
-- difference of endless rows (of relative_variance they do not). Of one task they are those above.
-- same_tasks_smallest_detectable: 2.8 such errors, which one such test of 5 % finds with a power of 80 %. median,
-- interquartile_mean (mean of the middle half, Agarwal et al. 2021) of the tasks' differences, and standardized, their
-- mean over their standard deviation; null with one task. n_tasks_higher, n_tasks_lower: tasks that on their own show a
-- difference (label_bias_changes_by_task, holm, so that none of them is wrong in 95 % of runs: the partial conjunction
-- of Dror et al. 2017; a metric and its partner both must). n_rows, against_n_rows: predictions.
with
members as (
    select
        suite, task,
        row_number() over (partition by suite order by task) - 1 as number,
        count(*) over (partition by suite) as n_tasks
    from suite_tasks
),

named as (
    select
        {
            'model': changes.model,
            'suite': members.suite,
            'apart': tested_apart(metric),
            'is_primary': coalesce(
                method = primary_method
                and against_method = 'none'
                and word_metric(metric) = primary_metric,
                false
            )
        } as family,
        {
            'n_demos': n_demos, 'method': method, 'against_n_demos': against_n_demos, 'against_method': against_method,
            'metric': metric
        } as test,
        members.number, members.n_tasks, changes.*
    from label_bias_changes_by_task as changes
    inner join members using (task)
    cross join run_settings
    -- A task without a hit has no relative_variance: it is that of the others, or null where there are none. So is
    -- squared_preference without a second row of any gold label.
    qualify
        estimate is not null
        or word_metric(metric) = metric
        or count(estimate) over (partition by changes.model, members.suite, n_demos, method, against_n_demos, against_method, metric) = 0
),

alone as (
    from row_influences
    where task in (select task from members where n_tasks = 1)
),

moved as (
    select
        own.metric, own.task, pairs.n_demos, pairs.method, pairs.against_n_demos, pairs.against_method,
        dense_rank() over (partition by own.task order by own.purpose, own.row) - 1 as number,
        own.influence - other.influence as difference
    from label_bias_pairs as pairs
    inner join (from alone where format = 'base') as own using (n_demos, method)
    inner join (
        select * rename (n_demos as against_n_demos, method as against_method, format as against_format) from alone
    ) as other using (against_n_demos, against_method, against_format, metric, task, purpose, row)
),

units as (
    select family, test, number as unit, estimate as value
    from named
    where n_tasks > 1
    union all
    select named.family, named.test, moved.number as unit, named.estimate + moved.difference as value
    from named
    inner join moved using (metric, task, n_demos, method, against_n_demos, against_method)
    where named.n_tasks = 1
),

-- What a task shows on its own.
task_tests as (
    select
        {'family': family, 'test': test} as family, task as test, estimate,
        -- There is none without that of the partner.
        case
            when metric_head(metric).requires is null or count(*) over of_word > 1
                then word_p(list({'metric': metric, 'estimate': estimate, 'p': p, 'noise_p': noise_p}) over of_word)
        end as p
    from named
    window of_word as (
        partition by
            task, family.model, family.suite, n_demos, method, against_n_demos, against_method,
            word_metric(metric)
    )
),

found as (
    select
        family.family as family, family.test as test, count(*) filter (estimate > 0) as n_tasks_higher,
        count(*) filter (estimate < 0) as n_tasks_lower
    from holm('task_tests')
    inner join task_tests using (family, test)
    where p_adjusted <= 0.05
    group by all
),

spread as (
    select
        family, test, any_value(n_tasks) as n_tasks,
        if(count(*) > 1 and count(estimate) = count(*), median(estimate), null) as median,
        list(estimate order by estimate) filter (estimate is not null) as sorted,
        avg(estimate order by task) / nullif(stddev_samp(estimate order by task), 0) as standardized,
        sum(n_rows)::bigint as n_rows, sum(against_n_rows)::bigint as against_n_rows, sum(n_units)::bigint as n_units,
        bonferroni_p(min(noise_p), count(noise_p)) as noise_p
    from named
    group by all
),

-- For tasks like these and for these tasks, beside each other.
measured as (
    select
        tests.*, same_tasks.mean, spread.median,
        if(spread.median is null, null, interquartile_mean(spread.sorted)) as interquartile_mean,
        if(spread.median is null, null, spread.standardized) as standardized,
        least_effect(tests.test.metric) as least_effect, if(spread.n_tasks > 1, 'tasks', 'rows') as unit,
        spread.n_tasks, spread.n_rows, spread.against_n_rows, spread.noise_p,
        if(spread.n_tasks > 1, same_tasks.error, tests.standard_error) as same_tasks_error,
        same_tasks.n_free as same_tasks_n_free,
        if(spread.n_tasks > 1, same_tasks.low, tests.low) as same_tasks_low,
        if(spread.n_tasks > 1, same_tasks.high, tests.high) as same_tasks_high,
        if(spread.n_tasks > 1, same_tasks.p, tests.p) as same_tasks_p,
        if(spread.n_tasks > 1, same_tasks.p_adjusted, tests.p_adjusted) as same_tasks_p_adjusted,
        if(spread.n_tasks > 1, same_tasks.simultaneous_low, tests.simultaneous_low) as same_tasks_simultaneous_low,
        if(spread.n_tasks > 1, same_tasks.simultaneous_high, tests.simultaneous_high) as same_tasks_simultaneous_high,
        if(spread.n_tasks > 1, spread.n_units, tests.n_units) as same_tasks_n_units
    from sign_flip_tests('units', 'sign_flips') as tests
    inner join spread using (family, test)
    inner join tests_over_rows('named') as same_tasks using (family, test)
),

judged as (
    select
        *,
        word_p(list({'metric': test.metric, 'estimate': mean, 'p': p_adjusted, 'noise_p': noise_p}) over of_word) as word_p_adjusted,
        word_p(list({'metric': test.metric, 'estimate': mean, 'p': same_tasks_p_adjusted, 'noise_p': noise_p}) over of_word) as same_tasks_word_p_adjusted,
        word_band(
            test.metric, simultaneous_low, simultaneous_high,
            list({'metric': test.metric, 'low': simultaneous_low, 'high': simultaneous_high}) over of_word
        ) as band,
        word_band(
            test.metric, same_tasks_simultaneous_low, same_tasks_simultaneous_high,
            list({
                'metric': test.metric, 'low': same_tasks_simultaneous_low, 'high': same_tasks_simultaneous_high
            }) over of_word
        ) as same_tasks_band
    from measured
    window of_word as (
        partition by
            family.model, family.suite, test.n_demos, test.method, test.against_n_demos, test.against_method,
            word_metric(test.metric)
    )
)

select
    family.model as model, family.suite as suite, test.n_demos as n_demos, test.method as method,
    test.against_n_demos as against_n_demos, test.against_method as against_method, test.metric as metric,
    judged.mean as estimate, judged.median, judged.interquartile_mean, judged.standardized, judged.standard_error,
    judged.low, judged.high, judged.p, judged.p_adjusted, judged.simultaneous_low, judged.simultaneous_high,
    verdict(judged.mean, word_p_adjusted, band[1], band[2], n_units, judged.least_effect) as verdict,
    judged.smallest_detectable, judged.same_tasks_error, judged.same_tasks_low, judged.same_tasks_high,
    judged.same_tasks_p, judged.same_tasks_p_adjusted,
    verdict(
        judged.mean, same_tasks_word_p_adjusted, same_tasks_band[1], same_tasks_band[2], same_tasks_n_units,
        judged.least_effect
    ) as same_tasks_verdict,
    judged.unit, judged.n_units, judged.n_tasks, coalesce(found.n_tasks_higher, 0) as n_tasks_higher,
    coalesce(found.n_tasks_lower, 0) as n_tasks_lower, judged.n_rows, judged.against_n_rows, judged.word_p_adjusted,
    judged.same_tasks_word_p_adjusted, judged.same_tasks_simultaneous_low, judged.same_tasks_simultaneous_high,
    judged.same_tasks_n_free, judged.least_effect,
    2.8 * judged.same_tasks_error as same_tasks_smallest_detectable,
    judged.noise_p, family.is_primary as is_primary
from judged
left join found using (family, test)
order by all
