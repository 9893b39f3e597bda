-- One row per (task, n_demos, instruction, predict, method, row) of which a prediction changes between the most skewed
-- settings (tails, of setting_regions): the rows that a majority effect rests on. changed: 1 minus the share of the
-- predictions that all these settings have in common, over the seeds of each: 0 where the row is answered the same with
-- each, 1 where no answer is given with all. settings and predictions: those settings in their order, and the
-- predictions with each, a text such as 'True 3, False 2' (seeds; 'no label' of outputs that are none). place: from 1
-- among those of one (task, n_demos, instruction, predict, method), the most changed first, then by a hash of the row,
-- so that the first ones of equal change are a sample. input_text: the text after the demonstrations.
with
counts as (
    select
        {'task': task, 'n_demos': n_demos, 'instruction': instruction, 'predict': predict, 'method': method} as way,
        row, gold, setting, number, min(prompt_id) as prompt_id, coalesce(prediction, 'no label') as prediction,
        count(*) as n_seeds
    from majority_predictions
    inner join setting_regions using (setting)
    where region = 'tails'
    group by all
),

shares as (
    select
        *,
        n_seeds / sum(n_seeds) over (partition by way, row, setting) as share,
        count(distinct setting) over (partition by way, row) as n_settings
    from counts
),

in_common as (
    select way, row, prediction, case when count(*) = any_value(n_settings) then min(share) else 0 end as share
    from shares
    group by all
),

answers as (
    select
        way, row, gold, setting, number, min(prompt_id) as prompt_id,
        string_agg(prediction || ' ' || n_seeds, ', ' order by n_seeds desc, prediction) as predictions
    from counts
    group by all
),

told as (
    select
        way, row, gold, min(prompt_id) as prompt_id, list(setting order by number) as settings,
        list(predictions order by number) as predictions
    from answers
    group by all
)

select
    unnest(told.way), told.row, told.gold, changes.changed, told.settings, told.predictions,
    row_number() over (
        partition by told.way
        order by changes.changed desc, md5(concat_ws('/', told.way.task, told.row))
    ) as place,
    prompts.input_text
from told
inner join (select way, row, 1 - sum(share order by prediction) as changed from in_common group by all) as changes
    using (way, row)
inner join prompts using (prompt_id)
where changes.changed > 1e-9
