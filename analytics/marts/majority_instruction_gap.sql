-- One row per (model, task, n_demos, predict, method, region): mean weighted F1 with minus without instruction.
-- region tails: the settings whose largest share is the largest of the grid; middle: all others.
-- Positive: better with the instruction. Intervals are over resamples of the test rows, the same for both.
with

regions as (

    select
        setting,
        if(list_max(shares) >= max(list_max(shares)) over () - 1e-9, 'tails', 'middle') as region
    from settings

),

draw_differences as (

    select
        model,
        task,
        n_demos,
        predict,
        method,
        region,
        draw,
        avg(weighted_f1 order by number, seed) filter (instruction) as with_instruction,
        avg(weighted_f1 order by number, seed) filter (not instruction) as without_instruction
    from majority_draws
    inner join regions using (setting)
    where draw > 0
    group by all

),

intervals as (

    select
        model,
        task,
        n_demos,
        predict,
        method,
        region,
        quantile_cont(with_instruction - without_instruction, [0.025, 0.975]) as gap
    from draw_differences
    group by all

),

means as (

    select
        model,
        task,
        n_demos,
        predict,
        method,
        region,
        avg(weighted_f1 order by number) filter (instruction) as with_instruction,
        avg(weighted_f1 order by number) filter (not instruction) as without_instruction,
        count(*) filter (instruction) as n_settings,
        max(n_seeds) as n_seeds,
        sum(n_rows)::bigint as n_rows
    from majority_over_seeds
    inner join regions using (setting)
    group by all

)

select
    model,
    task,
    n_demos,
    predict,
    method,
    region,
    with_instruction - without_instruction as gap,
    intervals.gap[1] as gap_low,
    intervals.gap[2] as gap_high,
    with_instruction,
    without_instruction,
    n_settings,
    n_seeds,
    n_rows
from means
left join intervals using (model, task, n_demos, predict, method, region)
where with_instruction is not null and without_instruction is not null
order by all
