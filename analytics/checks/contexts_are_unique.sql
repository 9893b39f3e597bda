-- Rows here: a context_id that names more than one context.
select
    format('context {} occurs {} times', context_id, count(*)) as problem,
    context_id
from contexts
group by context_id
having count(*) > 1
order by context_id
