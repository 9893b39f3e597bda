-- Rows here: a metric of a QA-bias run outside its range, or null where there are rows to measure; a bias without a test.
with

datasets_out_of_range as (

    select
        format('{}, {}: {}', model, dataset, {
            'exact_match': exact_match,
            'exact_match_low': exact_match_low,
            'exact_match_high': exact_match_high,
            'f1': f1,
            'f1_low': f1_low,
            'f1_high': f1_high,
            'n_rows': n_rows,
            'n_missing': n_missing,
            'n_articles': n_articles,
            'share_most_frequent': share_most_frequent
        }::varchar) as problem
    from qa_by_dataset
    where
        not coalesce(exact_match between 0 and 1, false)
        or not coalesce(0 <= exact_match_low and exact_match_high <= 1, n_articles = 1)
        or not coalesce(exact_match between exact_match_low - 1e-9 and exact_match_high + 1e-9, n_articles = 1)
        or not coalesce(f1 between 0 and 1, false)
        or not coalesce(f1 between f1_low - 1e-9 and f1_high + 1e-9, n_articles = 1)
        or not coalesce(n_rows > 0 and n_missing >= 0 and n_articles between 1 and n_rows, false)
        or not coalesce(share_most_frequent between 1 / n_rows - 1e-9 and 1, false)

),

biases_out_of_range as (

    select
        format('{}, {}, {}: {}', model, dataset, heuristic, {
            'status': status,
            'threshold': threshold,
            'n_lower': n_lower,
            'n_higher': n_higher,
            'n_unmeasured': n_unmeasured,
            'n_rows': n_rows,
            'bias_significance': bias_significance,
            'lower_low': lower_low,
            'lower_high': lower_high,
            'higher_low': higher_low,
            'higher_high': higher_high,
            'difference': difference
        }::varchar) as problem
    from qa_bias_by_heuristic
    where
        not coalesce(bias_significance between 0 and 100, status in ('groups too small', 'no threshold to try'))
        or (status = 'not significant' and bias_significance <> 0)
        or not coalesce(n_lower + n_higher + n_unmeasured = n_rows, threshold is null)
        or not coalesce(0 <= lower_low and lower_low <= lower_high and lower_high <= 100, status <> 'measured')
        or not coalesce(0 <= higher_low and higher_low <= higher_high and higher_high <= 100, status <> 'measured')
        or not coalesce(difference between -100 and 100, status <> 'measured')
        or not coalesce(
            difference between difference_low - 1e-9 and difference_high + 1e-9,
            difference_low is null and difference_high is null
        )
        or not coalesce(difference = lower_exact_match - higher_exact_match, status <> 'measured')

),

curves_of_other_rows as (

    select
        format('{}, {}, {}: {} rows in the bins, {} measured',
               biases.model,
               biases.dataset,
               biases.heuristic,
               coalesce(sum(qa_curves.n_rows), 0),
               any_value(biases.n_rows - biases.n_unmeasured)) as problem
    from qa_bias_by_heuristic as biases
    left join qa_curves using (model, dataset, heuristic)
    group by biases.model, biases.dataset, biases.heuristic
    having coalesce(sum(qa_curves.n_rows), 0) <> any_value(biases.n_rows - biases.n_unmeasured)

),

-- Every heuristic that is measured has its null; where it has draws too, an average its interval.
tests_out_of_range as (

    select
        format('{}, {}, {}: {}', model, dataset, heuristic, {
            'bias_significance': bias_significance,
            'expected_significance': expected_significance,
            'null_mean': null_mean,
            'null_high': null_high,
            'p': p,
            'p_adjusted': p_adjusted,
            'is_supported': is_supported,
            'n_permutations': n_permutations
        }::varchar) as problem
    from qa_bias_tests
    where
        (bias_significance is null) <> (is_supported is null)
        or not coalesce(expected_significance between 0 and 100, bias_significance is null)
        or not coalesce(0 <= null_mean and null_mean <= 100, bias_significance is null)
        or not coalesce(0 <= null_high and null_high <= 100, bias_significance is null)
        or not coalesce(0 < p and p <= p_adjusted and p_adjusted <= 1, bias_significance is null)
        or not coalesce(n_permutations > 0, bias_significance is null)

),

averages_out_of_range as (

    select
        format('{}, {}, mean of heuristics: {}', model, dataset, {
            'bias_significance': bias_significance,
            'bias_significance_low': bias_significance_low,
            'bias_significance_high': bias_significance_high,
            'bias_significance_null': bias_significance_null,
            'bias_significance_null_high': bias_significance_null_high,
            'is_above_null': is_above_null,
            'n_significant': n_significant,
            'n_measurable': n_measurable
        }::varchar) as problem
    from qa_by_model
    where
        not coalesce(bias_significance between 0 and 100, n_measurable = 0)
        or not coalesce(bias_significance_null between 0 and 100, n_measurable = 0)
        or not coalesce(bias_significance_null_high between 0 and 100, n_measurable = 0)
        or (is_above_null is null) <> (bias_significance_null is null)
        or not coalesce(n_significant between 0 and n_measurable, false)
        or (bias_significance_low is null) <> (bias_significance_high is null)
        or not coalesce(
            0 <= bias_significance_low
            and bias_significance_low <= bias_significance_high
            and bias_significance_high <= 100,
            bias_significance_low is null
        )

)

select * from datasets_out_of_range
union all
select * from tests_out_of_range
union all
select * from averages_out_of_range
union all
select * from biases_out_of_range
union all
select * from curves_of_other_rows
order by all
