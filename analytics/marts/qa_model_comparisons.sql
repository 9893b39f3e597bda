-- One row per (ordered pair of models, dataset, metric, heuristic): other_model against model, on the questions that
-- both answered. Models are those of the spec and the standard readers that the run trained; qa_debiasing compares the
-- rest. metric, from 0 to 1: 'exact_match' and 'f1' of all questions (heuristic is null); 'gap' of each heuristic: how
-- far apart the exact match of its two segments lies, whichever is better, at the threshold that both have; and 'mean'
-- of the gaps over those heuristics, which are named in heuristics. Averages over other heuristics are not compared.
-- value, other_value: the models'. estimate: other_value minus value, as in qa_bias_comparison. From n_units on, as of
-- two_model_tests over articles; p_adjusted and band are for all pairs, datasets, metrics and heuristics together.
-- verdict: of other_model against model: 'higher' is a larger value of it; a larger gap is more bias. The smallest
-- effect of interest is 0.01. n_rows: questions of the comparison, n_articles: theirs; n_lacking: questions that only
-- one of both answered. A threshold that was searched on one model's answers favours large gaps of that model: it
-- counts only where the bias of that model is more than chance (qa_bias_tests), and gaps are then compared at it as
-- given. reason: why there is no estimate: 'no question that both answered', 'no threshold', 'not measured for both',
-- 'other thresholds', 'threshold by chance', 'one article'; of the mean, of all its heuristics. Null where there is
-- one.
with
asked as (
    select
        model, other_model, dataset, unnest(['exact_match', 'f1']) as metric, '' as heuristic,
        null::double as threshold, null::varchar as lacking
    from qa_model_pairs
    union all
    select
        pairs.model, pairs.other_model, dataset, 'gap' as metric, own.heuristic, own.threshold,
        case
            when own.threshold is null and others.threshold is null then 'no threshold'
            when own.status <> 'measured' or others.status <> 'measured' then 'not measured for both'
            when own.threshold <> others.threshold then 'other thresholds'
            when own.searched_on is not null and not coalesce(searched.is_supported, false) then 'threshold by chance'
        end as lacking
    from qa_model_pairs as pairs
    inner join qa_bias_by_heuristic as own using (model, dataset)
    inner join qa_bias_by_heuristic as others using (dataset, heuristic)
    left join qa_bias_tests as searched
        on own.searched_on = searched.model and own.dataset = searched.dataset and own.heuristic = searched.heuristic
    where others.model = pairs.other_model
),

-- Sums of exact match are whole numbers, in any order.
sums as (
    select
        model, other_model, dataset, unnest(['exact_match', 'f1']) as metric, '' as heuristic, article,
        count(*) as n_lower, 0 as n_higher, unnest([sum(exact_match), sum(f1 order by row)]) as lower, 0 as higher,
        unnest([sum(other_exact_match), sum(other_f1 order by row)]) as other_lower,
        0 as other_higher
    from qa_model_pair_answers
    group by model, other_model, dataset, article
    union all
    select
        model, other_model, dataset, 'gap' as metric, heuristic, article,
        count(*) filter (value <= threshold) as n_lower, count(*) filter (value > threshold) as n_higher,
        coalesce(sum(exact_match) filter (value <= threshold), 0) as lower,
        coalesce(sum(exact_match) filter (value > threshold), 0) as higher,
        coalesce(sum(other_exact_match) filter (value <= threshold), 0) as other_lower,
        coalesce(sum(other_exact_match) filter (value > threshold), 0) as other_higher
    from asked
    inner join qa_model_pair_answers using (model, other_model, dataset)
    inner join qa_attributes using (dataset, example_id, heuristic)
    where metric = 'gap' and lacking is null and is_measured
    group by all
),

-- side: of a gap, which segment a model answers better.
totals as (
    select
        model, other_model, dataset, metric, heuristic,
        sum(lower order by article) / sum(n_lower) - coalesce(sum(higher) / nullif(sum(n_higher), 0), 0) as difference,
        sum(other_lower order by article) / sum(n_lower)
        - coalesce(sum(other_higher) / nullif(sum(n_higher), 0), 0) as other_difference,
        if(difference < 0, -1, 1) as side, if(other_difference < 0, -1, 1) as other_side,
        sum(n_lower + n_higher)::bigint as n_rows, count(*) as n_articles
    from sums
    group by all
    having metric <> 'gap' or least(count(*) filter (n_lower > 0), count(*) filter (n_higher > 0)) > 1
),

differences as (
    select
        {'model': model, 'other_model': other_model, 'dataset': dataset} as family,
        {'metric': metric, 'heuristic': heuristic} as test, article as unit, n_lower, n_higher,
        other_side * other_lower - side * lower as lower, other_side * other_higher - side * higher as higher
    from sums
    inner join totals using (model, other_model, dataset, metric, heuristic)
    where n_articles > 1
),

parts as (
    select unnest(family), unnest(test), unit, part, moved
    from two_model_parts('differences')
),

units as (
    select
        'all' as family,
        {'model': model, 'other_model': other_model, 'dataset': dataset, 'metric': metric, 'heuristic': heuristic} as test,
        dense_rank() over (order by dataset, unit) - 1 as unit,
        part, moved
    from (
        from parts
        union all
        select
            model, other_model, dataset, metric, 'mean' as heuristic, unit,
            sum(part order by heuristic) / any_value(n_heuristics) as part,
            sum(moved order by heuristic) / any_value(n_heuristics) as moved
        from parts
        inner join (
            select model, other_model, dataset, metric, count(*) as n_heuristics
            from totals
            group by all
        ) using (model, other_model, dataset, metric)
        where metric = 'gap'
        group by model, other_model, dataset, metric, unit
    )
),

-- What is compared of each pair, and its numbers.
numbers as (
    select
        model, other_model, dataset, metric, heuristic, lacking,
        if(side is null or heuristic = '', [], [heuristic]) as heuristics,
        side * difference as value, other_side * other_difference as other_value, n_rows, n_articles
    from asked
    left join totals using (model, other_model, dataset, metric, heuristic)
),

with_means as (
    from numbers
    union all
    select
        model, other_model, dataset, metric, 'mean' as heuristic,
        if(count(*) > count(lacking), null, string_agg(distinct lacking, '; ' order by lacking)) as lacking,
        flatten(list(heuristics order by heuristic)) as heuristics, avg(value order by heuristic) as value,
        avg(other_value order by heuristic) as other_value, max(n_rows) as n_rows, max(n_articles) as n_articles
    from numbers
    where metric = 'gap'
    group by all
),

tested as (
    select
        numbers.*, tests.* exclude (family, test), pairs.n_answers,
        max(numbers.n_rows) filter (metric = 'f1') over (partition by model, other_model, dataset) as n_shared
    from with_means as numbers
    inner join qa_model_pairs as pairs using (model, other_model, dataset)
    left join two_model_tests('units', 'sign_flips') as tests
        on tests.test = {
            'model': model, 'other_model': other_model, 'dataset': dataset, 'metric': metric,
            'heuristic': numbers.heuristic
        }
)

select
    model, other_model, dataset, metric, nullif(heuristic, '') as heuristic, heuristics, value, other_value, n_units,
    estimate, standard_error, low, high, p, p_adjusted, simultaneous_low, simultaneous_high, smallest_detectable,
    verdict(estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, least_effect(metric)) as verdict,
    coalesce(n_rows, 0) as n_rows, coalesce(n_articles, 0) as n_articles,
    n_answers - 2 * coalesce(n_shared, 0) as n_lacking,
    case
        when n_shared is null then 'no question that both answered'
        when lacking is not null then lacking
        when estimate is null then 'one article'
    end as reason
from both_directions('tested')
order by all
