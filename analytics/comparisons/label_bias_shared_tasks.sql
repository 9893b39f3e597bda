-- One row per ordered pair (run, other_run) of label-bias runs and task that both have, by its name: whether they have
-- the same of it. has_same_rows: the main rows are the same: row, instance, gold label and, where splits are stored, input,
-- and so is the label set; only such tasks are compared. has_same_bias_score_rows: the same of the rows of BiasScore.
-- has_same_inputs: what follows the context has the same text (another format of prompts has not). has_same_sets: the
-- same demonstration sets at each number of demonstrations that both have. has_same_contexts: those that both have are
-- the same text. n_rows, n_other_rows: main rows of each run.
with

rows_of as (

    select
        prompts.run,
        prompts.task,
        prompts.purpose,
        prompts.row,
        min(prompts.instance_id) as instance_id,
        min(prompts.gold) as gold,
        min(prompts.input_text) as input_text
    from prompts
    where prompts.format = 'base' and prompts.purpose in ('main', 'bias_score')
    group by all

),

lists as (

    select
        rows_of.run,
        rows_of.task,
        count(*) filter (rows_of.purpose = 'main') as n_rows,
        list(hash(rows_of.row, rows_of.instance_id, rows_of.gold, splits.input) order by rows_of.row)
            filter (rows_of.purpose = 'main') as main_rows,
        list(hash(rows_of.row, rows_of.instance_id, rows_of.gold, splits.input) order by rows_of.row)
            filter (rows_of.purpose = 'bias_score') as bias_score_rows,
        list(hash(rows_of.purpose, rows_of.row, rows_of.input_text) order by rows_of.purpose, rows_of.row) as inputs
    from rows_of
    left join splits
        on
            rows_of.run = splits.run
            and rows_of.task = splits.task
            and rows_of.instance_id = splits.instance_id
            and rows_of.purpose = splits.role
    group by all

),

labelled as (

    select
        lists.*,
        tasks.labels
    from lists
    inner join tasks using (run, task)

),

sets as (

    select
        contexts.run,
        contexts.task,
        contexts.n_demos,
        contexts.demo_set,
        min(hash(contexts.text)) as text_hash
    from contexts
    semi join (select * from prompts where format = 'base' and purpose = 'main') as main using (run, context_id)
    group by all

),

set_lists as (

    select
        run,
        task,
        n_demos,
        list(demo_set order by demo_set) as demo_sets
    from sets
    group by all

),

same_sets as (

    select
        set_lists.run,
        other.run as other_run,
        set_lists.task,
        bool_and(set_lists.demo_sets = other.demo_sets) as has_same_sets
    from set_lists
    inner join set_lists as other
        on
            set_lists.run <> other.run
            and set_lists.task = other.task
            and set_lists.n_demos = other.n_demos
    group by all

),

same_contexts as (

    select
        sets.run,
        other.run as other_run,
        sets.task,
        bool_and(sets.text_hash = other.text_hash) as has_same_contexts
    from sets
    inner join sets as other
        on
            sets.run <> other.run
            and sets.task = other.task
            and sets.n_demos = other.n_demos
            and sets.demo_set = other.demo_set
    group by all

)

select
    labelled.run,
    other.run as other_run,
    task,
    labelled.n_rows,
    other.n_rows as n_other_rows,
    coalesce(labelled.labels = other.labels and labelled.main_rows = other.main_rows, false) as has_same_rows,
    coalesce(labelled.bias_score_rows = other.bias_score_rows, false) as has_same_bias_score_rows,
    labelled.inputs = other.inputs as has_same_inputs,
    coalesce(same_sets.has_same_sets, false) as has_same_sets,
    coalesce(same_contexts.has_same_contexts, false) as has_same_contexts
from labelled
inner join labelled as other using (task)
left join same_sets on labelled.run = same_sets.run and other.run = same_sets.other_run and task = same_sets.task
left join same_contexts
    on labelled.run = same_contexts.run and other.run = same_contexts.other_run and task = same_contexts.task
where labelled.run <> other.run
order by all
