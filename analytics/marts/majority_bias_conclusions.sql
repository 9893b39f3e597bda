-- One row per conclusion of a majority-bias run: line, its place; lead, its first words; text. Words of
-- judgement are verdicts of majority_verdicts, majority_remedies and majority_by_model.
with
named as (
    select
        *,
        if(count(distinct predict) over () > 1, shown_predict(predict), '') as shown_way,
        if(
            (select count(distinct instruction) from majority_by_model) > 1,
            if(instruction, ' with instruction', ' without instruction'), ''
        ) as given
    from majority_by_model
),

-- Without mitigation: the first way of predicting.
plain as (
    from named
    where
        method = 'none'
        and predict = (select predict from majority_by_model order by predict <> 'likelihood', predict <> 'generate' limit 1)
),

headline as (
    select
        case
            when bool_or(is_bias_shown) and not bool_or(coalesce(is_any_setting_above_constant, false))
                then 'The proportions of the demonstrations change its answers, and no setting is '
                || if(bool_and(is_any_setting_above_constant is false), '', 'shown to be ')
                || 'better than always answering one label.'
            when bool_and(is_any_setting_above_constant is false)
                then 'Cannot say: it does not do the task, as no setting is better than always answering one label.'
            when not bool_or(coalesce(is_any_setting_above_constant, false))
                then 'Cannot say: no setting is shown to be better than always answering one label.'
            when bool_or(is_bias_shown) then 'The proportions of the demonstrations change its performance.'
            when bool_and(n_seeds < 2) then 'Cannot say: one seed does not show whether proportions matter.'
            else 'No effect of the proportions is shown.'
        end as lead,
        array_to_string(list(
            format(
                'Mean weighted F1{}{} is {} and accuracy {}. Always answering one label has weighted F1 {} and accuracy {}',
                if(shown_way = '', '', ' by ' || shown_way), given, as_rate(mean_f1), as_percent(accuracy), as_rate(constant_f1), as_percent(majority_accuracy)
            )
            || if(share_most_frequent >= 0.9, format('. {} of all answers are the same', as_percent(share_most_frequent)), '')
            order by instruction
        ), '. ') as text
    from plain
),

proportions as (
    select
        instruction,
        case
            when proportions_p_adjusted is null then 'one seed cannot tell whether they matter'
            when proportions_p_adjusted <= 0.05 then format(
                    'weighted F1 depends on them ({}; standard deviation {}, and {} after the variance between seeds is subtracted)',
                    as_p(proportions_p_adjusted), as_rate(sd_f1), as_rate(sd_f1_corrected)
                )
            else format(
                'weighted F1 is not shown to depend on them ({}{})', as_p(proportions_p_adjusted),
                case
                    when sd_f1_smallest_detectable is null then '; so few settings and seeds hardly detect any effect'
                    when sd_f1_smallest_detectable > 0
                        then format('; this run detects a standard deviation of {} in 4 of 5 cases', as_rate(sd_f1_smallest_detectable))
                    else ''
                end
            )
        end || given as told,
        if(
            majority_effect is null, null, as_rate(majority_effect)
            || if(majority_effect_low = majority_effect_high, '', as_interval(majority_effect_low, majority_effect_high)) || given
        ) as followed
    from plain
),

mitigated as (
    select
        array_to_string(list(
            format(
                '{}{} after {}{}', as_rate(named.majority_effect),
                as_interval(named.majority_effect_low, named.majority_effect_high), shown_method(named.method), named.given
            )
            order by named.method, named.instruction
        ), ', ') as told
    from named
    semi join plain using (predict)
    where method <> 'none' and majority_effect is not null
),

followed as (
    select
        'Over all draws, a label''s share of the answers follows its share of the demonstrations by ' || array_to_string(list(followed order by instruction), '; ')
        || ' (0: not at all, 1: entirely). ' || coalesce('It follows them by ' || any_value(mitigated.told) || '; no test compares these numbers. ', '') as text
    from proportions, mitigated
    having count(followed) > 0
),

-- Draws of demonstrations in which nearly all answers are one label: means over draws hide them.
drawn as (
    select
        instruction, count(*) as n_draws, count(single) as n_single, count(distinct single) as n_labels, any_value(single) as label,
        count_if(len(most) = 1 and single is not null) as n_clear, count_if(len(most) = 1 and single = most[1]) as n_followed
    from (
        select
            instruction, any_value(label) filter (share_predicted > 0.95) as single,
            list(label) filter (share_shown = most_shown) as most
        from (select *, max(share_shown) over (partition by instruction, predict, method, setting, seed) as most_shown from majority_label_shares)
        semi join plain using (instruction, predict, method)
        group by instruction, setting, seed
    )
    group by instruction
),

boundary as (
    select
        instruction,
        case
            when not has_enough_rows then 'too few rows for RB@10'
                || coalesce(format(' (the intervals of settings reach {})', as_rate(half_width)), '')
            when n_marked = 0 then 'RB@10 cannot be judged: most outputs are no label'
            else format(
                '{} of {} settings are within 10 points of the best one (RB@10 {}), for these draws of demonstrations',
                n_marked, n_settings, as_rate(rb_at_10)
            )
        end || given as told
    from plain
    where coalesce(is_any_setting_above_constant, not has_enough_rows)
),

best as (
    select remedies.*, shown_way, given
    from majority_remedies as remedies
    inner join named using (model, n_demos, instruction, predict, method)
    where is_supported
    order by remedies.mean_f1 desc, method, predict, instruction
    limit 1
),

-- Inputs of each calibration, per draw of demonstrations.
prices as (
    select
        number, long_method(meaning, shown) as name,
        round(count(prompts.purpose) / (select count(*) from majority_contexts))::bigint as n_prompts
    from (select distinct purpose, regexp_extract(method, '^[a-z0-9_]+') as method from calibration_variants) as variants
    inner join calibration_methods using (method)
    left join prompts on prompts.purpose = variants.purpose
    group by number, meaning, shown
),

gaps as (
    select
        listed(list(
            format(
                '{} {} ({})', if(metric = 'tails_f1', 'at the most skewed settings', 'at all others'), as_rate(estimate),
                if(
                    reason is not null or verdict is null, 'not tested',
                    if(verdict = 'unclear', 'no clear change', verdict)
                )
            )
            order by metric desc
        )) as text
    from majority_verdicts
    where metric in ('tails_f1', 'middle_f1') and method = 'none' and predict = (select any_value(predict) from plain)
    having count(*) > 0
),

certainty as (
    select
        count(*) filter (unit = 'row' and reason is null) as n_of_rows,
        count(*) filter (unit = 'seed' and reason is null) as n_of_seeds,
        max(smallest_detectable) filter (unit = 'row' and metric <> 'sd_f1' and smallest_detectable > 0) as most
    from majority_verdicts
    having count(*) > 0
),

lines as (
    select 1 as line, lead, coalesce(followed.text, '') || capitalized(headline.text) || '.' as text
    from headline
    left join followed on true
    union all
    select
        2, 'Ready to deploy?',
        format(
            '{}: the highest weighted F1, a mean over all proportions, is {} ({}{}), and always answering one label has {}.',
            case
                when most.mean_f1 <= constant_f1 then 'No'
                when is_above_constant then 'Better than always answering one label'
                else 'Not shown'
            end,
            as_rate(most.mean_f1), concat_ws(', ', nullif(shown_way, ''), shown_method(method)), given, as_rate(constant_f1)
        )
    from (from named order by mean_f1 desc, method, predict, instruction limit 1) as most
    union all
    select
        3, 'Proportions of labels:',
        array_to_string(list(told order by instruction), '; ') || '.'
    from proportions
    union all
    select
        3, 'One label:',
        format(
            'more than 95 % of the answers are one label in {}.', array_to_string(list(
                format('{} of {} of demonstrations{}', n_single, counted(n_draws, 'draw'), given)
                || case
                    when n_labels = 1 then format(', always “{}”', label)
                    when n_clear > 0 then format('. In {} of these draws one label is the most frequent one of the demonstrations, and it is {}', n_clear, case when n_clear = 1 then if(n_followed = 1, 'the answer', 'not the answer') when n_followed = n_clear then 'the answer in all of them' else format('the answer in {} of them', n_followed) end)
                    else ''
                end
                order by instruction
            ), '. Also in ')
        )
    from drawn
    inner join plain using (instruction)
    where n_single > 0
    having count(*) > 0
    union all
    select 4, 'Robustness boundary:', array_to_string(list(told order by instruction), '; ') || '.'
    from boundary
    having count(*) > 0
    union all
    select
        4, 'Price of mitigation:',
        listed(list(format('{} for {}', counted(n_prompts, 'prompt'), name) order by number))
        || format(', per draw of demonstrations, once for all {:,} rows.', (select max(n_test_rows) from majority_by_model))
    from prices
    having count(*) > 0
    union all
    from told_lengths('prompt_lengths')
    union all
    select
        22, 'Seeds:', told_draws('seed', max(n_seeds), 'On average over settings, weighted F1 has a standard deviation of '
            || as_rate(avg(mean_sd_over_seeds order by instruction)) || ' over the seeds')
    from plain
    having max(n_seeds) > 1
    union all
    select
        3, 'Best mitigation:',
        format(
            '{}{} has the highest mean weighted F1 of all that reduce bias without a loss of it: standard deviation over '
            || 'settings {} → {}, mean weighted F1 {} → {}.',
            shown_method(method) || if(shown_way = '', '', ' of ' || shown_way), given, as_rate(sd_f1_before), as_rate(sd_f1),
            as_rate(mean_f1_before), as_rate(mean_f1)
        )
    from best
    union all
    select
        3, 'Best mitigation:',
        case
            when count(*) = 0 then 'none was measured'
            when bool_and(coalesce(sd_f1_reason = 'constant answer', false))
                then 'the effect on bias could not be tested. A test needs answers that are shown to be better than always answering one label, with and without mitigation'
            else 'none is shown to reduce bias without a loss of weighted F1'
        end
        || coalesce('; bias falls after ' || listed(
            list(shown_method(method) || if(shown_way = '', '', ' of ' || shown_way) || given order by method, predict, instruction)
                filter (evidence = 'bias falls, loss not ruled out' and is_above_constant)
        ) || ', but a loss cannot be ruled out', '') || '.'
        || coalesce(
            ' Weighted F1 rises after ' || listed(
                list(format(
                    '{}{}{} ({} → {}{})', shown_method(method), if(shown_way = '', '', ' of ' || shown_way), given, as_rate(mean_f1_before), as_rate(mean_f1),
                    if(sd_f1_reason = 'constant answer', '; effect on bias not tested', '')
                ) order by method, predict, instruction) filter (evidence = 'F1 rises, bias not shown to fall')
            ) || '.', ''
        )
    from (
        select remedies.*, shown_way, given
        from majority_remedies as remedies
        inner join named using (model, n_demos, instruction, predict, method)
    )
    having not exists (select 1 from best)
    union all
    select 16, 'The instruction changes weighted F1:', text || '.' from gaps
    union all
    select
        19, 'Not known:', 'one data set says nothing about others.'
        || if(count(distinct method) filter (method not like 'lora%') > 2, ' No test compares one calibration with another.', '')
    from named
    union all
    select
        20, 'How sure:',
        format(
            '{}. These verdicts hold for new rows and new draws of demonstrations, judged by {} and {}.',
            coalesce('the chance of any false finding is ' || nullif(concat_ws(
                ' and ', if(n_of_rows > 0, '5 % for ' || counted(n_of_rows, 'tested difference') || ' of weighted F1', null),
                if(n_of_seeds > 0, format('5 % for {} of RB@10', n_of_seeds), null)
            ), ''), 'no difference could be tested'),
            counted(n_rows, 'row'), counted(n_seeds, 'seed')
        )
        || coalesce(format(' The run may miss changes of weighted F1 of up to {}.', as_rate(most)), '')
        || case when exists (from plain where proportions_p_adjusted is not null) then ' The p of the effect of the proportions is corrected for all such tests.' else '' end
    from certainty, (select max(n_test_rows) as n_rows, max(n_seeds) as n_seeds from majority_by_model) as size
)

select line, lead, text from lines order by all
