-- One row per (model, task, n_demos, predict, method, region): mean weighted F1 with minus without instruction. region:
-- tails or middle (setting_regions). Positive: better with the instruction. Intervals are over resamples of the test
-- rows, the same for both. They are percentiles, which lean narrow with few rows: verdicts on gaps are in
-- majority_verdicts, with an interval by Student's t.
with
region_draws as (
    select
        model, task, n_demos, instruction, predict, method, draw, unnest(['tails', 'middle']) as region,
        unnest([tails_f1, middle_f1]) as mean_f1
    from majority_draws_by_model
),

gaps as (
    select
        model, task, n_demos, predict, method, region, draw, instructed.mean_f1 as with_instruction,
        plain.mean_f1 as without_instruction
    from region_draws as instructed
    inner join region_draws as plain using (model, task, n_demos, predict, method, region, draw)
    where instructed.instruction and not plain.instruction
),

estimates as (
    select
        model, task, n_demos, predict, method, region,
        estimate(with_instruction - without_instruction, draw) as gap,
        interval_low(with_instruction - without_instruction, draw) as gap_low,
        interval_high(with_instruction - without_instruction, draw) as gap_high,
        estimate(with_instruction, draw) as with_instruction, estimate(without_instruction, draw) as without_instruction
    from gaps
    group by all
),

counts as (
    select
        model, task, n_demos, predict, method, region, count(*) filter (instruction) as n_settings,
        max(n_seeds) as n_seeds, sum(n_rows)::bigint as n_rows
    from majority_over_seeds
    inner join setting_regions using (setting)
    group by all
)

from estimates
inner join counts using (model, task, n_demos, predict, method, region)
order by all
