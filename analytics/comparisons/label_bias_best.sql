-- One row per label-bias run: of the settings (n_demos, method) that all compared runs have, the one to deploy. That is
-- the mitigation that is supported for its tasks (label_bias_remedies) with the highest macro-F1, or without one the
-- number of demonstrations with the highest macro-F1. A choice from as many settings favours no run.
select run, n_demos, method
from (select *, count(*) over (partition by n_demos, method) as n_runs from label_bias_by_model where suite = 'all')
left join (
    select run, n_demos, method, true as is_supported
    from label_bias_remedies
    where suite = 'all' and against_method = 'none' and shown_advice in ('bias falls, accuracy rises', 'bias falls, no loss')
) using (run, n_demos, method)
where n_runs = (select count(distinct run) from label_bias_by_model) and (method = 'none' or is_supported)
qualify row_number() over (partition by run order by is_supported, macro_f1 desc nulls last, n_demos, method) = 1
order by all
