-- One row per label-bias run: the setting (n_demos, method) that it would be deployed in. That is the mitigation that is
-- supported for its tasks (label_bias_remedies) with the highest macro-F1, or without one the number of demonstrations
-- with the highest macro-F1.
select settings.run, settings.n_demos, settings.method
from label_bias_by_model as settings
left join (from label_bias_remedies where is_supported_on_these_tasks and against_method = 'none') as supported
    using (run, suite, n_demos, method)
where suite = 'all' and (settings.method = 'none' or supported.run is not null)
qualify row_number() over (
    partition by settings.run
    order by supported.run is null, settings.macro_f1 desc nulls last, settings.n_demos, settings.method
) = 1
order by all
