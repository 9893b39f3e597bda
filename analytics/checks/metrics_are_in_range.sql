-- Rows here: a metric of a task outside its range, or null where there are rows to measure; or an interval or p-value of
-- a task, model or difference that cannot be one.
with

tasks_out_of_range as (

    select
        format('{}, n_demos {}, demo_set {}, {}: {}', task, n_demos, demo_set, method, {
            'macro_f1': macro_f1,
            'accuracy': accuracy,
            'rsd': rsd,
            'rsd_floor': rsd_floor,
            'rsd_excess': rsd_excess,
            'rsd_p': rsd_p,
            'bias_score': bias_score,
            'bias_score_floor': bias_score_floor,
            'bias_score_p': bias_score_p,
            'bias_score_of_perfect': bias_score_of_perfect,
            'largest_bias_score': 1 - 1 / n_labels,
            'majority_accuracy': majority_accuracy,
            'majority_macro_f1': majority_macro_f1,
            'share_most_frequent': share_most_frequent,
            'n_main_gold_labels': n_main_gold_labels
        }::varchar) as problem,
        task,
        n_demos,
        demo_set,
        method
    from label_bias_by_task
    where
        n_rows = 0
        or not coalesce(macro_f1 between 0 and 1, false)
        or not coalesce(accuracy between 0 and 1, false)
        or not coalesce(rsd >= 0 and isfinite(rsd), false)
        or not coalesce(bias_score between 0 and 1 - 1 / n_labels + 1e-9, n_bias_score_rows = 0)
        or not coalesce(n_main_gold_labels between 1 and n_labels, false)
        or not coalesce(
            rsd_floor > 0 and rsd_excess between 0 and rsd + 1e-9 and rsd_p between 0 and 1,
            n_main_gold_labels = 1 or accuracy = 0 or accuracy = 1
        )
        or not coalesce(bias_score_floor >= 0, n_gold_labels < n_labels or n_bias_score_rows = n_gold_labels)
        or not coalesce(bias_score_p between 0 and 1, coalesce(n_fewest_bias_score_rows < 5, true))
        or not coalesce(bias_score_of_perfect between 0 and 1 - 1 / n_labels + 1e-9, n_bias_score_rows = 0)
        or not coalesce(majority_accuracy between 1 / n_main_gold_labels - 1e-9 and 1, false)
        or not coalesce(majority_macro_f1 > 0 and majority_macro_f1 <= majority_accuracy + 1e-9, false)
        or not coalesce(share_most_frequent between 1 / n_labels - 1e-9 and 1, false)

),

-- Of RSD and BiasScore of a task, what rows leave without their noise may lie below what is measured.
intervals as (

    select
        format('label_bias_by_task_over_sets: {}, n_demos {}, method {}', task, n_demos, method) as place,
        task,
        n_demos,
        method,
        unnest(['macro_f1', 'accuracy', 'rsd', 'bias_score']) as metric,
        unnest([macro_f1, accuracy, rsd_low, bias_score_low]) as estimate,
        unnest([macro_f1_low, accuracy_low, abs(rsd_low), abs(bias_score_low)]) as low,
        unnest([macro_f1_high, accuracy_high, rsd_high, bias_score_high]) as high
    from label_bias_by_task_over_sets

    union all

    select
        format('label_bias_by_model: {}, n_demos {}, method {}', suite, n_demos, method) as place,
        null as task,
        n_demos,
        method,
        unnest(['macro_f1', 'accuracy', 'rsd', 'bias_score']) as metric,
        unnest([macro_f1, accuracy, rsd, bias_score]) as estimate,
        unnest([macro_f1_low, accuracy_low, rsd_low, bias_score_low]) as low,
        unnest([macro_f1_high, accuracy_high, rsd_high, bias_score_high]) as high
    from label_bias_by_model
    where unit = 'tasks'

    union all

    select
        format(
            'label_bias_verdicts: {}, n_demos {}, method {} against {} at {}',
            suite,
            n_demos,
            method,
            against_method,
            against_n_demos
        ) as place,
        null as task,
        n_demos,
        method,
        metric,
        estimate,
        low,
        high
    from label_bias_verdicts

),

verdicts as (

    select
        format(
            'label_bias_verdicts: {}, n_demos {}, method {} against {} at {}: {}',
            suite,
            n_demos,
            method,
            against_method,
            against_n_demos,
            {'metric': metric, 'estimate': estimate, 'p': p, 'p_adjusted': p_adjusted, 'verdict': verdict}::varchar
        ) as problem,
        n_demos,
        method
    from label_bias_verdicts
    where
        not coalesce(p between 0 and 1 and p_adjusted between p and 1, p is null and p_adjusted is null)
        or (verdict is null) <> (estimate is null)

)

from tasks_out_of_range

union all by name

select
    format('{}: {}', place, {'metric': metric, 'estimate': estimate, 'low': low, 'high': high}::varchar) as problem,
    task,
    n_demos,
    method
from intervals
where not coalesce(estimate between low - 1e-9 and high + 1e-9, low is null and high is null)

union all by name

from verdicts

order by
    demo_set nulls last,
    task,
    n_demos,
    method,
    problem
