-- One row per (base, data, method, seed, dataset of any role or 'mean' of those out of distribution): the mean change
-- of F1 and exact match (0 to 1) over the n_biases biases that the method's readers address (P3's Table 1); the
-- standard readers, which address none, have no row. No interval: the readers answer the same questions.
with
outcomes as (
    select base, data, method, seed, bias, dataset, f1_change, exact_match_change
    from qa_out_of_distribution
    union all
    select base, data, method, seed, bias, 'mean' as dataset, f1_change, exact_match_change
    from qa_out_of_distribution_by_model
)

select
    base, data, method, seed, dataset, avg(f1_change order by bias) as f1_change,
    avg(exact_match_change order by bias) as exact_match_change, count(f1_change) as n_biases
from outcomes
where bias is not null
group by all
order by all
