-- Rows here: a metric of a QA-bias run outside its range, or null where there are rows to measure.
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
            'n_missing': n_missing
        }::varchar) as problem
    from qa_by_dataset
    where
        not coalesce(0 <= exact_match_low and exact_match_high <= 1, false)
        or not coalesce(exact_match between exact_match_low - 1e-9 and exact_match_high + 1e-9, false)
        or not coalesce(f1 between 0 and 1, false)
        or not coalesce(f1 between f1_low - 1e-9 and f1_high + 1e-9, n_rows = 1)
        or not coalesce(n_rows > 0 and n_missing >= 0, false)

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
        or not coalesce(difference between -100 and 100 and difference_low <= difference_high, status <> 'measured')
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

)

select * from datasets_out_of_range
union all
select * from biases_out_of_range
union all
select * from curves_of_other_rows
order by all
