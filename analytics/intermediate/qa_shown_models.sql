-- One row per model that pages show on every shortcut: those of the spec, then the standard readers that the run
-- trained; debiased readers are compared with these (qa_debiasing). place: its position, 1-based.
select qa_models.model, row_number() over (order by qa_models.is_trained, qa_models.number) as place
from qa_models
left join trained_models using (model)
where coalesce(trained_models.method, 'standard') = 'standard'
order by all
