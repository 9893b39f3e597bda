-- Rows here: a bias without its test, or with rows that its curve or segments lack; an average without its null.
select
    format('{}, {}, {}: {} rows of {} in the segments, {} in the bins', biases.model, biases.dataset, biases.heuristic,
           n_lower + n_higher + n_unmeasured, biases.n_rows, coalesce(sum(qa_curves.n_rows), 0)) as problem
from qa_bias_by_heuristic as biases
left join qa_curves using (model, dataset, heuristic)
group by biases.model, biases.dataset, biases.heuristic, threshold, n_lower, n_higher, n_unmeasured, biases.n_rows
having
    coalesce(sum(qa_curves.n_rows), 0) <> biases.n_rows - n_unmeasured
    or not coalesce(n_lower + n_higher + n_unmeasured = biases.n_rows, threshold is null)
union all
select format('{}, {}, {}: significance {} with {} permutations',
              model, dataset, heuristic, coalesce(bias_significance::varchar, 'null'), coalesce(n_permutations, 0)) as problem
from qa_bias_tests
where
    (bias_significance is null) <> (is_supported is null)
    or not coalesce(n_permutations > 0 and p <= p_adjusted, bias_significance is null)
union all
select format('{}, {}, mean of heuristics: is_above_null {}, of {}',
              model, dataset, coalesce(is_above_null::varchar, 'null'), coalesce(bias_significance_null::varchar, 'null')) as problem
from qa_by_model
where (is_above_null is null) <> (bias_significance_null is null)
order by all
