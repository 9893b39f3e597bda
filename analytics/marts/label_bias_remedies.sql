-- One row per (model, suite, n_demos, method, against_n_demos, against_method): gains and costs of a mitigation. Of
-- rsd, bias_score, accuracy and macro_f1: *_before, without it, in the demonstration sets that have it; the mean with it; *_verdict, the word that the
-- difference supports for other tasks like these, and *_same_tasks_verdict, for other rows of these very tasks
-- (label_bias_verdicts). majority_accuracy, majority_macro_f1: of always giving the most frequent gold label;
-- is_below_majority: accuracy is below that. is_above_constant, is_above_constant_before: the means with the
-- mitigation, and without it, are better than those (label_bias_by_model). n_prompts: calibration inputs that are
-- scored. n_tasks_constant: of n_tasks, those where nearly all answers of a demonstration set are the same. Summary of
-- these verdicts for other tasks like these (same_tasks_*: for these very tasks): accuracy_evidence: 'higher', 'lower',
-- 'no loss' where the band that holds for the whole family lies above minus least_effect (non-inferiority), else 'loss
-- not ruled out'. bias_falls_in: 'rsd and bias_score', or the one that is lower; null where neither is, or one is
-- higher. evidence: 'bias falls, accuracy rises', 'bias falls, no loss', 'bias falls, loss not ruled out', 'bias falls,
-- accuracy falls' (or macro_f1 is lower), 'mixed' (one of rsd and bias_score is lower, one higher), 'bias rises' or
-- 'not shown'. advice: 'do not use: bias rises or performance falls' where nothing is gained beside that (no bias is
-- lower, neither accuracy nor macro_f1 higher); where a bias falls, 'bias falls, no better than a constant answer', or
-- 'bias falls, not shown to be better than a constant answer' (is_above_constant); else evidence. is_supported,
-- is_supported_on_these_tasks: advice is the first or the second of these. n_units: those that the test of rsd is over.
-- *_n_needed: units like these (tasks, or rows of one task) of which a test alone finds a difference of 0.05 with a
-- power of 80 %, as a rough rule: the units of this test times (smallest_detectable / 0.05) ^ 2, rounded up, and at
-- least the 6 of which a test can reach 5 %. is_of_these_tasks: shown_advice is that for these very tasks; false where no
-- bias of them can be tested, as a label of a task has too few rows, but of tasks like these it can.
with
-- Once for tasks like these, and once for these tasks.
sides as (
    select
        *, unnest(['like_these', 'these']) as tasks, unnest([verdict, same_tasks_verdict]) as word,
        unnest([simultaneous_low, same_tasks_simultaneous_low]) as word_low,
        unnest([word_p_adjusted, same_tasks_word_p_adjusted]) as word_p
    from label_bias_verdicts
),

words as (
    from sides pivot (
        any_value(word) as word, any_value(word_p) as p, any_value(word_low) as low, any_value(least_effect) as least_effect,
        any_value(unit) as unit, any_value(n_units) as n_units, any_value(smallest_detectable) as smallest_detectable
        for metric in ('rsd', 'bias_score', 'accuracy', 'macro_f1')
        group by model, suite, n_demos, method, against_n_demos, against_method, tasks
    )
),

graded as (
    select
        *,
        list_contains([rsd_word, bias_score_word], 'lower') as falls,
        list_contains([rsd_word, bias_score_word], 'higher') as rises,
        case
            when accuracy_word in ('higher', 'lower') then accuracy_word
            -- A lower end of 0 is that of units of which none differs, of which verdict knows how many it takes.
            when accuracy_low > -accuracy_least_effect and (accuracy_low <> 0 or accuracy_word = 'negligible')
                then 'no loss'
            else 'loss not ruled out'
        end as accuracy_evidence,
        case
            when falls and rises then 'mixed'
            when rises then 'bias rises'
            when not falls then 'not shown'
            when list_contains([accuracy_word, macro_f1_word], 'lower') then 'bias falls, accuracy falls'
            when accuracy_evidence = 'higher' then 'bias falls, accuracy rises'
            else 'bias falls, ' || accuracy_evidence
        end as evidence,
        case
            when rises then null
            when rsd_word = 'lower' and bias_score_word = 'lower' then 'rsd and bias_score'
            when rsd_word = 'lower' then 'rsd'
            when bias_score_word = 'lower' then 'bias_score'
        end as bias_falls_in,
        case
            when falls or list_contains([accuracy_word, macro_f1_word], 'higher') then case
                when rises or not falls or is_above_constant then evidence
                when not is_above_constant then 'bias falls, no better than a constant answer'
                else 'bias falls, not shown to be better than a constant answer'
            end
            when rises or list_contains([accuracy_word, macro_f1_word], 'lower')
                then 'do not use: bias rises or performance falls'
            else evidence
        end as advice
    from words
    inner join (select model, suite, n_demos, method, is_above_constant from label_bias_by_model)
        using (model, suite, n_demos, method)
),

inputs as (
    select
        prompts.n_demos,
        method_name(adaptations.adaptation, calibration_variants.method) as method,
        count(*) as n_prompts
    from prompts
    inner join calibration_variants using (purpose)
    inner join adapted_contexts as adaptations using (context_id)
    where prompts.format = 'base'
    group by all
)

select
    model, suite, n_demos, method, against_n_demos, against_method, against.rsd as rsd_before, own.rsd,
    like_these.rsd_word as rsd_verdict, these.rsd_word as rsd_same_tasks_verdict,
    against.bias_score as bias_score_before, own.bias_score, like_these.bias_score_word as bias_score_verdict,
    these.bias_score_word as bias_score_same_tasks_verdict, against.accuracy as accuracy_before, own.accuracy,
    like_these.accuracy_word as accuracy_verdict, these.accuracy_word as accuracy_same_tasks_verdict,
    against.macro_f1 as macro_f1_before, own.macro_f1, like_these.macro_f1_word as macro_f1_verdict,
    these.macro_f1_word as macro_f1_same_tasks_verdict, own.majority_accuracy, own.is_below_majority,
    coalesce(inputs.n_prompts, 0) as n_prompts,
    like_these.advice in ('bias falls, accuracy rises', 'bias falls, no loss') as is_supported,
    these.advice in ('bias falls, accuracy rises', 'bias falls, no loss') as is_supported_on_these_tasks,
    own.n_tasks_constant, own.n_tasks, like_these.rsd_unit as unit, like_these.rsd_n_units as n_units,
    units_needed(like_these.rsd_n_units, like_these.rsd_smallest_detectable) as rsd_n_needed,
    units_needed(like_these.accuracy_n_units, like_these.accuracy_smallest_detectable) as accuracy_n_needed,
    like_these.accuracy_evidence, these.accuracy_evidence as accuracy_same_tasks_evidence, like_these.bias_falls_in,
    these.bias_falls_in as same_tasks_bias_falls_in, like_these.evidence, these.evidence as same_tasks_evidence,
    like_these.advice, these.advice as same_tasks_advice, own.majority_macro_f1, own.is_above_constant,
    case when against_format = 'base' then plain.is_above_constant end as is_above_constant_before,
    coalesce(these.rsd_p, these.bias_score_p) is not null or coalesce(like_these.rsd_p, like_these.bias_score_p) is null
        as is_of_these_tasks,
    if(is_of_these_tasks, these.advice, like_these.advice) as shown_advice
from (select * from graded where tasks = 'like_these') as like_these
inner join (select * from graded where tasks = 'these') as these
    using (model, suite, n_demos, method, against_n_demos, against_method)
inner join label_bias_by_model as own using (model, suite, n_demos, method)
inner join label_bias_pairs using (model, n_demos, method, against_n_demos, against_method)
inner join format_draws as against
    on
        own.model = against.model and own.suite = against.suite and against_n_demos = against.n_demos
        and against_method = against.method and against_format = against.format and against.draw = 0
inner join label_bias_by_model as plain
    on
        own.model = plain.model and own.suite = plain.suite and against_n_demos = plain.n_demos
        and against_method = plain.method
left join inputs using (n_demos, method)
order by all
