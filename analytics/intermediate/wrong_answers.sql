-- One row per (task, n_demos, demo_set, method, row) of main that is wrong: the input, and the output.
-- probability, gold_probability: of the prediction and of the gold label, calibrated as the method does. is_preferred:
-- the prediction is the label that is predicted most beyond its gold rows, over the sets (the first in code-point order
-- on ties). place: from 1 among those of one (task, n_demos, method, is_preferred), by a hash of the row, so that the
-- first ones are a sample. input_text: the text after the demonstrations.
with
beyond as (
    select task, n_demos, method, label, sum(n_predicted - n_gold) as n_beyond
    from label_bias_by_label
    group by all
),

preferred as (
    select task, n_demos, method, first(label order by n_beyond desc, label) as label
    from beyond
    group by all
),

wrong as (
    select
        prompt_id, task, n_demos, demo_set, method, row, instance_id, gold, prediction,
        probabilities[list_position(labels, prediction)] as probability,
        probabilities[list_position(labels, gold)] as gold_probability
    from calibrated_predictions
    where format = 'base' and purpose = 'main' and prediction <> gold
)

select
    wrong.task, wrong.n_demos, wrong.demo_set, wrong.method, wrong.row, wrong.instance_id, wrong.gold, wrong.prediction,
    wrong.probability, wrong.gold_probability, wrong.prediction = preferred.label as is_preferred,
    row_number() over (
        partition by wrong.task, wrong.n_demos, wrong.method, wrong.prediction = preferred.label
        order by md5(concat_ws('/', wrong.task, wrong.row, wrong.demo_set))
    ) as place,
    prompts.input_text
from wrong
inner join preferred using (task, n_demos, method)
inner join prompts using (prompt_id)
