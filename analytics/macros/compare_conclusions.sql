-- from compare_conclusions('compared', 'conclusions'): sentences on every ordered pair of sides of a relation *_compared:
-- run, other_run, who, against, line, lead, text. The headline and the lines after it are of the settings that a user
-- would deploy. conclusions: those of each run alone, which say whether each is ready.
create macro compare_conclusions(compared, conclusions) as table
with
told as (
    from query_table(compared)
    where measures <> 'partner'
),

pairs as (
    select
        run, other_run, who, against, any_value(scope) as scope, any_value(holds_for) as holds_for,
        count(*) as n, bool_or(is_mitigated) as has_mitigation,
        coalesce(bool_and(estimate = 0), false) as is_without_difference,
        sum(n_predictions) filter (number = 1)::bigint as n_predictions,
        sum(n_differing) filter (number = 1)::bigint as n_differing
    from told
    group by run, other_run, who, against
),

heads as (
    select
        run, other_run, who, against, is_headline, deployed,
        deployed like 'Each %' as is_of_each, any_value(place) as place,
        if(deployed = 'On', 'on ', '') || any_value(place) as setting,
        compared_phrase(
            list({'word': word, 'shown': shown, 'doubt': doubt} order by number, shown) filter (measures = 'performance'),
            'better ', 'worse ', 'performance'
        ) as performance,
        compared_phrase(
            list({'word': word, 'shown': shown, 'doubt': doubt} order by number, shown) filter (measures = 'bias'),
            'less bias in ', 'more bias in ', 'bias'
        ) as bias,
        case
            when bool_or(word = 'better') and bool_or(word = 'worse') then 'Mixed'
            when bool_or(word = 'better') then 'Better'
            when bool_or(word = 'worse') then 'Worse'
        end as overall,
        overall in ('Better', 'Worse') and not bool_or(word in ('better', 'worse') and measures = 'performance') as is_bias_first,
        not bool_or(word in ('better', 'negligible') and measures = 'performance') as is_open, bool_or(doubt is not null) as has_doubt,
        any_value(format('In {} neither is as good as always answering one label.', shown))
            filter (number = 1 and measures = 'performance' and greatest(value, other_value) < baseline) as warning
    from told
    where is_first and (is_headline or deployed = 'Without mitigation')
    group by run, other_run, who, against, is_headline, deployed
),

detectable as (
    select run, other_run, who, against, listed(list(if(shown in ('accuracy', 'exact match', 'F1'), as_points(100 * least) || ' points of ', as_rate(least) || ' in ') || shown order by number)) as told
    from (
        select run, other_run, who, against, number, any_value(shown) as shown, max(verdict_smallest_detectable) as least
        from told
        where verdict = 'unclear' and metric <> 'gap' and verdict_smallest_detectable > 0 and is_first and is_headline
        group by all
    )
    group by run, other_run, who, against
),

lines as (
    select
        run, other_run, who, against, 1 as line,
        case
            when is_without_difference and n_differing = 0 then 'Identical.'
            when is_without_difference then 'No metric differs.'
            else if(heads.is_of_each, 'With each in its best setting, ', '') || case overall
                when 'Better' then format('{} is {} than {}', who, if(is_bias_first, 'less biased', 'better'), against)
                when 'Worse' then format('{} is {} than {}', who, if(is_bias_first, 'more biased', 'worse'), against)
                else format('{} is compared with {}{}', who, against, if(overall = 'Mixed', ', with mixed results', ''))
            end || if(is_bias_first, ', measured by ', ': ')
                || concat_ws('; ', if(is_bias_first, regexp_replace(bias, '^(less|more) bias in ', ''), performance), if(is_bias_first, performance, bias)) || '.'
        end as lead,
        case
            when is_without_difference then format('{} against {}, on {}: all {} are 0, and ', who, against, scope, counted(n, 'difference'))
                || if(n_differing = 0, 'not one', format('{:,}', coalesce(n_differing, 0)))
                || format(' of {} {}.', counted(coalesce(n_predictions, 0), 'prediction'), if(n_differing < 2, 'differs', 'differ'))
            else format('{}; shared: {}.', capitalized(setting), scope)
        end as text
    from pairs
    left join (select * from heads where is_headline) as heads using (run, other_run, who, against)
    union all
    select
        run, other_run, who, against, 3, 'With no mitigation on either side:',
        format(
            '{} against {}{}: {}.', who, against, if(starts_with(place, 'no mitigation'), replace(place, 'no mitigation', ''), ''),
            concat_ws('; ', performance, bias)
        )
    from heads
    inner join pairs using (run, other_run, who, against)
    where not is_headline and not is_without_difference and coalesce(performance, bias) is not null
    union all
    select
        run, other_run, who, against, 2, format('Switch from {} to {}?', against, who),
        case
            when overall = 'Worse' then 'No: the tests speak against it'
            when overall = 'Mixed' then 'Weigh the gain against the loss'
            when overall = 'Better' and not is_open then 'The tests speak for it'
            when overall = 'Better' then 'Bias is less, and a loss of performance is not ruled out'
            when has_doubt then 'Cannot be said, as a side is not shown to be better than always answering one label'
            else 'No test speaks for it or against it'
        end || if(setting like 'on %', ', ' || setting, '') || '.' || coalesce(' ' || warning, '')
    from heads
    inner join pairs using (run, other_run, who, against)
    where is_headline and not is_without_difference
    union all
    select
        pairs.run, other_run, who, against, 4, replace(own.lead, 'deploy', 'deploy ' || own.run), own.text
    from pairs
    inner join query_table(conclusions) as own on own.run in (pairs.run, other_run)
    where own.lead like '%deploy%'
    qualify row_number() over (partition by pairs.run, other_run, own.run order by who, against) = 1
    union all
    select
        run, other_run, who, against, 5, 'Compared first without mitigation:',
        'of the calibrations and adapters that both runs have, none is shown to reduce bias without a loss.'
    from told
    inner join pairs using (run, other_run, who, against)
    where deployed = 'Without mitigation' and is_headline and not is_without_difference and has_mitigation
    group by run, other_run, who, against
    union all
    select
        run, other_run, who, against, 9, 'How sure:',
        format(
            'the chance of any false finding is about 5 %, for {}. In the tables of differences, p is corrected for all their tests.{} "No difference shown" and "not shown to differ" mean that these data cannot tell.',
            holds_for, coalesce(format(' In the settings of the headline, the runs may miss differences of up to {}.', detectable.told), '')
        )
    from pairs
    left join detectable using (run, other_run, who, against)
)

select
    run, other_run, who, against,
    row_number() over (partition by run, other_run, who, against order by line, lead) as line,
    lead, text
from lines
order by all
