-- One row per ordered pair (run, other_run) of runs over the same test rows and settings (majority_bias_shared),
-- n_demos, instruction, predict, method, setting, seed and test row where exactly one of the two predicts the gold
-- label: is_win: other_run does. input: the beginning of the text after the context. prediction, other_prediction: null
-- where the output is no label. shuffled: puts the rows in an order that has nothing to do with them.
with
pairs as (
    select run, other_run
    from majority_bias_shared
    where is_comparable
)

select
    answers.run, other_run, answers.n_demos, instruction, predict, method, setting, seed, answers.row,
    prompts.instance_id,
    left(trim(regexp_replace(prompts.input_text, '\s+', ' ', 'g')), 200) as input,
    answers.gold, prediction, other_prediction, coalesce(other_prediction = answers.gold, false) as is_win,
    md5(concat_ws('/', setting, seed, answers.row, instruction)) as shuffled
from paired_answers('majority_predictions', 'pairs', ['n_demos', 'instruction', 'predict', 'method', 'setting', 'seed', 'row']) as answers
inner join prompts using (run, prompt_id)
where coalesce(prediction = answers.gold, false) <> is_win
