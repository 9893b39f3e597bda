-- One row per (task, n_demos, instruction, setting, seed, predict, method, label): share_predicted, the predictions of
-- the label among all (no label is an answer too); share_shown, its share of the demonstrations; is_last, whether the
-- last demonstration has it.
with
shown as (
    select setting, unnest(labels) as label, unnest(counts) / list_sum(counts) as share_shown
    from settings
),

outputs as (
    select
        task, n_demos, instruction, setting, number, seed, predict, method, last_label, prediction, count(*) as n_rows
    from majority_predictions
    group by all
)

select
    outputs.* exclude (last_label, prediction, n_rows),
    label, any_value(share_shown) as share_shown, any_value(label = last_label) as is_last,
    coalesce(sum(n_rows) filter (prediction = label), 0) / sum(n_rows) as share_predicted
from outputs
inner join shown using (setting)
group by all
