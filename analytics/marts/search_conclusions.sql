-- One row per conclusion of a search: line, its place; lead, its first words; text. Words of judgement are
-- verdicts of search_best, search_trials and search_verdicts.
with
setting as (
    select
        settings.*, objective, is_maximized,
        if(is_maximized, 'higher is better', 'lower is better') as direction,
        case choose_on
            when 'half' then 'the tuning half' when 'held_out' then 'the held-out rows' else 'all data'
        end as chose,
        case choose_on when 'half' then 'the evaluation half' when 'held_out' then 'the main rows' end as unseen,
        searched <> 'qa_bias' as has_constant, if(len(per) > 0, listed(per), null) as scopes
    from search_settings as settings
    cross join search_objectives
),

best as (
    select
        search_best.* exclude (is_maximized), setting.* exclude (name, choose_on, algorithm, shared_steps, objective),
        has_constant and is_above_constant is distinct from true as is_unpraised,
        if(is_above_constant is false, 'is no better than', 'is not shown to be better than')
        || ' always answering one label' as beside
    from search_best, setting
),

single as (
    from best
    where scopes is null
),

-- Chosen values of one key at the end of those that were tried.
borders as (
    select
        listed(list(format('{} {} ({})', key, as_number(own), if(own = least, 'smallest', 'largest')) order by key)) as text,
        count(*) as n
    from (
        select
            regexp_extract(key, '([^.]+)$', 1) as key, min(number) as least, max(number) as most,
            any_value(number) filter (trial = (select any_value(trial) from single)) as own
        from search_parameters
        group by key
        having count(distinct number) > 2 and count(number) = count(*)
    )
    where own in (least, most)
),

states as (
    select
        sum(n_trials) as n, coalesce(any_value(n_trials) filter (state = 'done'), 0) as n_done,
        coalesce(any_value(n_trials) filter (state = 'stopped'), 0) as n_stopped,
        coalesce(any_value(n_trials) filter (state = 'failed'), 0) as n_failed, sum(steps) as steps
    from search_costs
),

lines as (
    select
        1 as line,
        format(
            '{}: {} (of {}).',
            case
                when n_tested = 0 or n_done < 2 then 'Chosen'
                when n_told_worse < n_tested then 'Chosen, but not shown to be the best'
                when is_unpraised then 'The best number'
                else 'Best'
            end,
            as_point(parameters), counted(n_done, 'trial')
        ) as lead,
        format(
            '{} ({}) is {} on {}', objective, direction, as_number(value, value_low, value_high),
            if(unseen is null, 'the data that it was chosen on', chose)
        )
        || if(
            unseen is null, '.',
            format(
                ', and {} on {}, which did not choose.', as_number(evaluation, evaluation_low, evaluation_high), unseen
            )
        ) as text
    from single
    where trial is not null
    union all
    select
        1, format('A point is chosen for each {}.', any_value(scopes)),
        format(
            '{} of {}; of {} (higher or lower is better as the query asks) the table below has each.',
            count(*), any_value(scopes), any_value(objective)
        )
    from best
    where scopes is not null
    having count(*) > 0
    union all
    select 1, 'Nothing is chosen.', 'No trial is done.'
    where not exists (select 1 from best)
    union all
    select 2, 'At the border:', format('{} of those tried; a better value may lie beyond, so extend the range.', text)
    from borders
    where n > 0
    union all
    select 3, 'Compared with always answering one label:', format('in the settings that {} is computed from, the chosen trial {}.', objective, beside)
    from single
    where is_unpraised
    union all
    select
        3, 'Compared with always answering one label:',
        format(
            'in the settings that {} is computed from, the chosen trial is not shown to be better in {} of {}.', any_value(objective),
            count_if(is_unpraised), count(*)
        )
    from best
    where scopes is not null
    having bool_or(is_unpraised)
    union all
    select
        4, 'Other trials:',
        case
            when n_done < 2 then 'no other trial is done, so there was nothing to choose from.'
            when n_compared = 0 then 'no difference has an interval, so nothing says which trials are as good.'
            else format(
                'on {}, the interval of the difference includes 0 for {} of {} other trials{}',
                chose, n_within_noise, n_compared,
                if(
                    n_within_noise = 0 or flat_low is null, '',
                    if(flat_low = flat_high, format(' (at {})', as_number(flat_low)),
                        format(' (at {} to {})', as_number(flat_low), as_number(flat_high)))
                )
            )
            || if(
                n_tested = 0, '.',
                format(
                    '; on {}, tests of all together find {} worse and {} better of {}{}.', unseen, n_told_worse,
                    n_told_better, n_tested,
                    if(n_told_worse + n_told_better = 0, ': these data do not say which trial is best', '')
                )
            )
        end
    from single
    union all
    select
        4, 'Other trials:',
        format(
            'on {}, in {} of {} {} the intervals of all differences from the chosen trial include 0.', any_value(chose),
            count_if(n_within_noise = n_compared), count(*), any_value(scopes) || 's'
        )
    from best
    where scopes is not null and n_compared > 0
    having count(*) > 0
    union all
    select
        5, 'Gain over the mean of all trials:',
        format(
            '{} on {}: {}.', as_number(evaluation_gain, evaluation_gain_low, evaluation_gain_high), unseen,
            case evaluation_gain_verdict
                when 'higher' then if(is_unpraised, 'the number is better, and the trial ' || beside, 'better than their mean')
                when 'lower' then 'worse than their mean'
                when 'unclear' then 'no gain is shown'
                else 'without a test nothing is shown'
            end
        )
    from single
    where n_done > 1 and evaluation_gain is not null
    union all
    select
        5, 'Gain over the mean of all trials:',
        format(
            'on {}, better in {} of {} {}, worse in {}.', any_value(unseen), count_if(evaluation_gain_verdict = 'higher'),
            count(*), any_value(scopes) || 's', count_if(evaluation_gain_verdict = 'lower')
        )
    from best
    where scopes is not null and evaluation_gain_verdict is not null
    having count(*) > 0
    union all
    select
        6, format('Over each {} together:', scopes),
        format(
            'the gain of {} is {} on average: {}.', setting.objective, as_number(estimate, low, high),
            case verdict
                when 'higher' then if(
                    (select bool_or(is_unpraised) from best), 'choosing improves ' || setting.objective, 'choosing helps'
                )
                when 'lower' then 'choosing hurts'
                when 'negligible' then 'choosing changes less than the smallest effect of interest'
                when 'unclear' then 'nothing shows that choosing helps'
                else 'fewer than six are too few to say'
            end
        )
    from search_verdicts, setting
    union all
    select
        8, 'Trials:',
        format(
            '{} of {}{}{}{}.', counted(n, 'trial'),
            listed(list_transform(keys, lambda key: regexp_extract(key, '([^.]+)(\.\*)?$', 0))),
            case algorithm
                when 'grid' then ', all combinations' when 'random' then ', drawn at random'
                else format(', chosen by Optuna, {} at a time', batch)
            end,
            format(': {} done', n_done) || if(n_stopped > 0, format(', {} stopped early', n_stopped), '')
            || if(n_failed > 0, format(', {} failed', n_failed), ''),
            if(steps > 0, format('; they took {}', counted(steps, 'optimizer step')), '')
            || if(shared_steps > 0, format('; they share {}', counted(shared_steps, 'step')), '')
        )
    from states, setting
)

select line, lead, text from lines order by all
