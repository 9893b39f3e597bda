-- Rows here: a prompt_id that names more than one prompt.
select
    format('prompt {} occurs {} times', prompt_id, count(*)) as problem,
    prompt_id
from prompts
group by prompt_id
having count(*) > 1
order by prompt_id
