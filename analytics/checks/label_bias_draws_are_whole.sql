-- Rows here: a mean over tasks outside the interval that the draws of tasks give it, or a difference outside its own.
with
intervals as (
    select
        format('{}, n_demos {}, {}', suite, n_demos, method) as place,
        unnest(['macro_f1', 'accuracy', 'rsd', 'bias_score']) as metric,
        unnest([macro_f1, accuracy, rsd, bias_score]) as estimate,
        unnest([macro_f1_low, accuracy_low, rsd_low, bias_score_low]) as low,
        unnest([macro_f1_high, accuracy_high, rsd_high, bias_score_high]) as high
    from label_bias_by_model
    where unit = 'tasks'
    union all
    select
        format('{}, n_demos {}, {} against {} at {}', suite, n_demos, method, against_method, against_n_demos) as place,
        metric, estimate, low, high
    from label_bias_verdicts
)

select format('{}: {}', place, {'metric': metric, 'estimate': estimate, 'low': low, 'high': high}::varchar) as problem
from intervals
where not coalesce(estimate between low - 1e-9 and high + 1e-9, low is null and high is null)
order by all
