-- One row per ordered pair (run, other_run) of label-bias runs and task that both have, by its name: whether they have
-- the same of it. has_same_rows: the main rows are the same: row, instance, gold label and, where splits are stored,
-- input, and so is the label set; only such tasks are compared. has_same_bias_score_rows: the same of the rows of
-- BiasScore. has_same_inputs: the text after the context is the same (another format of prompts has not).
-- has_same_sets: the same demonstration sets at each number of demonstrations that both have. has_same_contexts: those
-- that both have are the same text. n_rows, n_other_rows: main rows of each run.
with
rows_of as (
    select
        prompts.run, prompts.task, prompts.purpose, prompts.row, min(prompts.instance_id) as instance_id,
        min(prompts.gold) as gold, min(prompts.input_text) as input_text
    from prompts
    where prompts.format = 'base' and prompts.purpose in ('main', 'bias_score')
    group by all
),

lists as (
    select
        rows_of.run, rows_of.task, count(*) filter (rows_of.purpose = 'main') as n_rows,
        list(hash(rows_of.row, rows_of.instance_id, rows_of.gold, splits.input) order by rows_of.row)
            filter (rows_of.purpose = 'main') as main_rows,
        list(hash(rows_of.row, rows_of.instance_id, rows_of.gold, splits.input) order by rows_of.row)
            filter (rows_of.purpose = 'bias_score') as bias_score_rows,
        list(hash(rows_of.purpose, rows_of.row, rows_of.input_text) order by rows_of.purpose, rows_of.row) as inputs
    from rows_of
    left join splits
        on
            rows_of.run = splits.run and rows_of.task = splits.task and rows_of.instance_id = splits.instance_id
            and rows_of.purpose = splits.role
    group by all
),

labelled as (
    from lists
    inner join (select run, task, labels from tasks) using (run, task)
),

sets as (
    select run, task, n_demos, list(demo_set order by demo_set) as demo_sets, list(hash(demo_set, text_hash)) as texts
    from (
        select run, task, n_demos, demo_set, min(hash(text)) as text_hash
        from contexts
        semi join (select * from prompts where format = 'base' and purpose = 'main') as main using (run, context_id)
        group by all
    )
    group by all
),

same as (
    select
        sets.run, other.run as other_run, task, bool_and(sets.demo_sets = other.demo_sets) as has_same_sets,
        bool_and(len(list_intersect(sets.demo_sets, other.demo_sets)) = len(list_intersect(sets.texts, other.texts))) as has_same_contexts
    from sets
    inner join sets as other using (task, n_demos)
    group by all
)

select
    labelled.run, other.run as other_run, task, labelled.n_rows, other.n_rows as n_other_rows,
    coalesce(labelled.labels = other.labels and labelled.main_rows = other.main_rows, false) as has_same_rows,
    coalesce(labelled.bias_score_rows = other.bias_score_rows, false) as has_same_bias_score_rows,
    labelled.inputs = other.inputs as has_same_inputs, coalesce(has_same_sets, false) as has_same_sets,
    coalesce(has_same_contexts, false) as has_same_contexts
from labelled
inner join labelled as other using (task)
left join same on labelled.run = same.run and other.run = same.other_run and task = same.task
where labelled.run <> other.run
order by all
