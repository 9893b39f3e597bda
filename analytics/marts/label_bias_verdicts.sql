-- One row per (model, suite, n_demos, method, against_n_demos, against_method, metric): what the differences of
-- label_bias_changes may be said to show, tested as one family (sign_flip_tests): of all of a suite, the chance that any
-- word is wrong where there is no effect is 5 %.
-- unit: 'tasks', whose differences are tested, or 'rows' in a run of one task: pseudo-values, its difference plus what
-- each row moves it (row_influences). estimate, standard_error, low, high, p, p_adjusted, simultaneous_low,
-- simultaneous_high, smallest_detectable: as there. verdict: the word that this supports (verdict), of an effect of at
-- least 0.01, the smallest of interest, for tasks like these.
-- same_tasks_error, same_tasks_low, same_tasks_high, same_tasks_p, same_tasks_p_adjusted, same_tasks_verdict: the same for
-- other rows of these very tasks, behind these demonstrations: the tasks' errors over their rows (normal 95 % intervals;
-- Holm 1979 over the family). Of one task there is no difference, and they are those above.
-- median, interquartile_mean (mean of the middle half, Agarwal et al. 2021) of the tasks' differences, and standardized,
-- their mean over their standard deviation; null with one task. n_tasks_higher, n_tasks_lower: tasks that on their own
-- show a difference (label_bias_changes_by_task, Holm 1979, so that none of them is wrong in 95 % of runs: the partial
-- conjunction of Dror et al. 2017).
with

members as (

    select
        suite,
        task,
        row_number() over (partition by suite order by task) - 1 as number,
        count(*) over (partition by suite) as n_tasks
    from bootstrap_draws
    where draw = 0

),

named as (

    select
        {'model': model, 'suite': members.suite} as family,
        {
            'n_demos': n_demos,
            'method': method,
            'against_n_demos': against_n_demos,
            'against_method': against_method,
            'metric': metric
        } as test,
        members.number,
        members.n_tasks,
        changes.*
    from label_bias_changes_by_task as changes
    inner join members using (task)

),

alone as (

    select *
    from row_influences
    where task in (select task from members where n_tasks = 1)

),

moved as (

    select
        own.task,
        pairs.n_demos,
        pairs.method,
        pairs.against_n_demos,
        pairs.against_method,
        dense_rank() over (partition by own.task order by own.purpose, own.row) - 1 as number,
        own.purpose,
        own.accuracy - other.accuracy as accuracy,
        own.macro_f1 - other.macro_f1 as macro_f1,
        own.rsd - other.rsd as rsd,
        own.bias_score - other.bias_score as bias_score
    from label_bias_pairs as pairs
    inner join alone as own
        on
            pairs.n_demos = own.n_demos
            and pairs.method = own.method
    inner join alone as other
        on
            pairs.against_n_demos = other.n_demos
            and pairs.against_method = other.method
            and own.task = other.task
            and own.purpose = other.purpose
            and own.row = other.row

),

units as (

    select
        family,
        test,
        number as unit,
        estimate as value
    from named
    where n_tasks > 1

    union all

    select
        named.family,
        named.test,
        moved.number as unit,
        named.estimate
        + case named.metric
            when 'accuracy' then moved.accuracy
            when 'macro_f1' then moved.macro_f1
            when 'rsd' then moved.rsd
            else moved.bias_score
        end as value
    from named
    inner join moved using (task, n_demos, method, against_n_demos, against_method)
    where named.n_tasks = 1 and (named.metric = 'bias_score') = (moved.purpose = 'bias_score')

),

tests as (

    from sign_flip_tests('units', 'sign_flips')

),

-- Holm: as long as the p-values in their order are small enough for the tests that are left.
ordered as (

    select
        family,
        test,
        estimate,
        p * (n_tasks - row_number() over (partition by family, test order by p, task) + 1) as p_holm,
        row_number() over (partition by family, test order by p, task) as place
    from named
    where p is not null

),

holm as (

    select
        *,
        max(p_holm) over (partition by family, test order by place) as p_adjusted
    from ordered

),

found as (

    select
        family,
        test,
        count(*) filter (estimate > 0) as n_tasks_higher,
        count(*) filter (estimate < 0) as n_tasks_lower
    from holm
    where p_adjusted <= 0.05
    group by all

),

spread as (

    select
        family,
        test,
        any_value(n_tasks) as n_tasks,
        if(count(estimate) = count(*), avg(estimate order by task), null) as mean,
        if(count(*) > 1 and count(estimate) = count(*), median(estimate), null) as median,
        list(estimate order by estimate) filter (estimate is not null) as sorted,
        avg(estimate order by task) / nullif(stddev_samp(estimate order by task), 0) as standardized,
        if(
            count(standard_error) = count(*), sqrt(sum(standard_error ** 2 order by task)) / count(*), null
        ) as same_tasks_error,
        sum(n_rows)::bigint as n_rows,
        sum(against_n_rows)::bigint as against_n_rows
    from named
    group by all

),

same_tasks as (

    select
        *,
        mean - 1.959963984540054 * same_tasks_error as same_tasks_low,
        mean + 1.959963984540054 * same_tasks_error as same_tasks_high,
        normal_p(mean / nullif(same_tasks_error, 0)) as same_tasks_p,
        row_number() over (partition by family order by same_tasks_p nulls last, test) as place,
        count(same_tasks_p) over (partition by family) as n_tests
    from spread

),

same_tasks_adjusted as (

    select
        *,
        if(
            same_tasks_p is null,
            null,
            max(bonferroni_p(same_tasks_p, n_tests - place + 1)) over (partition by family order by place)
        ) as same_tasks_p_adjusted
    from same_tasks

)

select
    tests.family.model as model,
    tests.family.suite as suite,
    tests.test.n_demos as n_demos,
    tests.test.method as method,
    tests.test.against_n_demos as against_n_demos,
    tests.test.against_method as against_method,
    tests.test.metric as metric,
    spread.mean as estimate,
    spread.median,
    if(spread.median is null, null, interquartile_mean(spread.sorted)) as interquartile_mean,
    if(spread.median is null, null, spread.standardized) as standardized,
    tests.standard_error,
    tests.low,
    tests.high,
    tests.p,
    tests.p_adjusted,
    tests.simultaneous_low,
    tests.simultaneous_high,
    verdict(
        spread.mean, tests.p_adjusted, tests.simultaneous_low, tests.simultaneous_high, tests.n_units, 0.01
    ) as verdict,
    tests.smallest_detectable,
    if(spread.n_tasks > 1, spread.same_tasks_error, tests.standard_error) as same_tasks_error,
    if(spread.n_tasks > 1, spread.same_tasks_low, tests.low) as same_tasks_low,
    if(spread.n_tasks > 1, spread.same_tasks_high, tests.high) as same_tasks_high,
    if(spread.n_tasks > 1, spread.same_tasks_p, tests.p) as same_tasks_p,
    if(spread.n_tasks > 1, spread.same_tasks_p_adjusted, tests.p_adjusted) as same_tasks_p_adjusted,
    if(
        spread.n_tasks > 1,
        verdict(spread.mean, spread.same_tasks_p_adjusted, null, null, spread.n_rows, 0.01),
        verdict(
            tests.estimate, tests.p_adjusted, tests.simultaneous_low, tests.simultaneous_high, tests.n_units, 0.01
        )
    ) as same_tasks_verdict,
    if(spread.n_tasks > 1, 'tasks', 'rows') as unit,
    tests.n_units,
    spread.n_tasks,
    coalesce(found.n_tasks_higher, 0) as n_tasks_higher,
    coalesce(found.n_tasks_lower, 0) as n_tasks_lower,
    spread.n_rows,
    spread.against_n_rows
from tests
inner join same_tasks_adjusted as spread using (family, test)
left join found using (family, test)
order by all
