-- One row per (bias model, validation set): exact match and F1 (0 to 1) after the step whose weights are kept, on the
-- biased segment and on the other one; null where the set has no question of it. f1_difference is the first minus the
-- second; the step is chosen by it. A model that knows nothing but the bias is right on the first and wrong on the
-- second (P3: 18 to 59 % and 4 to 19 % accuracy). n_biased, n_other: questions of those segments, of all validation
-- sets together, of which readers may be asked fewer while they train (train.evaluation_questions).
with
segments as (
    select
        model, step,
        regexp_extract(dataset, '^(.*) \((biased|other)\)$', ['dataset', 'segment']) as place,
        exact_match, f1
    from evaluations
)

select
    trained_models.model, trained_models.base, trained_models.data, trained_models.bias,
    segments.place.dataset as dataset, trained_models.best_step,
    any_value(segments.f1) filter (segments.place.segment = 'biased') as f1_biased,
    any_value(segments.f1) filter (segments.place.segment = 'other') as f1_other,
    f1_biased - f1_other as f1_difference,
    any_value(segments.exact_match) filter (segments.place.segment = 'biased') as exact_match_biased,
    any_value(segments.exact_match) filter (segments.place.segment = 'other') as exact_match_other,
    any_value(qa_segments.n_biased_validation) as n_biased, any_value(qa_segments.n_other_validation) as n_other
from trained_models
inner join segments on trained_models.model = segments.model and trained_models.best_step = segments.step
left join qa_segments using (base, data, bias)
where trained_models.method = 'bias_model' and segments.place.segment <> ''
group by all
order by all
