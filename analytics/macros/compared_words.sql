-- from compared_words('measured'): rows of a relation *_compared with their word and doubt. measures: 'performance',
-- 'bias', or 'partner' (of a metric that a word needs, which sentences leave out). A side that is not shown to be
-- better than always answering one label earns no praise: of performance the better side has to be, of bias both, as the bias of
-- a model that always gives one answer says nothing. doubt: which side is not; null where it does not matter.
create macro compared_words(measured) as table
with
sided as (
    select
        *,
        (verdict = 'higher') <> is_low_better as is_other_better,
        list_filter(
            [
                if(measures = 'performance' and is_other_better, null, {'name': against, 'is_above': is_above_constant}),
                if(
                    measures = 'performance' and not is_other_better, null,
                    {'name': who, 'is_above': other_is_above_constant}
                )
            ],
            lambda side: side is not null and side.is_above is distinct from true
        ) as doubted
    from query_table(measured)
),

doubts as (
    select
        * exclude (doubted),
        if(
            verdict in ('higher', 'lower') and len(doubted) > 0,
            listed(list_transform(doubted, lambda side: side.name)) || if(len(doubted) = 1, ' is ', ' are ')
            || if(len(list_filter(doubted, lambda side: side.is_above is null)) = 0, 'no', 'not shown to be')
            || ' better than always answering one label',
            null
        ) as doubt
    from sided
)

select
    * exclude (is_other_better),
    case
        when reason is not null then 'not tested: ' || reason
        when verdict is null then 'not measured'
        when verdict = 'too few' then format('not tested: too few {}s', unit)
        when verdict = 'unclear' and verdict_p <= 0.05 then format('differs, perhaps by less than {}', least_effect)
        when verdict = 'unclear' then 'no difference shown'
        when verdict = 'negligible' or doubt is not null then verdict
        when is_other_better then 'better'
        else 'worse'
    end as word
from doubts
