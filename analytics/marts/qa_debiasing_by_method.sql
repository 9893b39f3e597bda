-- One row per (base, data, method, seed, in-distribution dataset): qa_debiasing's means over the n_heuristics
-- heuristics that the method's readers address, each measured on the reader that addresses it (P3's averages), in
-- points. Where the reader or its standard one was given up or is not measured, a heuristic takes no part. standard_*:
-- of the standard readers, over the same heuristics. worse_high: over those where both have a threshold.
-- n_nearly_broken: readers among them whose low significance is no success. No interval: the readers answer the same
-- questions.
with
addressed as (
    select *, worse_high_change is not null as has_both
    from qa_debiasing
    semi join (select dataset from qa_out_of_distribution where role = 'in_distribution') as inside using (dataset)
    where is_addressed and significance_change is not null
)

select
    base, data, method, seed, dataset,
    avg(columns('^(bias_significance|standard_significance|significance_change)$') order by heuristic) as "\1",
    avg(columns('^(worse_high|standard_worse_high)$') order by heuristic) filter (has_both) as "\1",
    count(*) as n_heuristics, count(*) filter (is_nearly_broken) as n_nearly_broken
from addressed
group by all
order by all
