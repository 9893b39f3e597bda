-- One row per (model, dataset): the prediction bias of a model, which is the mean of qa_bias_by_heuristic over its
-- heuristics (P3's average), in points. bias_significance is over the n_measurable of n_heuristics that have one, named
-- in measurable, that of F1 over the n_measurable_f1 that have a threshold and groups: averages over other heuristics
-- are not comparable (qa_model_comparisons compares over the same ones). worse_high is over the n_with_groups that have
-- a threshold. n_significant: that are more than chance (qa_bias_tests.is_supported); null where that is not known.
-- bias_significance_low, bias_significance_high: the middle 95 % of n_draws bootstrap samples of whole articles, of the
-- mean of expected_significance at the thresholds chosen, which are taken as given (0 without one); null with a single
-- article. bias_significance_null, bias_significance_null_high: the same average on permuted answers, where there is no
-- bias, on average and in 95 % of the permutations at most (qa_bias_tests). It is above 0 there, as a search finds
-- something in noise, and never below. is_above_null: at most 5 % of the permutations have an average that is as large;
-- null where answers were not permuted. bias_significance_low is 0 where it is not. n_rows: questions answered.
with
draws as (
    select
        model, dataset, draw, sum(significance order by heuristic) as significance, count(significance) as n_with_both
    from (
        select
            qa_bias_draws.*,
            expected_significance(
                qa_bias_draws.lower, biases.n_lower, qa_bias_draws.higher, biases.n_higher, sample, replacement
            ) as significance
        from qa_bias_draws
        inner join qa_bias_by_heuristic as biases using (model, dataset, heuristic)
        cross join qa_settings
        where biases.status = 'measured'
    )
    group by all
),

averages as (
    select
        model, dataset,
        avg(columns('^((?:bias_significance|worse_high)(?:_f1)?)$') order by heuristic) as "\1",
        coalesce(list(heuristic order by heuristic) filter (biases.bias_significance is not null), []) as measurable,
        count(*) as n_heuristics, count(biases.bias_significance) as n_measurable,
        count(*) filter (biases.status = 'measured') as n_with_segments,
        count(biases.worse_high) as n_with_groups,
        if(
            count(tests.is_supported) = count(biases.bias_significance), count(*) filter (tests.is_supported), null
        ) as n_significant,
        any_value(biases.n_rows) as n_rows,
        avg(tests.null_mean order by heuristic) filter (biases.bias_significance is not null) as bias_significance_null,
        count(biases.bias_significance_f1) as n_measurable_f1
    from qa_bias_by_heuristic as biases
    inner join qa_bias_tests as tests using (model, dataset, heuristic)
    group by model, dataset
),

null_averages as (
    select model, dataset, draw, avg(nulls.significance order by heuristic) as average
    from qa_search_nulls as nulls
    inner join qa_bias_by_heuristic as biases using (model, dataset, heuristic)
    where biases.bias_significance is not null
    group by all
),

nulls as (
    select
        model, dataset,
        quantile_cont(draws.average, 0.95) filter (draws.draw > 0) as bias_significance_null_high,
        avg((draws.average >= observed.average - 1e-9)::int) <= 0.05 as is_above_null
    from null_averages as draws
    inner join null_averages as observed using (model, dataset)
    where observed.draw = 0
    group by all
),

intervals as (
    select
        model, dataset,
        quantile_cont(draws.significance / averages.n_measurable, [0.025, 0.975]) as bounds,
        count(*) as n_draws
    from draws
    inner join averages using (model, dataset)
    inner join qa_by_dataset using (model, dataset)
    where draws.n_with_both = averages.n_with_segments and qa_by_dataset.n_articles > 1
    group by all
)

select
    averages.model, dataset, averages.bias_significance, averages.worse_high, averages.bias_significance_f1,
    averages.worse_high_f1, averages.measurable, averages.n_heuristics, averages.n_measurable, averages.n_with_groups,
    averages.n_significant, averages.n_rows,
    intervals.bounds[1] * if(nulls.is_above_null is false, 0, 1) as bias_significance_low,
    intervals.bounds[2] as bias_significance_high, averages.bias_significance_null, averages.n_measurable_f1,
    coalesce(intervals.n_draws, 0) as n_draws, nulls.bias_significance_null_high, nulls.is_above_null
from averages
left join intervals using (model, dataset)
left join nulls using (model, dataset)
order by all
