-- One row per conclusion of a QA-bias run on its data sets in distribution: line, its place; lead, its first words;
-- text. A bias is one that qa_bias_tests supports; differences between models and what debiasing changes are
-- verdicts of qa_model_comparisons, qa_debiasing and qa_answer_changes. Means over shortcuts are no headline, as more
-- shortcuts that find nothing shrink them.
with
places as (
    select
        qa_by_dataset.*, place, has_few_right(exact_match) as is_few,
        if(count(distinct dataset) over () > 1, model || ' on ' || dataset, model) as name
    from qa_by_dataset
    inner join qa_shown_models using (model)
    where role = 'in_distribution'
),

biases as (
    select
        biases.model, biases.dataset, biases.heuristic, biases.bias_significance, is_supported, null_high,
        smallest_detectable, biases.searched_on, biases.threshold,
        if(biased_segment = 'lower', 1, -1) as side,
        format('{} {} {}', biases.heuristic, if(biased_segment = 'lower', '≤', '>'), printf('%g', biases.threshold)) as better,
        if(biased_segment = 'lower', lower_exact_match, higher_exact_match) as better_em,
        if(biased_segment = 'lower', higher_exact_match, lower_exact_match) as other_em,
        biases.difference, biases.difference_low, biases.difference_high, biases.status
    from qa_bias_by_heuristic as biases
    inner join qa_bias_tests using (model, dataset, heuristic)
),

elsewhere as (
    select
        own.model, own.dataset, own.heuristic,
        some_of(list(
            format(
                'on {} {}{}', others.dataset, as_points(own.side * others.difference),
                if(others.is_supported, '', ', not significant')
            )
            order by others.dataset
        ), 3) as text
    from biases as own
    inner join places using (model, dataset)
    inner join biases as others using (model, heuristic, threshold)
    inner join qa_by_dataset as others_set on others_set.model = own.model and others_set.dataset = others.dataset
    where own.is_supported and others.status = 'measured' and others_set.role = 'out_of_distribution'
    group by all
),

judged as (
    select
        model, dataset, name, place, exact_match, share_most_frequent, n_rows,
        count(heuristic) as n_heuristics, count(bias_significance) as n_measured,
        count_if(is_supported is not null) as n_tested,
        max(null_high) filter (bias_significance is not null) as null_high,
        min(smallest_detectable) filter (bias_significance is not null) as least, max(smallest_detectable) filter (bias_significance is not null) as most,
        list(shown_heuristic(heuristic) order by bias_significance desc, heuristic) filter (is_supported) as found,
        list(
            format(
                '{}: {} % exact, else {} %, a gap of {} points (bias significance {}{})', better, as_points(better_em),
                as_points(other_em),
                as_points(
                    side * difference, if(side = 1, difference_low, -difference_high),
                    if(side = 1, difference_high, -difference_low)
                ),
                as_points(bias_significance), coalesce('; ' || elsewhere.text, '')
            )
            order by bias_significance desc, heuristic
        ) filter (is_supported) as told,
        case
            when any_value(is_constant) then 'same answer'
            when count_if(is_supported) > 0 then 'biased'
            when n_measured = 0 then 'not measured'
            when any_value(n_articles) = 1 then 'one article'
            when n_tested = 0 then 'not tested'
            when any_value(is_few) then 'few right'
            else 'none'
        end as word
    from places
    left join biases using (model, dataset)
    left join elsewhere using (model, dataset, heuristic)
    group by all
),

headline as (
    select
        case
            when bool_or(word = 'biased') then 'Biased.'
            when bool_or(word = 'none') then 'No bias shown.'
            when count(*) = 0 then 'Cannot say: no data set in distribution has answers.'
            when bool_and(word = 'same answer') then 'Cannot say: the answers are nearly always the same.'
            when bool_or(word = 'few right') then 'Cannot say: too few answers are right.'
            when bool_or(word = 'one article') then 'Cannot say: all questions are about one article.'
            when bool_or(word = 'not tested') then 'Cannot say: the differences were not tested.'
            else 'Cannot say: no shortcut can be measured.'
        end as lead,
        concat_ws(
            '. ', 'Exact match depends on '
            || some_of(list(format('{} in {}', some_of(found, 3), name) order by place, dataset) filter (word = 'biased'), 3),
            'No shortcut is shown for '
            || some_of(list(format('{} ({} tested)', name, n_tested) order by place, dataset) filter (word = 'none'), 3),
            'Nothing can be said of '
            || some_of(list(name order by place, dataset) filter (word not in ('biased', 'none')), 3)
        ) as text
    from judged
),

told as (
    select
        row_number() over (order by place, dataset) as line, name,
        case word
            when 'same answer' then format(
                    '{} of the {:,} answers are the same. All other numbers of this model only reflect that.',
                    as_percent(share_most_frequent), n_rows
                )
            when 'biased' then some_of(told, 3) || format('. {} of {} {} significant.', len(told), counted(n_tested, 'tested shortcut'), if(len(told) = 1, 'is', 'are'))
            when 'not measured' then 'no shortcut can be measured.'
            when 'one article' then 'questions about a single article give no interval and no test.'
            when 'not tested' then 'the shortcuts were measured, but not tested. Measure this run again.'
            when 'few right' then format(
                    'too few right answers to tell (exact match {} %). Below 10 %, groups can hardly differ, whatever '
                    || 'the model relies on.', as_points(100 * exact_match)
                )
            else
                format('none of {} is significant', counted(n_tested, 'tested shortcut'))
                || if(null_high > 0, format('. Chance alone reaches a bias significance of {} points', as_points(null_high)), '')
                || coalesce(
                    format(
                        '. This run detects {} points in 4 of 5 cases',
                        if(round(least, 1) = round(most, 1), as_points(most), as_points(least) || ' to ' || as_points(most))
                    ),
                    ''
                ) || '. A smaller bias may exist; more questions would show it.'
        end as text
    from judged
),

answers as (
    from (
        select 1 as part, dataset, model, place, exact_match, exact_match_low, exact_match_high
        from places
        union all
        select
            2, if(n_datasets > 1, format('mean of {} sets', n_datasets), 'out of distribution'), model, place, exact_match,
            exact_match_low, exact_match_high
        from qa_over_datasets
        inner join qa_shown_models using (model)
        where role = 'out_of_distribution'
    )
),

exact as (
    select
        part, if(part = 2, if(dataset like 'mean%', 'out of distribution (' || dataset || ')', dataset), 'on ' || dataset) as where_,
        if(
            count(*) > 3,
            format('{} to {} over {} models', as_points(100 * min(exact_match)), as_points(100 * max(exact_match)), count(*)),
            listed(list(model || ' ' || as_points(100 * exact_match, 100 * exact_match_low, 100 * exact_match_high) order by place))
        ) as told
    from answers
    group by all
),

-- Each pair once, the later model against the earlier one.
pairs as (
    select
        tests.model, tests.other_model, tests.dataset, metric, verdict, estimate, simultaneous_low, simultaneous_high, reason,
        tests.smallest_detectable, tests.n_articles, own.place,
        if(metric = 'gap', format('the gap by {} (T = {})', tests.heuristic, printf('%g', biases.threshold)), 'exact match') as of_what,
        if(metric = 'gap', 'the gap by ' || tests.heuristic, 'exact match') as name,
        if((select count(distinct dataset) from places) > 1, ' on ' || tests.dataset, '') as on_dataset
    from qa_model_comparisons as tests
    inner join qa_shown_models as own on tests.model = own.model
    inner join qa_shown_models as others on tests.other_model = others.model
    inner join places on tests.model = places.model and tests.dataset = places.dataset
    inner join places as other_places on tests.other_model = other_places.model and tests.dataset = other_places.dataset
    left join biases
        on tests.model = biases.model and tests.dataset = biases.dataset and tests.heuristic = biases.heuristic
    where
        own.place > others.place
        and (
            metric = 'exact_match'
            or (metric = 'gap' and tests.heuristic <> 'mean' and not places.is_few and not other_places.is_few)
        )
),

differing as (
    select
        dataset, any_value(on_dataset) as on_dataset, count_if(verdict in ('lower', 'higher')) as n_told,
        count_if(verdict <> 'too few') as n_tested, count_if(metric = 'exact_match') as n_pairs,
        list(
            format(
                '{} is {} points {} in {} than in {}', of_what,
                as_points(
                    100 * abs(estimate), 100 * if(estimate > 0, simultaneous_low, -simultaneous_high),
                    100 * if(estimate > 0, simultaneous_high, -simultaneous_low)
                ),
                if(metric = 'gap', if(verdict = 'lower', 'smaller', 'larger'), verdict), other_model, model
            )
            order by metric, abs(estimate) desc, place
        ) filter (verdict in ('lower', 'higher')) as told,
        list(distinct case reason
            when 'one article' then 'the questions of a group are about a single article'
            when 'other thresholds' then 'each model has thresholds of its own'
            when 'no threshold' then 'no shortcut has a threshold'
            when 'threshold by chance' then 'thresholds were searched on a bias that chance explains'
            when 'not measured for both' then 'no shortcut could be measured for both'
            when 'no question that both answered' then 'they answered no question in common'
            else reason
        end) filter (reason is not null) as reasons,
        min(n_articles) filter (verdict = 'too few') as n_articles,
        max(100 * smallest_detectable) filter (metric = 'gap') as gap, max(100 * smallest_detectable) filter (metric <> 'gap') as match
    from pairs
    group by dataset
),

counts as (
    select dataset, listed(list(format('{} in {}', name, n_told) order by name)) as told
    from (select dataset, name, count_if(verdict in ('lower', 'higher')) as n_told from pairs group by all)
    group by dataset
),

compared as (
    select
        on_dataset,
        case
            when n_told > 3 then format('of {}, these differ: {}.', counted(n_pairs, 'pair'), counts.told)
            when n_told > 0 then listed(differing.told) || '.'
            when n_tested > 0 then 'no difference is significant' || coalesce(
                    '; one test alone detects '
                    || listed(list_filter(
                        [as_points(gap) || ' points in the gap by a shortcut',
                            as_points(match) || ' points in exact match'],
                        lambda one: one not like '–%'
                    )) || ' in 4 of 5 runs',
                    ''
                ) || '.'
            else format(
                'no test can compare them: {}.',
                listed(list_concat(
                    list_sort(reasons), if(n_articles is null, [], [format('the questions are about only {} articles', n_articles)])
                ))
            )
        end as text
    from differing
    left join counts using (dataset)
),

-- Debiased readers, each on the bias that it addresses.
addressed as (
    select
        debiasing.model, debiasing.dataset, verdict, is_nearly_broken, reason,
        debiasing.worse_high, debiasing.standard_worse_high, if(verdict = 'lower' and is_supported, '; bias remains', '') as still,
        own.f1_verdict as f1_verdict, outside.f1_verdict as outside_verdict, outside.n_datasets,
        concat(
            if((select count(distinct (base, data)) from trained_models) > 1, debiasing.base || '@' || debiasing.data || ' ', ''),
            shown_training(debiasing.method), ' on ', debiasing.bias,
            if((select count(distinct seed) from trained_models) > 1, format(' (seed {})', debiasing.seed), ''),
            if((select count(distinct dataset) from places) > 1, ' measured on ' || debiasing.dataset, '')
        ) as label,
        significance_change,
        format(
            'bias significance {} → {}{} points', as_points(standard_significance), as_points(bias_significance),
            if(gap is null or standard_gap is null, '', format(' and gap {} → {}', as_points(standard_gap), as_points(gap)))
        ) as change,
        case
            when is_nearly_broken then 36
            when verdict is null or verdict = 'too few' then 35
            when verdict = 'higher' then 33
            when verdict <> 'lower' then 34
            when own.f1_verdict = 'lower' or outside.f1_verdict = 'lower' then 32
            when
                own.f1_verdict in ('higher', 'negligible')
                and coalesce(outside.f1_verdict, if(outside.model is null, 'negligible', 'unclear')) in ('higher', 'negligible')
                then 30
            else 31
        end as line
    from qa_debiasing as debiasing
    inner join (select distinct dataset from qa_examples where role = 'in_distribution') using (dataset)
    left join (select model, dataset, heuristic, is_supported from qa_bias_tests) using (model, dataset, heuristic)
    left join qa_out_of_distribution as own on own.model = debiasing.model and own.dataset = debiasing.dataset
    left join qa_out_of_distribution_by_model as outside on outside.model = debiasing.model
    where is_addressed
),

grades as (
    select
        line, count(*) as n,
        some_of(list(format('{} ({}{})', label, change, still) order by -abs(significance_change), label), 3) as told,
        some_of(list(label order by label), 3) as names,
        some_of(list(
            format('{} ({} against {} %)', label, as_points(worse_high), as_points(standard_worse_high)) order by label
        ), 3) as broken,
        listed(list(distinct coalesce(reason, 'too few articles'))) as reasons,
        (select count(*) from addressed) as n_all
    from addressed
    group by line
),

f1 as (
    select
        array_to_string(list(
            place || coalesce(nullif(concat_ws(' and ', 'falls in ' || some_of(lower, 3), 'rises in ' || some_of(higher, 3)), ''), 'is not shown to change')
            || format(' ({} tested)', counted(n, 'reader'))
            order by place
        ), '; ') as text
    from (
        select
            place, count(distinct split_part(label, ' measured on ', 1)) as n, list(label order by label) filter (verdict = 'lower') as lower,
            list(label order by label) filter (verdict = 'higher') as higher
        from (
            select 'in distribution, F1 ' as place, label, f1_verdict as verdict from addressed
            union all
            select distinct format('out of distribution ({}), F1 ', counted(n_datasets, 'set')), split_part(label, ' measured on ', 1), outside_verdict
            from addressed
        )
        where verdict is not null
        group by place
    )
    having count(*) > 0
),

lines as (
    select 1 as line, lead, if(text = '', '', capitalized(text) || '.') as text
    from headline
    union all
    select
        2, 'Ready to deploy?',
        format(
            '{}: it is right on {} % of the questions{}. Whether that is enough is your decision.',
            (
                select format(case
                        when bool_or(is_supported) and not most.is_constant then '{}, the most accurate model, only if its bias is acceptable'
                        when count(is_supported) > 0 and not most.is_unclear then 'Perhaps {}, the most accurate model'
                        else 'Whether {}, the most accurate model, is biased cannot be said'
                    end, name)
                from biases
                where (model, dataset) = (most.model, most.dataset)
            ),
            as_points(100 * exact_match),
            coalesce(', but where ' || (
                select format('{} {} {} on {} %', heuristic, if(side = 1, '>', '≤'), printf('%g', threshold), as_points(other_em))
                from biases
                where (model, dataset) = (most.model, most.dataset) and is_supported and not most.is_constant
                order by other_em
                limit 1
            ), (
                select if(
                    count(*) = 1, ', and its tested shortcut is not significant', format(', and none of its {} tested shortcuts is significant', count(*))
                )
                from biases
                where (model, dataset) = (most.model, most.dataset) and is_supported is not null
                having count(*) > 0 and not most.is_unclear
            ), '')
        )
    from (
        select
            model, dataset, exact_match, is_constant, is_constant or n_articles = 1 or has_few_right(exact_match) as is_unclear,
            concat(model, debiased, if(count(distinct dataset) over () > 1, ' on ' || dataset, '')) as name
        from qa_by_dataset
        inner join qa_models using (model)
        left join (
            select model, min(format(' (debiased by {} on {})', shown_training(method), bias)) as debiased from qa_debiasing group by model
        ) using (model)
        where role = 'in_distribution' and not is_people
        order by exact_match desc, number, dataset
        limit 1
    ) as most
    union all
    select 10 + line, name || ':', text
    from told
    where line <= 6
    union all
    select 17, 'Further models:', format('{} more, in the table.', count(*))
    from told
    where line > 6
    having count(*) > 0
    union all
    select 20, 'Exact match (%):', array_to_string(list(where_ || ', ' || told order by part, where_), '; ') || '.'
    from exact
    having count(*) > 0
    union all
    select 21, format('Models compared{}:', on_dataset), text
    from compared
    union all
    select
        line,
        ['Reduces bias:', 'Reduces bias, at an unclear price:', 'Reduces bias, at a price:', 'Bias rises:', 'No change of bias shown:', 'Not tested:',
            'Nearly broken:'][line - 29],
        case line
            when 30 then told || '. Tests rule out that F1 falls by a point or more.'
            when 31 then told || '. A loss of F1 cannot be excluded.'
            when 32 then told || '. F1 falls too.'
            when 33 then told || '.'
            when 34 then format('{} ({} of {}).', names, n, counted(n_all, 'debiased reader'))
            when 35 then format('{} of {} ({}).', n, counted(n_all, 'debiased reader'), reasons)
            else format(
                '{} of {}: {}. The exact match of their worse group is below two thirds of the standard reader''s, so a '
                || 'low bias is no success.', n, counted(n_all, 'debiased reader'), broken
            )
        end
    from grades
    union all
    select 37, 'F1 of debiased readers:', text || '.'
    from f1
    union all
    select
        38, 'Training:',
        counted(count(*), 'reader') || ' trained'
        || if(min(steps) < max(steps), format(' for {:,} to {:,} steps', min(steps), max(steps)), '')
        || if(count(problem) > 0, format('; {} failed, and the others are shown', count(problem)), '')
        || if(count(distinct seed) = 1, '. Each is a single training, and another seed gives another reader.', '.')
    from (select * replace (if(problem is null, steps, null) as steps) from trained_models)
    where method <> 'bias_model'
    having count(*) > 0
    union all
    select
        40, 'How sure:',
        concat(
            'the chance that any bias is a false alarm is about 5 % per data set.',
            if(
                (select count(p_adjusted) from qa_model_comparisons) > 0,
                ' So is the chance of any false difference between models, over all of them.', ''
            ),
            if((select count(*) from addressed) > 0, ' The same holds for all changes by debiasing, for these trainings.', ''),
            ' Each p of this page is corrected for all such tests. Intervals of one model''s gap or exact match are not corrected for the number of tests; those of differences between models are.'
        )
    from judged
    having count_if(word in ('biased', 'none')) > 0 or (select count(*) from addressed) > 0
)

select line, lead, text from lines order by all
