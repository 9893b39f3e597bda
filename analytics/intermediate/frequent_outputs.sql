-- One row per (is_adapted, text, prediction): the ten most frequent outputs of free generation, without and with
-- adapters, with the label that each was taken for (null: none), and the share that it is of all.
with
outputs as (
    select *, false as is_adapted from generations
    union all
    select *, true as is_adapted from adapted_generations
)

select
    is_adapted, text, prediction, count(*) as n_outputs,
    count(*) / sum(count(*)) over (partition by is_adapted) as share
from outputs
where mode = 'generate'
group by is_adapted, text, prediction
qualify row_number() over (partition by is_adapted order by n_outputs desc, text, prediction) <= 10
