-- One row per ordered pair (run, other_run) of majority-bias runs over the same data: they have the same settings, and
-- a test row in common, which is one with the same input text and gold label. Names of runs, tasks and files do not
-- count. has_same_rows: all test rows are the same in the same order, and so are the resamples of them (both runs have
-- the same seed), so that the runs can be compared draw by draw.
with

test_rows as (

    select distinct
        run,
        row,
        hash(input_text, gold) as question
    from prompts
    where purpose = 'majority'

),

row_lists as (

    select
        run,
        list(question order by row) as questions
    from test_rows
    group by run

),

setting_lists as (

    select
        run,
        list({'setting': setting, 'labels': labels} order by number) as grid
    from settings
    group by run

),

seeds as (

    select
        run,
        seed
    from run_settings

),

runs as (

    select *
    from row_lists
    inner join setting_lists using (run)
    inner join seeds using (run)

)

select
    runs.run,
    other.run as other_run,
    runs.questions = other.questions and runs.seed = other.seed as has_same_rows,
    len(list_intersect(runs.questions, other.questions)) as n_shared_rows
from runs
inner join runs as other
    on
        runs.run <> other.run
        and runs.grid = other.grid
        and list_has_any(runs.questions, other.questions)
order by all
