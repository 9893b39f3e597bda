-- compared_phrase(told, high, low, thing): the verdicts of one kind of metric on a side, as a part of a headline. told:
-- a list of {'word', 'shown', 'doubt'}; high, low: the words for better and worse; thing: the quantity that the metrics measure.
create macro compared_phrase(told, high, low, thing) as
    case
        when len(told) = 0 then null
        when len(list_filter(told, lambda one: one.word in ('better', 'worse'))) > 0 then concat_ws(
            ' and ', high || listed([one.shown for one in told if one.word = 'better']),
            low || listed([one.shown for one in told if one.word = 'worse'])
        )
        when len(list_filter(told, lambda one: one.word in ('higher', 'lower'))) > 0
            then format('no verdict on {}, because {} there', thing, listed(list_sort(list_distinct([one.doubt for one in told if one.doubt is not null]))))
        when len(list_filter(told, lambda one: one.word not like 'not %')) = 0 then thing || ' cannot be tested'
        when len(list_filter(told, lambda one: one.word <> 'negligible')) = 0 then 'no more than a negligible difference in ' || thing
        when len(list_filter(told, lambda one: one.word like 'differs%')) > 0 then thing || ' differs, perhaps negligibly'
        else thing || ' is not shown to differ'
    end
