-- One row per (scope, trial that has its objectives): whether it is on the front, which no other trial beats, and whether it
-- is chosen. A trial beats another that is nowhere better and somewhere worse. Of the front that is chosen which is nearest
-- to the best of every objective, each scaled to its range on the front; with one objective the best; of equals the first.
with

signed as (

    select
        trial,
        scope,
        objective,
        if(is_maximized, value, -value) as value
    from search_values
    inner join search_objectives using (objective)
    where sample = 'choice'

),

-- Trials that lack an objective of a scope cannot be compared there.
whole as (

    select
        trial,
        scope
    from signed
    group by all
    having count(*) = (select count(*) from search_objectives)

),

lists as (

    select
        trial,
        scope,
        list(value order by objective) as own
    from signed
    semi join whole using (trial, scope)
    group by all

),

-- Equal trials stand or fall together.
points as (

    select distinct
        scope,
        own
    from lists

),

-- What is beaten is so by one of these: of equals in all other objectives, the best in the first.
leaders as (

    select
        scope,
        arg_max(own, own[1]) as own
    from points
    group by scope, own[2:]

),

beaten as (

    select distinct
        points.scope,
        points.own
    from points
    inner join leaders as other using (scope)
    where
        points.own <> other.own
        and list_bool_and(list_transform(list_zip(points.own, other.own), lambda pair: pair[1] <= pair[2]))

),

front as (

    select
        signed.*
    from signed
    inner join lists using (trial, scope)
    anti join beaten using (scope, own)

),

ranges as (

    select
        scope,
        objective,
        max(value) as best,
        max(value) - min(value) as width
    from front
    group by all

),

distances as (

    select
        trial,
        scope,
        sum(if(width > 0, (best - value) / width, 0) ** 2 order by objective) as distance
    from front
    inner join ranges using (scope, objective)
    group by all

),

nearest as (

    select
        scope,
        arg_min(trial, (round(distance, 12), trial)) as trial
    from distances
    group by all

)

select
    whole.trial,
    whole.scope,
    distances.distance is not null as is_on_front,
    nearest.trial is not null as is_chosen
from whole
left join distances using (trial, scope)
left join nearest using (trial, scope)
