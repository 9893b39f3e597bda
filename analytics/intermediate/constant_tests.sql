-- One row per (task, format, n_demos, demo_set, method): is the setting better than the best constant answer? demo_set
-- null: over the demonstration sets. constant_p: of tests_above_constant; sets, and means over them, are a family each.
-- is_above_constant: by that and by the values (is_above_constant). n_demo_sets_not_above: sets of the setting in which
-- no value exceeds that of the constant answer. share_most_frequent: of the predictions, the most frequent one; over
-- sets the largest of theirs, as each may repeat another label.
with
places as (
    select
        *, demo_set is null as family,
        {'task': task, 'format': format, 'n_demos': n_demos, 'demo_set': demo_set, 'method': method} as place
    from label_bias_constant_differences
),

measured as (
    select task, format, n_demos, demo_set, method, accuracy, macro_f1, share_most_frequent
    from format_metrics
    union all by name
    select task, format, n_demos, method, accuracy, macro_f1, share_most_frequent
    from format_metrics_over_sets
)

select
    measured.* exclude (accuracy, macro_f1), constant_p,
    is_above_constant(constant_p, [accuracy, macro_f1], [majority_accuracy, majority_macro_f1]) as is_above_constant,
    count(*) filter (measured.demo_set is not null and not is_above_constant) over setting as n_demo_sets_not_above
from measured
inner join constant_answers using (task)
inner join tests_above_constant('places')
    on place = {'task': task, 'format': format, 'n_demos': n_demos, 'demo_set': demo_set, 'method': method}
window setting as (partition by measured.task, measured.format, measured.n_demos, measured.method)
