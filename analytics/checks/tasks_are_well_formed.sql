-- Rows here: a task that occurs twice, or whose labels are not distinct and in code-point order.
with

repeated as (

    select
        format('task {} occurs {} times', task, count(*)) as problem,
        task
    from tasks
    group by task
    having count(*) > 1

),

unordered as (

    select
        format('task {} has labels {}: not distinct and in code-point order', task, labels_text) as problem,
        task
    from (select *, coalesce(labels::varchar, 'null') as labels_text from tasks)
    where
        coalesce(len(labels), 0) = 0
        or labels is distinct from list_sort(list_distinct(labels))

)

select * from repeated
union all
select * from unordered
order by all
