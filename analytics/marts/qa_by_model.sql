-- One row per (model, dataset): the prediction bias of a model, which is the mean of qa_bias_by_heuristic over its
-- heuristics (P3's average), in points. bias_significance is over the n_measurable of n_heuristics that have one, named
-- in measurable: averages over other heuristics are not comparable. worse_high is over the n_with_groups that have a
-- threshold. Like each significance, its mean has no interval. n_significant: above 0. n_rows: questions answered.
select
    model,
    dataset,
    avg(bias_significance order by heuristic) as bias_significance,
    avg(worse_high order by heuristic) as worse_high,
    avg(bias_significance_f1 order by heuristic) as bias_significance_f1,
    avg(worse_high_f1 order by heuristic) as worse_high_f1,
    coalesce(list(heuristic order by heuristic) filter (bias_significance is not null), []) as measurable,
    count(*) as n_heuristics,
    count(bias_significance) as n_measurable,
    count(worse_high) as n_with_groups,
    count_if(bias_significance > 0)::bigint as n_significant,
    any_value(n_rows) as n_rows
from qa_bias_by_heuristic
group by all
order by all
