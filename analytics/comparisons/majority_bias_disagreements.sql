-- One row per ordered pair (run, other_run) of runs over the same test rows and settings (majority_bias_shared), n_demos,
-- instruction, predict, method, setting, seed and test row where exactly one of the two predicts the gold label: is_win:
-- other_run does. input: the beginning of what follows the context. prediction, other_prediction: null where the output
-- is no label. shuffled: puts the rows in an order that has nothing to do with them.
with

predictions as (

    select
        *,
        coalesce(prediction = gold, false) as is_right
    from majority_predictions

)

select
    own.run,
    other.run as other_run,
    n_demos,
    instruction,
    predict,
    method,
    setting,
    seed,
    row,
    prompts.instance_id,
    left(trim(regexp_replace(prompts.input_text, '\s+', ' ', 'g')), 200) as input,
    own.gold,
    own.prediction,
    other.prediction as other_prediction,
    other.is_right as is_win,
    md5(concat_ws('/', setting, seed, row, instruction)) as shuffled
from (
    select
        run,
        other_run
    from majority_bias_shared
    where is_comparable
) as pairs
inner join predictions as own using (run)
inner join predictions as other using (n_demos, instruction, predict, method, setting, seed, row)
inner join prompts on own.run = prompts.run and own.prompt_id = prompts.prompt_id
where other.run = pairs.other_run and own.is_right <> other.is_right
