-- One row per majority-bias run: the setting (n_demos, instruction, predict, method) to deploy, which is the one with the
-- highest mean weighted F1 of those that majority_remedies supports, or without any of those without mitigation.
select settings.run, n_demos, instruction, predict, method
from majority_by_model as settings
left join (select * from majority_remedies where is_supported) as supported
    using (run, n_demos, instruction, predict, method)
where method = 'none' or supported.run is not null
qualify row_number() over (
    partition by settings.run
    order by supported.run is null, settings.mean_f1 desc nulls last, n_demos, not instruction, predict, method
) = 1
order by all
