-- from deployed_settings('settings'): the settings of a comparison that a user would deploy: without mitigation, of which
-- the one with the highest score is taken, then the first by tie, and the best setting (is_best), which both sides share
-- or which each has of its own (method 'best'). settings: by run, other_run and setting (a struct of columns), method,
-- is_best, score and tie. One row per (run, other_run, setting) of these: deployed, what a sentence begins with about it;
-- is_headline: the last of these.
create macro deployed_settings(settings) as table
select
    run, other_run, setting,
    case method
        when 'none' then 'Without mitigation'
        when 'best' then 'Each in its best setting'
        else 'With the best supported mitigation'
    end as deployed,
    method <> 'none' or not bool_or(method <> 'none' and is_best) over (partition by run, other_run) as is_headline
from query_table(settings)
where method = 'none' or is_best
qualify row_number() over (partition by run, other_run, method = 'none' order by score desc nulls last, tie) = 1
