-- One row per (ordered pair of models, dataset, metric, heuristic): model against other_model, on the questions that both
-- answered. Models are those of the spec and the standard readers that the run trained; qa_debiasing compares the rest.
-- metric: 'exact_match' and 'f1' of all questions (0 to 1; heuristic is null); 'gap', in points, of each heuristic: how far
-- apart the exact match of its two segments lies, whichever is better, at the threshold that both have; and 'mean' of the
-- gaps over those heuristics, which are named in heuristics. Averages over other heuristics are not compared.
-- value, other_value: the models'. From n_units on, as of sign_flip_tests: estimate is their difference (model minus
-- other), p_adjusted and band are for all pairs, metrics and heuristics of a dataset together. Its units are articles (of
-- more than 64 articles, 64 groups of them), each by its influence on the difference.
-- verdict: 'higher' is a larger value of the model: a smaller gap is less bias. The smallest effect of interest is 0.01,
-- of gaps 1 point. n_rows: questions of the comparison; n_lacking: that only one of both answered.
-- A threshold that was searched on one model's answers favours large gaps of that model: it counts only where the bias of
-- that model is more than chance (qa_bias_tests), and gaps are then compared at it as given.
-- reason: why there is no estimate: 'no question that both answered', 'no threshold', 'not measured for both', 'other
-- thresholds', 'threshold by chance', 'one article'; of the mean, of all its heuristics. Null where there is one.
with

compared as (

    select
        qa_models.number,
        qa_models.model
    from qa_models
    left join trained_models using (model)
    where not qa_models.is_trained or trained_models.method = 'standard'

),

pairs as (

    select
        firsts.model,
        seconds.model as other_model,
        dataset,
        of_first.n_rows + of_second.n_rows as n_answers
    from compared as firsts
    inner join compared as seconds on firsts.number < seconds.number
    inner join qa_by_dataset as of_first on firsts.model = of_first.model
    inner join qa_by_dataset as of_second using (dataset)
    where of_second.model = seconds.model

),

answers as (

    select
        pairs.model,
        pairs.other_model,
        dataset,
        example_id,
        qa_articles.row,
        qa_articles.article,
        own.exact_match,
        others.exact_match as other_exact_match,
        own.f1,
        others.f1 as other_f1
    from pairs
    inner join qa_articles using (dataset)
    inner join qa_predictions as own using (model, dataset, example_id)
    inner join qa_predictions as others using (dataset, example_id)
    where others.model = pairs.other_model

),

-- Sums by article of what the models got, once for all questions and once for each segment.
overall_sums as (

    select
        model,
        other_model,
        dataset,
        unnest(['exact_match', 'f1']) as metric,
        article,
        count(*) as n_rows,
        unnest([sum(exact_match order by row), sum(f1 order by row)]) as own,
        unnest([sum(other_exact_match order by row), sum(other_f1 order by row)]) as other
    from answers
    group by model, other_model, dataset, article

),

overall_means as (

    select
        model,
        other_model,
        dataset,
        metric,
        sum(own order by article) / sum(n_rows) as value,
        sum(other order by article) / sum(n_rows) as other_value,
        sum(n_rows)::bigint as n_rows,
        count(*) as n_articles
    from overall_sums
    group by all

),

shared as (

    select
        pairs.*,
        own.heuristic,
        own.threshold,
        case
            when own.threshold is null and others.threshold is null then 'no threshold'
            when own.status <> 'measured' or others.status <> 'measured' then 'not measured for both'
            when own.threshold <> others.threshold then 'other thresholds'
            when own.searched_on is not null and not coalesce(searched.is_supported, false) then 'threshold by chance'
        end as lacking
    from pairs
    inner join qa_bias_by_heuristic as own using (model, dataset)
    inner join qa_bias_by_heuristic as others using (dataset, heuristic)
    left join qa_bias_tests as searched
        on
            own.searched_on = searched.model
            and own.dataset = searched.dataset
            and own.heuristic = searched.heuristic
    where others.model = pairs.other_model

),

gap_sums as (

    select
        shared.model,
        shared.other_model,
        dataset,
        shared.heuristic,
        answers.article,
        count(*) filter (qa_attributes.value <= shared.threshold) as n_lower,
        count(*) filter (qa_attributes.value > shared.threshold) as n_higher,
        coalesce(sum(answers.exact_match) filter (qa_attributes.value <= shared.threshold), 0) as lower,
        coalesce(sum(answers.exact_match) filter (qa_attributes.value > shared.threshold), 0) as higher,
        coalesce(sum(answers.other_exact_match) filter (qa_attributes.value <= shared.threshold), 0) as other_lower,
        coalesce(sum(answers.other_exact_match) filter (qa_attributes.value > shared.threshold), 0) as other_higher
    from shared
    inner join answers using (model, other_model, dataset)
    inner join qa_attributes using (dataset, example_id, heuristic)
    where shared.lacking is null and qa_attributes.is_measured
    group by all

),

gap_means as (

    select
        model,
        other_model,
        dataset,
        heuristic,
        sum(n_lower) as n_lower,
        sum(n_higher) as n_higher,
        sum(lower) / sum(n_lower) as lower,
        sum(higher) / sum(n_higher) as higher,
        sum(other_lower) / sum(n_lower) as other_lower,
        sum(other_higher) / sum(n_higher) as other_higher,
        if(sum(lower) / sum(n_lower) >= sum(higher) / sum(n_higher), 1, -1) as side,
        if(sum(other_lower) / sum(n_lower) >= sum(other_higher) / sum(n_higher), 1, -1) as other_side,
        sum(n_lower + n_higher)::bigint as n_rows,
        count(*) as n_articles
    from gap_sums
    group by all
    having least(count(*) filter (n_lower > 0), count(*) filter (n_higher > 0)) > 1

),

-- How far each article moves the difference, the article's part of a sum that is 0.
gap_influences as (

    select
        model,
        other_model,
        dataset,
        heuristic,
        gap_sums.article,
        100 * (
            means.side * (
                (gap_sums.lower - gap_sums.n_lower * means.lower) / means.n_lower
                - (gap_sums.higher - gap_sums.n_higher * means.higher) / means.n_higher
            ) - means.other_side * (
                (gap_sums.other_lower - gap_sums.n_lower * means.other_lower) / means.n_lower
                - (gap_sums.other_higher - gap_sums.n_higher * means.other_higher) / means.n_higher
            )
        ) as influence
    from gap_sums
    inner join gap_means as means using (model, other_model, dataset, heuristic)

),

gap_numbers as (

    select
        count(*) over (partition by model, other_model, dataset) as n_heuristics,
        model,
        other_model,
        dataset,
        heuristic,
        100 * abs(lower - higher) as value,
        100 * abs(other_lower - other_higher) as other_value,
        n_rows,
        n_articles
    from gap_means

),

-- What is compared of each pair, and its numbers.
numbers as (

    select
        model,
        other_model,
        dataset,
        metric,
        '' as heuristic,
        []::varchar[] as heuristics,
        value,
        other_value,
        n_rows,
        n_articles
    from overall_means

    union all

    select
        model,
        other_model,
        dataset,
        'gap' as metric,
        heuristic,
        [heuristic] as heuristics,
        value,
        other_value,
        n_rows,
        n_articles
    from gap_numbers

    union all

    select
        model,
        other_model,
        dataset,
        'gap' as metric,
        'mean' as heuristic,
        list(heuristic order by heuristic) as heuristics,
        avg(value order by heuristic) as value,
        avg(other_value order by heuristic) as other_value,
        max(n_rows) as n_rows,
        max(n_articles) as n_articles
    from gap_numbers
    group by all

),

influences as (

    select
        model,
        other_model,
        dataset,
        metric,
        '' as heuristic,
        sums.article,
        (sums.own - sums.other - sums.n_rows * (means.value - means.other_value)) / means.n_rows as influence
    from overall_sums as sums
    inner join overall_means as means using (model, other_model, dataset, metric)
    where means.n_articles > 1

    union all

    select
        model,
        other_model,
        dataset,
        'gap' as metric,
        heuristic,
        article,
        influence
    from gap_influences

    union all

    select
        model,
        other_model,
        dataset,
        'gap' as metric,
        'mean' as heuristic,
        gap_influences.article,
        sum(gap_influences.influence / gap_numbers.n_heuristics order by gap_influences.heuristic) as influence
    from gap_influences
    inner join gap_numbers using (model, other_model, dataset, heuristic)
    group by all

),

grouped as (

    select
        model,
        other_model,
        dataset,
        metric,
        heuristic,
        article % 64 as unit,
        sum(influence order by article) as influence
    from influences
    group by all

),

-- Values whose mean is the difference, and whose variance is that of the influences.
units as (

    select
        dataset as family,
        {'model': model, 'other_model': other_model, 'metric': metric, 'heuristic': heuristic} as test,
        grouped.unit,
        numbers.value - numbers.other_value + grouped.influence
        * count(*) over (partition by model, other_model, dataset, metric, heuristic) as value
    from grouped
    inner join numbers using (model, other_model, dataset, metric, heuristic)

),

asked as (

    select
        model,
        other_model,
        dataset,
        unnest(['exact_match', 'f1']) as metric,
        '' as heuristic,
        null::varchar as lacking
    from pairs

    union all

    select
        model,
        other_model,
        dataset,
        'gap' as metric,
        heuristic,
        lacking
    from shared

    union all

    select
        model,
        other_model,
        dataset,
        'gap' as metric,
        'mean' as heuristic,
        if(count(*) > count(lacking), null, string_agg(distinct lacking, '; ' order by lacking)) as lacking
    from shared
    group by all

),

tested as (

    select
        model,
        other_model,
        dataset,
        asked.metric,
        heuristic,
        coalesce(numbers.heuristics, []) as heuristics,
        numbers.value,
        numbers.other_value,
        tests.* exclude (family, test),
        coalesce(numbers.n_rows, 0) as n_rows,
        coalesce(numbers.n_articles, 0) as n_articles,
        pairs.n_answers - 2 * coalesce(everything.n_rows, 0) as n_lacking,
        case
            when everything.n_rows is null then 'no question that both answered'
            when asked.lacking is not null then asked.lacking
            when tests.estimate is null then 'one article'
        end as reason
    from asked
    inner join pairs using (model, other_model, dataset)
    left join (select * exclude (metric) from overall_means where metric = 'f1') as everything using (model, other_model, dataset)
    left join numbers using (model, other_model, dataset, metric, heuristic)
    left join sign_flip_tests('units', 'sign_flips') as tests
        on
            asked.dataset = tests.family
            and asked.metric = tests.test.metric
            and asked.model = tests.test.model
            and asked.other_model = tests.test.other_model
            and asked.heuristic = tests.test.heuristic

),

-- Each pair the other way round, too.
both_ways as (

    select * from tested

    union all by name

    select
        * exclude (
            model, other_model, value, other_value, estimate, low, high, simultaneous_low, simultaneous_high
        ),
        other_model as model,
        model as other_model,
        other_value as value,
        value as other_value,
        -estimate as estimate,
        -high as low,
        -low as high,
        -simultaneous_high as simultaneous_low,
        -simultaneous_low as simultaneous_high
    from tested

)

select
    model,
    other_model,
    dataset,
    metric,
    nullif(heuristic, '') as heuristic,
    heuristics,
    value,
    other_value,
    n_units,
    estimate,
    standard_error,
    low,
    high,
    p,
    p_adjusted,
    simultaneous_low,
    simultaneous_high,
    smallest_detectable,
    verdict(
        estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, if(metric = 'gap', 1, 0.01)
    ) as verdict,
    n_rows,
    n_articles,
    n_lacking,
    reason
from both_ways
order by all
