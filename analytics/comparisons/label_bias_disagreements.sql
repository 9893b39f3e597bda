-- One row per ordered pair (run, other_run), task, n_demos, demo_set, method and main row of the tasks that both share
-- (label_bias_shared_tasks) where exactly one of the two predicts the gold label: is_win: other_run does. input: the
-- beginning of what follows the context. shuffled: puts the rows in an order that has nothing to do with them.
with

predictions as (

    select
        run,
        task,
        n_demos,
        demo_set,
        method,
        row,
        prompt_id,
        instance_id,
        gold,
        prediction,
        prediction = gold as is_right
    from calibrated_predictions
    where format = 'base' and purpose = 'main'

)

select
    own.run,
    other.run as other_run,
    task,
    n_demos,
    demo_set,
    method,
    row,
    own.instance_id,
    left(trim(regexp_replace(prompts.input_text, '\s+', ' ', 'g')), 200) as input,
    own.gold,
    own.prediction,
    other.prediction as other_prediction,
    other.is_right as is_win,
    md5(concat_ws('/', task, n_demos, demo_set, row)) as shuffled
from predictions as own
inner join predictions as other using (task, n_demos, demo_set, method, row)
inner join label_bias_shared_tasks as shared
    on own.run = shared.run and other.run = shared.other_run and task = shared.task and shared.has_same_rows
inner join prompts on own.run = prompts.run and own.prompt_id = prompts.prompt_id
where own.run <> other.run and own.is_right <> other.is_right
