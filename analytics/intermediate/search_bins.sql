-- One row per (trial that is done, objective, scope, searched key): the bin of the key's value. Keys with at most 6
-- values have one for each; of the others numbers are cut into four bins with about as many trials, and texts have one
-- for each.
with
counts as (
    select key, count(distinct value) as n_values, count(number) = count(*) as are_numbers
    from search_parameters
    inner join trials using (trial)
    where state = 'done'
    group by all
),

binned as (
    select
        search_parameters.trial, key, search_parameters.value as text, number,
        case when are_numbers and n_values > 6 then ntile(4) over (partition by key order by number, trial) end as quarter
    from search_parameters
    inner join counts using (key)
    inner join trials using (trial)
    where trials.state = 'done'
)

select binned.trial, objective, scope, key, coalesce(quarter::varchar, text) as bin, number, search_values.value
from binned
inner join search_values using (trial)
where sample = 'choice'
