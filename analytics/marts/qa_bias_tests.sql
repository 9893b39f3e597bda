-- One row per (model, dataset, heuristic) of qa_bias_by_heuristic: is its significance more than chance? Null where it
-- could not be measured, and of runs whose answers were not permuted. expected_significance: by the closed form, in
-- points, that of the whole search on the model's answers where the threshold was searched on them (is_searched), else
-- at the threshold. null_mean and null_high (95 % quantile): the same over n_permutations of the answers within
-- articles, of all models to a question together, each with the whole search again (Lausen & Schumacher 1992): where
-- another model's answers choose the threshold, theirs choose it each time, and where they choose none, the model's
-- own. Where the spec fixes the threshold, nothing is searched. p: the share of all these that are at least as large.
-- p_adjusted: for all models and heuristics of the dataset together (holm), so that the chance of any wrong bias among
-- them is 5 %. Permutations are as many as it takes for the smallest p_adjusted to be 2 % or less. smallest_detectable:
-- about the significance, in points, that such a test alone finds in four of five runs: null_high and 0.84 standard
-- errors of the difference, by its interval. is_supported: the bias may be called significant: bias_significance is
-- above 0, p_adjusted at most 5 %, and the plain interval of the difference, which is clustered by article, excludes 0.
with
nulls as (
    select
        model, dataset, heuristic, any_value(observed.significance) as expected_significance,
        avg(draws.significance order by draws.draw) filter (draws.draw > 0) as null_mean,
        quantile_cont(draws.significance, 0.95) filter (draws.draw > 0) as null_high,
        count(*) filter (draws.draw > 0) as n_permutations,
        count(*) filter (draws.significance >= observed.significance - 1e-9) / count(*) as p
    from qa_search_nulls as draws
    inner join (select model, dataset, heuristic, significance from qa_search_nulls where draw = 0) as observed
        using (model, dataset, heuristic)
    group by model, dataset, heuristic
),

tests as (
    select dataset as family, {'model': model, 'heuristic': heuristic} as test, p
    from nulls
)

select
    model, dataset, heuristic, biases.threshold, biases.status, biases.bias_significance,
    if(biases.bias_significance is null, null, coalesce(biases.searched_on = model, false)) as is_searched,
    nulls.expected_significance, nulls.null_mean, nulls.null_high, nulls.p, adjusted.p_adjusted, biases.difference,
    biases.difference_low, biases.difference_high,
    case
        when biases.bias_significance is not null and nulls.p is not null then biases.bias_significance > 0
            and adjusted.p_adjusted <= 0.05
            and coalesce(biases.difference_low > 0 or biases.difference_high < 0, false)
    end as is_supported,
    nulls.n_permutations,
    nulls.null_high + 0.8416 * (biases.difference_high - biases.difference_low) / (2 * 1.96) as smallest_detectable
from qa_bias_by_heuristic as biases
left join nulls using (model, dataset, heuristic)
left join (select family as dataset, unnest(test), p_adjusted from holm('tests')) as adjusted
    using (model, dataset, heuristic)
order by all
