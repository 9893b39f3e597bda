-- One row per caution about the numbers of a majority-bias run: line, its place;
-- lead, empty; text. What its plan notes stands in its files (report.html).
with
size as (
    select max(n_seeds) as n_seeds
    from majority_by_model
),

sentences as (
    select
        10 as line,
        format(
            'Up to {} of the outputs of {} are no label and count as wrong; where most are, RB@10 is near 1 and says nothing '
            || 'about robustness.',
            as_percent(max(share_no_label)), shown_predict(predict)
        ) as text
    from majority_by_model
    where has_many_without_label
    group by predict
    union all
    select
        11,
        'There is one seed: all numbers hold for one draw of demonstrations in each setting. One seed cannot separate the '
        || 'effect of proportions from the luck of the draw.'
    from size
    where n_seeds = 1
    union all
    select
        11,
        format(
            'RB@10, and which settings are inside the boundary, hold for these draws of demonstrations. {} seeds say too little '
            || 'about others: a test needs at least 6 to reach 5 %.',
            n_seeds
        )
    from size
    where n_seeds between 2 and 5
    union all
    select
        12,
        format(
            'Too few test rows for RB@10 in {}: the 95 % intervals of weighted F1 are wider than the 10 points of the boundary, '
            || 'so chance decides which settings are inside it. No change of RB@10 is tested there.',
            if(n = n_all, 'every way of predicting', format('{} of {} ways of predicting', n, n_all))
        )
    from (select count(*) filter (not has_enough_rows) as n, count(*) as n_all from majority_by_model)
    where n > 0
    union all
    select 33, loss_caution(sum(n_not_falling), sum(n_adapters))
    from training_by_setting
    where n_steps > 1
    having sum(n_not_falling) > 0
    union all
    select 5, left_out_caution(flatten(list(rows_of)))
    from failed_parts
    where is_left_out
    having count(*) > 0
)

select line, '' as lead, text from sentences order by all
