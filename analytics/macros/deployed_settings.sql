-- from deployed_settings('settings'): the settings of a comparison that a user would deploy, the same for both sides:
-- without mitigation, and with the one that most of the two runs support. settings: by run, other_run and place (a
-- struct of columns), method, n_supported (runs that support it) and score: of settings alike the one with the highest
-- score is taken, then the first by tie. One row per (run, other_run, place) of these: deployed, what a sentence begins
-- with about it; is_headline: the last of these.
create macro deployed_settings(settings) as table
select
    run, other_run, unnest(place),
    case method
        when 'none' then 'Without mitigation'
        when 'best' then 'Each in its best setting'
        else 'With the best supported mitigation'
    end as deployed,
    method <> 'none' or not bool_or(method <> 'none' and n_supported > 0) over (partition by run, other_run)
        as is_headline
from query_table(settings)
where method = 'none' or n_supported > 0
qualify row_number() over (
    partition by run, other_run, method = 'none'
    order by if(method = 'none', 0, n_supported) desc, score desc nulls last, tie
) = 1
