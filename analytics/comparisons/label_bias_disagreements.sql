-- One row per ordered pair (run, other_run), task, n_demos, demo_set, method and main row of the tasks that both share
-- (label_bias_shared_tasks) where exactly one of the two predicts the gold label: is_win: other_run does. input: the
-- beginning of the text after the context. shuffled: puts the rows in an order that has nothing to do with them.
select
    run, other_run, task, n_demos, demo_set, method, row, instance_id,
    left(trim(regexp_replace(prompts.input_text, '\s+', ' ', 'g')), 200) as input,
    answers.gold, prediction, other_prediction, other_prediction = answers.gold as is_win,
    md5(concat_ws('/', task, n_demos, demo_set, row)) as shuffled
from paired_answers('calibrated_predictions', 'label_bias_shared_tasks', ['task', 'n_demos', 'demo_set', 'method', 'format', 'purpose', 'row']) as answers
inner join prompts using (run, prompt_id, task, n_demos, demo_set, row, purpose, format)
where has_same_rows and format = 'base' and purpose = 'main' and (prediction = answers.gold) <> (other_prediction = answers.gold)
