-- One row per majority-bias run: of the settings (n_demos, instruction, predict, method) that all compared runs have, the
-- one to deploy, as in label_bias_best: by majority_remedies and the highest mean weighted F1.
select run, n_demos, instruction, predict, method
from (select *, count(*) over (partition by n_demos, instruction, predict, method) as n_runs from majority_by_model)
left join (select run, n_demos, instruction, predict, method, is_supported from majority_remedies where is_supported)
    using (run, n_demos, instruction, predict, method)
where n_runs = (select count(distinct run) from majority_by_model) and (method = 'none' or is_supported)
qualify row_number() over (partition by run order by is_supported, mean_f1 desc nulls last, n_demos, not instruction, predict, method) = 1
order by all
