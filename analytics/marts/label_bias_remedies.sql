-- One row per (model, suite, n_demos, method, against_n_demos, against_method): gains and costs of a mitigation. Of
-- rsd, bias_score, accuracy and macro_f1: *_before, without it; the mean with it; *_verdict, the word that the
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
-- least the 6 of which a test can reach 5 %.
with
words as (
    select
        model, suite, n_demos, method, against_n_demos, against_method,
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
        -- A lower end of exactly 0 is that of units of which none differs, of which verdict knows how many it takes.
        bool_or(simultaneous_low > -least_effect and (simultaneous_low <> 0 or verdict = 'negligible')) filter (
            metric = 'accuracy'
        ) as has_no_loss,
        bool_or(
            same_tasks_simultaneous_low > -least_effect
            and (same_tasks_simultaneous_low <> 0 or same_tasks_verdict = 'negligible')
        ) filter (metric = 'accuracy') as has_no_loss_on_same_tasks,
        any_value(greatest(6, ceil(n_units * (smallest_detectable / 0.05) ** 2))) filter (
            metric = 'rsd' and smallest_detectable > 0
        )::bigint as rsd_n_needed,
        any_value(greatest(6, ceil(n_units * (smallest_detectable / 0.05) ** 2))) filter (
            metric = 'accuracy' and smallest_detectable > 0
        )::bigint as accuracy_n_needed
    from label_bias_verdicts
    group by all
),

-- Once for tasks like these, and once for these tasks.
sides as (
    select
        model, suite, n_demos, method, against_n_demos, against_method, unnest(['like_these', 'these']) as tasks,
        unnest([
            {
                'rsd': rsd_verdict,
                'bias_score': bias_score_verdict,
                'accuracy': accuracy_verdict,
                'macro_f1': macro_f1_verdict,
                'has_no_loss': has_no_loss
            },
            {
                'rsd': rsd_same_tasks_verdict,
                'bias_score': bias_score_same_tasks_verdict,
                'accuracy': accuracy_same_tasks_verdict,
                'macro_f1': macro_f1_same_tasks_verdict,
                'has_no_loss': has_no_loss_on_same_tasks
            }
        ]) as word
    from words
),

graded as (
    select
        *,
        list_contains([word.rsd, word.bias_score], 'lower') as falls,
        list_contains([word.rsd, word.bias_score], 'higher') as rises,
        case
            when word.accuracy in ('higher', 'lower') then word.accuracy
            when word.has_no_loss then 'no loss'
            else 'loss not ruled out'
        end as accuracy_evidence,
        case
            when falls and rises then 'mixed'
            when rises then 'bias rises'
            when not falls then 'not shown'
            when list_contains([word.accuracy, word.macro_f1], 'lower') then 'bias falls, accuracy falls'
            when accuracy_evidence = 'higher' then 'bias falls, accuracy rises'
            else 'bias falls, ' || accuracy_evidence
        end as evidence,
        case
            when rises then null
            when word.rsd = 'lower' and word.bias_score = 'lower' then 'rsd and bias_score'
            when word.rsd = 'lower' then 'rsd'
            when word.bias_score = 'lower' then 'bias_score'
        end as bias_falls_in,
        case
            when falls or list_contains([word.accuracy, word.macro_f1], 'higher') then case
                when rises or not falls or is_above_constant then evidence
                when not is_above_constant then 'bias falls, no better than a constant answer'
                else 'bias falls, not shown to be better than a constant answer'
            end
            when rises or list_contains([word.accuracy, word.macro_f1], 'lower')
                then 'do not use: bias rises or performance falls'
            else evidence
        end as advice
    from sides
    inner join (
        select model, suite, n_demos, method, is_above_constant
        from label_bias_by_model
    ) using (model, suite, n_demos, method)
),

inputs as (
    select
        prompts.n_demos,
        method_name(adaptations.adaptation, calibration_variants.method) as method,
        count(*) as n_prompts
    from prompts
    inner join calibration_variants using (purpose)
    cross join (select unnest(adaptations) as adaptation from run_settings) as adaptations
    where prompts.format = 'base'
    group by all
)

select
    words.model, words.suite, words.n_demos, words.method, words.against_n_demos, words.against_method,
    against.rsd as rsd_before, own.rsd, words.rsd_verdict, words.rsd_same_tasks_verdict,
    against.bias_score as bias_score_before, own.bias_score, words.bias_score_verdict,
    words.bias_score_same_tasks_verdict, against.accuracy as accuracy_before, own.accuracy, words.accuracy_verdict,
    words.accuracy_same_tasks_verdict, against.macro_f1 as macro_f1_before, own.macro_f1, words.macro_f1_verdict,
    words.macro_f1_same_tasks_verdict, own.majority_accuracy, own.is_below_majority,
    coalesce(inputs.n_prompts, 0) as n_prompts,
    like_these.advice in ('bias falls, accuracy rises', 'bias falls, no loss') as is_supported,
    these.advice in ('bias falls, accuracy rises', 'bias falls, no loss') as is_supported_on_these_tasks,
    own.n_tasks_constant, own.n_tasks, words.unit, words.n_units, words.rsd_n_needed, words.accuracy_n_needed,
    like_these.accuracy_evidence, these.accuracy_evidence as accuracy_same_tasks_evidence, like_these.bias_falls_in,
    these.bias_falls_in as same_tasks_bias_falls_in, like_these.evidence, these.evidence as same_tasks_evidence,
    like_these.advice, these.advice as same_tasks_advice, own.majority_macro_f1, own.is_above_constant,
    against.is_above_constant as is_above_constant_before
from words
inner join (select * from graded where tasks = 'like_these') as like_these
    using (model, suite, n_demos, method, against_n_demos, against_method)
inner join (select * from graded where tasks = 'these') as these
    using (model, suite, n_demos, method, against_n_demos, against_method)
inner join label_bias_by_model as own using (model, suite, n_demos, method)
inner join label_bias_by_model as against
    on
        words.model = against.model and words.suite = against.suite and words.against_n_demos = against.n_demos
        and words.against_method = against.method
left join inputs on words.n_demos = inputs.n_demos and words.method = inputs.method
order by all
