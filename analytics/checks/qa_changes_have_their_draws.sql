-- Rows here: draws of a comparison that there is not, or a change of a bias that lacks them or their interval.
select distinct format('{}, {}, {}: draws of a comparison that there is not', model, dataset, heuristic) as problem
from qa_change_draws
anti join (select * from qa_debiasing where method <> 'standard') as compared using (model, dataset, heuristic)
union all
select format('{}, {}, {}: {} draws, significance_change_low {}',
              model, dataset, heuristic, coalesce(n_draws, 0), coalesce(significance_change_low::varchar, 'null')) as problem
from qa_debiasing
where
    gap_change_low is not null
    and not coalesce(n_draws > 0 and significance_change_low <= significance_change_high, false)
order by all
