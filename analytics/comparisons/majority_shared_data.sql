-- One row per ordered pair (run, other_run) of majority-bias runs over the same data: they have the same settings, and
-- a test row in common, which is one with the same input text and gold label. Names of runs, tasks and files do not
-- count. The runs can be compared draw by draw where all three hold: has_same_rows, all test rows are the same in the
-- same order, and so are the resamples of them (both runs have the same seed); has_same_contexts, with each instruction
-- that both have, every setting and seed has the same text before the test row; has_same_scoring, likelihoods are
-- normalised and ended alike.
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

instruction_contexts as (

    select
        run,
        instruction,
        list(hash(contexts.n_demos, setting, contexts.demo_set, text) order by setting, contexts.demo_set, context_id)
            as texts
    from contexts
    semi join (select * from prompts where purpose = 'majority') as main using (run, context_id)
    group by all

),

same_contexts as (

    select
        contexts_of.run,
        other.run as other_run,
        bool_and(contexts_of.texts = other.texts) as has_same_contexts
    from instruction_contexts as contexts_of
    inner join instruction_contexts as other using (instruction)
    group by all

),

scorings as (

    select
        run,
        seed,
        {'normalization': normalization, 'eos': eos} as scoring
    from run_settings

),

runs as (

    select *
    from row_lists
    inner join setting_lists using (run)
    inner join scorings using (run)

)

select
    runs.run,
    other.run as other_run,
    runs.questions = other.questions and runs.seed = other.seed as has_same_rows,
    coalesce(same_contexts.has_same_contexts, false) as has_same_contexts,
    runs.scoring = other.scoring as has_same_scoring,
    len(list_intersect(runs.questions, other.questions)) as n_shared_rows
from runs
inner join runs as other
    on
        runs.run <> other.run
        and runs.grid = other.grid
        and list_has_any(runs.questions, other.questions)
left join same_contexts on runs.run = same_contexts.run and other.run = same_contexts.other_run
order by all
