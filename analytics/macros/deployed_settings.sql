-- from deployed_settings('compared', 'best', metric): the settings of a comparison that a user would deploy: without
-- mitigation, of which the one is taken that has the highest values of the metric on both sides together, and the best
-- setting, which both sides share or which each has of its own (method 'best'). compared: the comparison, with setting, a
-- struct of columns; best: the best setting of each run. One row per (run, other_run, setting) of these: deployed, what a
-- sentence begins with about it; is_headline: the last of these.
create macro deployed_settings(compared, best, of_metric) as table
with
settings as (
    select
        compared.run, compared.other_run, setting, compared.method, compared.n_demos,
        any_value(value + other_value) filter (metric = of_metric) as score,
        coalesce(bool_and(compared.method = 'best' or [own.best, other.best] = [setting, setting]), false) as is_best
    from query_table(compared) as compared
    left join query_table(best) as own using (run)
    left join query_table(best) as other on compared.other_run = other.run
    group by all
)

select
    run, other_run, setting,
    case method
        when 'none' then 'Without mitigation'
        when 'best' then 'Each in its best setting'
        else 'With the best supported mitigation'
    end as deployed,
    method <> 'none' or not bool_or(method <> 'none' and is_best) over (partition by run, other_run) as is_headline
from settings
where method = 'none' or is_best
qualify row_number() over (partition by run, other_run, method = 'none' order by score desc nulls last, n_demos desc, setting) = 1
