-- One row per (model, suite, n_demos, method, against_n_demos, against_method): what a remedy gains and what it costs.
-- Of rsd, bias_score, accuracy and macro_f1: *_before, without it; the mean with it; *_verdict, the word that the
-- difference supports for other tasks like these, and *_same_tasks_verdict, for other rows of these very tasks
-- (label_bias_verdicts). majority_accuracy: of always giving the most frequent gold label; is_below_majority: accuracy
-- is below that. n_prompts: calibration inputs that are scored. is_supported, by *_verdict, and
-- is_supported_on_these_tasks, by *_same_tasks_verdict: rsd or bias_score is lower and neither is higher, neither
-- accuracy nor macro_f1 is lower, accuracy is not below the majority class, and the answers are not nearly all the same
-- in every task. n_tasks_constant: of n_tasks, those where they are.
-- n_units: those that the test of rsd is over. *_n_needed: units like these (tasks, or rows of one task) of which a test
-- alone finds a difference of 0.05 with a power of 80 %, as a rough rule: the units of this test times
-- (smallest_detectable / 0.05) ^ 2, rounded up, and at least the 6 of which a test can reach 5 %.
with

words as (

    select
        model,
        suite,
        n_demos,
        method,
        against_n_demos,
        against_method,
        any_value(unit) as unit,
        any_value(n_units) filter (metric = 'rsd') as n_units,
        any_value(verdict) filter (metric = 'rsd') as rsd_verdict,
        any_value(same_tasks_verdict) filter (metric = 'rsd') as rsd_same_tasks_verdict,
        any_value(verdict) filter (metric = 'bias_score') as bias_score_verdict,
        any_value(same_tasks_verdict) filter (metric = 'bias_score') as bias_score_same_tasks_verdict,
        any_value(verdict) filter (metric = 'accuracy') as accuracy_verdict,
        any_value(same_tasks_verdict) filter (metric = 'accuracy') as accuracy_same_tasks_verdict,
        any_value(verdict) filter (metric = 'macro_f1') as macro_f1_verdict,
        any_value(same_tasks_verdict) filter (metric = 'macro_f1') as macro_f1_same_tasks_verdict,
        any_value(greatest(6, ceil(n_units * (smallest_detectable / 0.05) ** 2))) filter (
            metric = 'rsd' and smallest_detectable > 0
        )::bigint as rsd_n_needed,
        any_value(greatest(6, ceil(n_units * (smallest_detectable / 0.05) ** 2))) filter (
            metric = 'accuracy' and smallest_detectable > 0
        )::bigint as accuracy_n_needed
    from label_bias_verdicts
    group by all

),

inputs as (

    select
        prompts.n_demos,
        method_name(adaptations.adaptation, calibration_variants.method) as method,
        count(*) as n_prompts
    from prompts
    inner join calibration_variants using (purpose)
    cross join (select unnest(adaptations) as adaptation from run_settings) as adaptations
    group by all

)

select
    words.model,
    words.suite,
    words.n_demos,
    words.method,
    words.against_n_demos,
    words.against_method,
    against.rsd as rsd_before,
    own.rsd,
    words.rsd_verdict,
    words.rsd_same_tasks_verdict,
    against.bias_score as bias_score_before,
    own.bias_score,
    words.bias_score_verdict,
    words.bias_score_same_tasks_verdict,
    against.accuracy as accuracy_before,
    own.accuracy,
    words.accuracy_verdict,
    words.accuracy_same_tasks_verdict,
    against.macro_f1 as macro_f1_before,
    own.macro_f1,
    words.macro_f1_verdict,
    words.macro_f1_same_tasks_verdict,
    own.majority_accuracy,
    own.accuracy < own.majority_accuracy as is_below_majority,
    coalesce(inputs.n_prompts, 0) as n_prompts,
    coalesce(
        list_contains([words.rsd_verdict, words.bias_score_verdict], 'lower')
        and not list_contains([words.rsd_verdict, words.bias_score_verdict], 'higher')
        and not list_contains([words.accuracy_verdict, words.macro_f1_verdict], 'lower')
        and own.accuracy >= own.majority_accuracy
        and own.n_tasks_constant < own.n_tasks,
        false
    ) as is_supported,
    coalesce(
        list_contains([words.rsd_same_tasks_verdict, words.bias_score_same_tasks_verdict], 'lower')
        and not list_contains([words.rsd_same_tasks_verdict, words.bias_score_same_tasks_verdict], 'higher')
        and not list_contains([words.accuracy_same_tasks_verdict, words.macro_f1_same_tasks_verdict], 'lower')
        and own.accuracy >= own.majority_accuracy
        and own.n_tasks_constant < own.n_tasks,
        false
    ) as is_supported_on_these_tasks,
    own.n_tasks_constant,
    own.n_tasks,
    words.unit,
    words.n_units,
    words.rsd_n_needed,
    words.accuracy_n_needed
from words
inner join label_bias_by_model as own using (model, suite, n_demos, method)
inner join label_bias_by_model as against
    on
        words.model = against.model
        and words.suite = against.suite
        and words.against_n_demos = against.n_demos
        and words.against_method = against.method
left join inputs
    on
        words.n_demos = inputs.n_demos
        and words.method = inputs.method
order by all
