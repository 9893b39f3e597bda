-- One row per conclusion of a label-bias run over all its tasks: line, its place; lead, its first words;
-- text. Words of judgement are verdicts of label_bias_verdicts, label_bias_task_tests and suite_constant_tests.
with
plain as (
    from label_bias_by_model
    where suite = 'all' and method = 'none'
),

-- All numbers of demonstrations where they are three at most; else the fewest, the most, and that of the highest RSD.
told as (
    from plain
    where
        (select count(*) from plain) <= 3
        or n_demos in ((select min(n_demos) from plain), (select max(n_demos) from plain))
        or rsd = (select max(rsd) from plain)
),

single as (
    select tested.*
    from label_bias_by_task_over_sets as tested
    where method = 'none' and (select max(n_tasks) from plain) = 1
),

-- The most frequent answer of each task and demonstration set.
answers as (
    select
        n_demos, demo_set, task, label, n_predicted / sum(n_predicted) over drawn as share, n_gold / sum(n_gold) over drawn as gold
    from label_bias_by_label
    where method = 'none'
    window drawn as (partition by n_demos, demo_set, task)
    qualify row_number() over (drawn order by n_predicted desc, label) = 1
),

preferred as (
    select
        n_demos, count(*) = 1 as is_of_all_sets, any_value(label) as label, sum(share) / sum(n) as share, sum(gold) / sum(n) as gold,
        listed(list(format('“{}” in {}', label, counted(n, 'set')) order by n desc, label)) as by_set
    from (select n_demos, label, count(*) as n, sum(share) as share, sum(gold) as gold from answers group by n_demos, label)
    group by n_demos
),

-- The label whose share of the answers exceeds its share of the gold labels most, over all tasks and sets.
strongest as (
    select n_demos, max_by(
            format('“{}” in {} ({} of the answers, {} of the gold labels)', label, task, as_percent(predicted_share), as_percent(gold_share)),
            (predicted_share - gold_share, task, label)
        ) as most
    from label_bias_by_label_over_sets
    where method = 'none' and predicted_share > gold_share
    group by n_demos
),

one_label as (
    select coalesce('“' || (
        select label
        from label_bias_by_label_over_sets semi join single using (task, n_demos, method)
        order by gold_share desc, label
        limit 1
    ) || '”', 'one label') as name
),

-- Said where a run has several wordings: sentences that name none are of the wording “base”.
wording as (select if(count(distinct format) > 1, ' in the wording “base”', '') as of_base from label_bias_by_format),

headline as (
    select
        case
            when bool_or(is_bias_shown) and bool_and(accuracy < majority_accuracy)
                then format('Biased without mitigation{}, and right less often than always answering one label.', any_value(of_base))
            when bool_or(is_bias_shown) and not bool_or(coalesce(is_above_constant, false))
                then format('Biased without mitigation{}, and not shown to be better than always answering one label.', any_value(of_base))
            when bool_or(is_bias_shown) then format('Biased{}.', any_value(of_base))
            when sum(n_tasks_rsd_tested + n_tasks_bias_score_tested) = 0
                then format('Cannot say{}: too few rows, or no wrong or no right answer, for a test of bias.', any_value(of_base))
            when not bool_or(coalesce(is_above_constant, false))
                then format('Cannot say{}: the answers are not shown to be better than always answering one label.', any_value(of_base))
            else format('No bias shown{}.', any_value(of_base))
        end as lead,
        case
            when any_value(n_tasks) > 1 then array_to_string(list(
                    capitalized(format(
                        '{} the most frequent answer takes {} of a task’s rows and {} of its gold labels{}',
                        with_demos(n_demos), as_percent(share), as_percent(gold), coalesce('. Most of all: ' || most, '')
                    ))
                    order by n_demos
                ), '. ') || coalesce('. More bias than sampling noise explains: ' || nullif(array_to_string(list(
                    with_demos(n_demos) || ' ' || nullif(concat_ws(
                        ' and ',
                        if(n_tasks_rsd_tested = 0, null, format('by RSD in {} of {}', n_tasks_rsd, counted(n_tasks_rsd_tested, 'task'))),
                        if(n_tasks_bias_score_tested = 0, null, format('by BiasScore in {} of {} with enough rows', n_tasks_bias_score, n_tasks_bias_score_tested))
                    ), '')
                    order by n_demos
                ), '; '), ''), '')
            else array_to_string(list(
                capitalized(with_demos(n_demos)) || ' '
                || case
                    when n_tasks_rsd = 0 and n_tasks_bias_score = 0 then 'no preference for a label is shown'
                    when preferred.is_of_all_sets
                        then format('it answers “{}” for {} of the rows (gold {})', label, as_percent(share), as_percent(gold))
                    else 'its most frequent answer is ' || preferred.by_set
                end
                || coalesce(', ' || as_p(bias_p), '')
                order by n_demos
            ), '. ')
        end
        || coalesce(
            '. This run may miss an RSD below ' || nullif(as_rate(max(told.rsd_smallest_detectable) filter (n_tasks_rsd = 0 and told.rsd_smallest_detectable >= 0.001)), '–'), ''
        ) as text
    from told
    left join (select n_demos, least(1, 2 * least(rsd_p, bias_score_p)) as bias_p from single) as tested using (n_demos)
    left join preferred using (n_demos)
    left join strongest using (n_demos)
    cross join wording
),

worded as (
    select
        n_demos, count(*) as n, arg_min(format, rsd) as fairest, min(rsd) as lowest, arg_max(format, rsd) as unfairest, max(rsd) as highest,
        arg_min(format, accuracy) as worst, min(accuracy) as least, arg_max(format, accuracy) as best, max(accuracy) as most,
        list(format order by rsd, format) filter (is_above_constant is distinct from true) as not_above
    from label_bias_by_format as by_format
    semi join told using (n_demos)
    where suite = 'all' and method = 'none'
    group by n_demos
    having count(*) > 1
),

supported as (
    -- Of lora in fewer demonstration sets: what it gains there, beside none in all of them.
    select remedies.*, if(remedies.method = 'none', 0, plain.macro_f1 - macro_f1_before) + remedies.macro_f1 as gained
    from label_bias_remedies as remedies
    inner join plain using (suite, n_demos)
    where against_method = 'none' and shown_advice in ('bias falls, accuracy rises', 'bias falls, no loss')
),

best as (from supported order by gained desc, n_prompts, n_demos, method limit 1),

-- Mitigations after which bias falls but a loss is not ruled out, by metric; with which demonstrations, where not with all.
reducing as (
    select shown, listed(list(name order by name)) as names
    from (
        select
            shown, shown_method(method)
            || if(bool_and(falls), '', ' ' || listed(list(with_demos(n_demos) order by n_demos) filter (falls))) as name
        from (
            select
                method, n_demos, unnest(['RSD', 'BiasScore']) as shown,
                coalesce(shown_advice = 'bias falls, loss not ruled out' and if(is_of_these_tasks, same_tasks_bias_falls_in, bias_falls_in)
                like '%' || unnest(['rsd', 'bias_score']) || '%', false) as falls
            from label_bias_remedies
            where suite = 'all' and against_method = 'none' and method <> 'none'
        )
        group by shown, method
        having bool_or(falls)
    )
    group by shown
),

settings as (
    select
        *, format('{}{}{} {}', if(format = 'base', '', 'wording “' || format || '”, '), shown_method(method), if(method = 'none', ',', ''), with_demos(n_demos)) as setting,
        coalesce(is_above_constant, false) and accuracy > majority_accuracy as is_better
    from label_bias_by_format
    where suite = 'all'
),

-- The most accurate setting, first of those that are shown to be better than always answering one label.
most as (
    from settings
    order by is_better desc, accuracy desc, format <> 'base', n_demos, method
    limit 1
),

-- The setting with the highest macro-F1 of those that are shown to be better in macro-F1 alone.
balanced as (
    from settings
    where is_above_constant and not is_better
    order by macro_f1 desc, format <> 'base', n_demos, method
    limit 1
),

asked as (
    select metric_head(metric).shown as shown, method, n_demos, estimate, same_tasks_verdict, same_tasks_word_p_adjusted
    from label_bias_verdicts
    where suite = 'all' and is_primary and not list_contains([head.requires for head in all_metrics()], metric)
),

verdicts as (
    select
        *,
        if(same_tasks_verdict = 'unclear' and same_tasks_smallest_detectable >= 0.001, same_tasks_smallest_detectable, null)
            as smallest
    from label_bias_verdicts
    where suite = 'all' and against_method = 'none' and metric in ('rsd', 'accuracy', 'macro_f1', 'bias_score')
),

-- Inputs of each calibration, per task and demonstration set.
prices as (
    select
        number, if(meaning is null, 'LoRA', long_method(meaning, shown)) as name,
        if(meaning is null, null, round(min(n_prompts / (plain.n_tasks * n_demo_sets)))::bigint) as least,
        round(max(n_prompts / (plain.n_tasks * n_demo_sets)))::bigint as most,
        bool_or(plain.n_tasks > 1) as has_tasks, bool_or(n_demo_sets > 1) as has_sets
    from label_bias_remedies as remedies
    inner join plain using (suite, n_demos)
    left join calibration_methods on calibration_methods.method = regexp_extract(remedies.method, '^[a-z0-9_]+')
    where against_method = 'none' and remedies.method <> 'none' and remedies.method not like 'lora+%'
    group by number, meaning, shown
),

certainty as (
    select
        bool_or(same_tasks_verdict is not null and same_tasks_verdict <> 'too few') as has_words,
        bool_or(verdict is not null and verdict <> 'too few') and any_value(n_tasks) > 1 as has_words_for_others,
        (
            select coalesce(bool_or(is_of_these_tasks), true) from label_bias_remedies where suite = 'all' and against_method = 'none'
        ) as is_of_these,
        any_value(n_tasks) as n_tasks, any_value(n_units) as n_units, max(smallest) filter (metric = 'rsd') as rsd,
        max(smallest) filter (metric = 'accuracy') as accuracy, max(n_demos) as n_demos,
        string_agg(
            distinct if(method = 'none', '', shown_method(method) || ' and ') || counted(n_demos, 'demonstration'), ', '
        ) filter (metric in ('rsd', 'bias_score') and verdict in ('lower', 'higher')) as for_others
    from verdicts
),

-- What the run does not say, in the order of the sentence.
unknown as (
    select
        1 as place,
        'BiasScore cannot be tested, because ' || if(
            any_value(n_tasks) > 1, 'each task has a label with fewer than 5 rows',
            format(
                '{} of its {} rows are “{}”', any_value(n_fewest_bias_score_rows),
                any_value(single.n_bias_score_rows // single.n_demo_sets), any_value(fewest_bias_score_label)
            )
        ) as text
    from told
    left join single using (n_demos)
    where n_tasks_bias_score_tested = 0 and told.bias_score is not null
    having count(*) > 0
    union all
    select
        2, 'no test compares one calibration with another'
        || coalesce((select format(', so {} may be the best by chance', shown_method(method)) from best where method <> 'none' and method not like 'lora%'), '')
    from label_bias_remedies
    where against_method = 'none' and method <> 'none' and method not like 'lora%'
    having count(distinct method) > 1
    union all
    select 3, if(n_tasks = 1, 'one task says', format('{} tasks say', n_tasks)) || ' nothing about other tasks; measure 6 or more'
    from (select max(n_tasks) as n_tasks from plain)
    where n_tasks < 6
),

lines as (
    select 1 as line, lead, capitalized(text) || '.' as text from headline
    union all
    select
        2, 'Ready to deploy?',
        format(
            '{}{}{} is right on {} of the rows, and always answering {} on {}.{}',
            case
                when is_better then 'Better than always answering one label, as a test supports: '
                when accuracy > majority_accuracy then 'Not shown: the most accurate setting, '
                else 'No: the most accurate setting, '
            end,
            setting, if(is_better and not contains(setting, ','), '', ','), as_percent(accuracy), name, as_percent(majority_accuracy),
            if(is_better, format(' Whether {} is enough is your decision.', as_percent(accuracy)), '')
        )
        || if(is_better, '', coalesce((
            select
                format(
                    ' {} rare labels count as much as frequent ones, {} is better: macro-F1 {} against {}, which a test supports.',
                    if(most.accuracy > most.majority_accuracy, 'If', 'The exception: if'), setting || if(contains(setting, ','), ',', ''),
                    as_rate(macro_f1), as_rate(majority_macro_f1)
                )
            from balanced
        ), ''))
    from most, one_label
    union all
    select
        3, 'Best mitigation:',
        format(
            '{} the highest macro-F1 of all that reduce bias without a loss of accuracy{}: RSD {} → {}, BiasScore {} → {}, '
            || 'accuracy {} → {} and macro-F1 {} → {}.',
            if(
                method = 'none',
                format('{} in place of {} ha{}', counted(n_demos, 'demonstration'), against_n_demos, if(n_demos = 1, 's', 've')),
                shown_method(method) || ' ' || with_demos(n_demos) || ' has'
            ),
            of_base,
            as_rate(rsd_before), as_rate(rsd), as_rate(bias_score_before), as_rate(bias_score), as_percent(accuracy_before),
            as_percent(accuracy), as_rate(macro_f1_before), as_rate(macro_f1)
        )
        || case when method = 'none' and (
            select bool_or(coalesce(shown_advice in ('bias falls, accuracy rises', 'bias falls, no loss'), false))
            from label_bias_remedies where suite = 'all' and against_method = 'none' and method <> 'none'
        ) = false then format(
            ' No {} is shown to reduce bias without a loss.',
            case when exists (from label_bias_remedies where method like 'lora%') then 'calibration or adapter' else 'calibration' end
        ) else '' end
        || coalesce((
            select format(
                ' Cheaper: {} {} also reduces bias without a loss, with accuracy {} and macro-F1 {}.',
                shown_method(method), with_demos(n_demos), as_percent(accuracy), as_rate(macro_f1)
            )
            from supported
            where method <> 'none' and (n_demos, n_prompts) < (best.n_demos, best.n_prompts)
            order by n_demos, n_prompts, macro_f1 desc, method
            limit 1
        ), '')
        || coalesce((
            select
                format(' In other wordings, {} {} takes accuracy ', shown_method(best.method), with_demos(best.n_demos)) || some_of(list(
                    format('from {} to {} ({})', as_percent(without.accuracy), as_percent(settings.accuracy), settings.format) order by settings.format
                ), 3) || '.'
            from settings inner join settings as without using (format, n_demos)
            where without.method = 'none' and best.method <> 'none' and settings.format <> 'base' and (settings.method, n_demos) = (best.method, best.n_demos)
        ), '')
    from best, wording
    union all
    select
        3, 'Best mitigation:',
        case
            when not exists (from label_bias_remedies where against_method = 'none') then 'none was measured.'
            when told is null then 'none is shown to reduce bias without a loss of accuracy.'
            else format('none is shown to be safe. {}; a loss of accuracy cannot be ruled out.', told)
        end
    from (select string_agg(format('{} falls after {}', shown, names), ', and ' order by shown desc) as told from reducing), certainty
    where
        not exists (select 1 from best)
        and (has_words or not exists (from label_bias_remedies where against_method = 'none'))
    union all
    select
        4, 'Price of mitigation:',
        listed(list(
            coalesce(if(most = least, '', format('{:,} to ', least)) || counted(most, 'prompt'), 'an adapter') || ' for ' || name
            order by number
        ))
        || coalesce(', per ' || nullif(concat_ws(' and ', if(bool_or(has_tasks), 'task', null), if(bool_or(has_sets), 'set of demonstrations', null)), ''), '')
        || coalesce((select format(', once for all {:,} rows.', any_value(n_rows // n_demo_sets)) from single having count(distinct n_rows // n_demo_sets) = 1), ', once for all rows.')
    from prices
    having count(*) > 0
    union all
    from told_lengths('prompt_lengths')
    union all
    select
        22, 'Sets of demonstrations:',
        told_draws('set', max(n_sets), format(
            '{} best set exceeds the worst in accuracy by {}',
            case when (select max(n_tasks) from plain) > 1 then 'Without mitigation, on average over tasks, the' else 'Without mitigation, the' end,
            listed(list(as_points(100 * apart) || ' points ' || with_demos(n_demos) order by n_demos))
        ))
    from (
        select n_demos, max(n) as n_sets, avg(apart order by task) as apart
        from (select n_demos, task, count(*) as n, max(accuracy) - min(accuracy) as apart from label_bias_by_task where method = 'none' group by all)
        semi join told using (n_demos)
        group by n_demos
        having n_sets > 1
    )
    having count(*) > 0
    union all
    select
        5, 'Tasks without mitigation that are not shown to be better than always answering one label:',
        listed(list(format('{} of {} {}', n_tasks_not_above, n_tasks, with_demos(n_demos)) order by n_demos)) || '.'
    from told
    where n_tasks > 1 and n_tasks_not_above > 0
    having count(*) > 0
    union all
    select
        2, 'Which wording?',
        capitalized(string_agg(
            if(len(not_above) = n, format('without mitigation and {}, no wording can be recommended, as none is shown to be better than always answering one label; ', with_demos(n_demos)), '')
            || format(
                'accuracy {} goes from {} ({}) to {} ({}), and RSD from {} ({}) to {} ({})', with_demos(n_demos), as_percent(least), worst,
                as_percent(most), best, as_rate(lowest), fairest, as_rate(highest), unfairest
            )
            || if(
                len(not_above) < n,
                '; not shown to be better than always answering one label: ' || some_of(not_above, 6), ''
            ),
            '; ' order by n_demos
        )) || coalesce((
            select format('. Of the settings with mitigation that are shown to be better, {}{} has the highest macro-F1 ({})', if(format = 'base', 'wording “base”, ', ''), setting, as_rate(macro_f1))
            from settings where is_above_constant and method <> 'none' order by macro_f1 desc, format <> 'base', n_demos, method limit 1
        ), if(exists (from settings where method <> 'none'), '. With mitigation, none is shown to be better, either', '')) || '. Where no wording is named, numbers are of the wording “base”.'
    from worded
    having count(*) > 0
    union all
    select
        2, format('Primary question, {} with {}:', any_value(shown), shown_method(any_value(method))),
        array_to_string(list(
            format(
                '{} {} ({}, adjusted {})', coalesce(nullif(same_tasks_verdict, 'unclear'), 'no clear change'),
                with_demos(n_demos), as_rate(estimate), as_p(same_tasks_word_p_adjusted)
            )
            order by n_demos
        ), '; ') || format('. The p-values are adjusted for these {} only.', counted(count(*), 'test'))
    from asked
    having count(*) > 0
    union all
    select
        20, 'How sure:',
        case
            when has_words and not is_of_these
                then 'the chance of any false finding is about 5 %, on average over tasks like these. Changes in new rows of these '
                || 'very tasks cannot be tested, because a task has too few rows of a label.'
            when has_words then format(
                    'the chance of any false finding is about 5 %{}, for new rows of {}{}.',
                    if(exists (select 1 from asked), ' for the primary question and 5 % for the rest', ''),
                    if(n_tasks = 1, 'this task', format('these {} tasks', n_tasks)),
                    if(n_demos > 0, ' with the same demonstrations', '')
                )
                || case when exists (from single where coalesce(rsd_p, bias_score_p) is not null)
                    then ' This holds for all tests of the page together; the p-values under the headline are of one setting each.' else '' end
                || coalesce(
                    ' The run may miss changes of up to '
                    || listed(list_filter([as_rate(rsd) || ' in RSD', as_points(100 * accuracy) || ' points of accuracy'], lambda one: one not like '–%'))
                    || '; four times as many rows halve that.',
                    ''
                )
            else format('{} are too few for a test; at least 6 are needed.', counted(n_units, 'row'))
        end
    from certainty
    where n_units is not null
    union all
    select 19, 'Not known:', string_agg(text, '. ' order by place) || '.'
    from (select place, if(place = min(place) over (), text, capitalized(text)) as text from unknown where text is not null)
    having count(*) > 0
    union all
    select
        21, 'Other tasks:',
        coalesce('bias also changes in tasks like these with ' || for_others || '.', 'no change of bias is shown for tasks like these.')
    from certainty
    where has_words and is_of_these and has_words_for_others
)

select line, lead, text from lines order by all
