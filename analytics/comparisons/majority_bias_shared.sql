-- One row per ordered pair (run, other_run) of majority-bias runs: the data that both have, which
-- majority_bias_comparison compares, and their differences. has_same_rows: all test rows are the same in the same
-- order: input text and gold label; n_shared_rows: those that are in both, n_rows: of run. has_same_settings: the same
-- labels and proportions, which every mean runs over. n_demos, instructions, predicts, methods: that both have.
-- has_same_seeds: of the demonstrations; has_same_contexts: with each setting, seed and instruction that both have, the
-- same text before the test row. has_same_seed, has_same_scoring: of the specs; has_same_methods: and ways of
-- predicting. is_comparable: the same rows and settings, and something measured in both. Names of runs, tasks and files
-- do not count.
with
row_lists as (
    select run, list(question order by row) as questions
    from (select run, row, min(hash(input_text, gold)) as question from prompts where purpose = 'majority' group by all)
    group by run
),

grids as (
    select run, list({'setting': setting, 'labels': labels} order by number) as grid
    from settings
    group by run
),

settings_of as (
    select
        run, list_sort(list(distinct n_demos)) as n_demos, list_sort(list(distinct instruction)) as instructions,
        list_sort(list(distinct predict)) as predicts, list_sort(list(distinct method)) as methods
    from majority_by_model
    group by run
),

contexts_of as (
    select run, n_demos, instruction, setting, seed, min(hash(contexts.text)) as text_hash
    from majority_contexts
    inner join contexts using (run, context_id, n_demos, instruction, setting)
    group by all
),

same_contexts as (
    select
        contexts_of.run, other.run as other_run,
        bool_and(contexts_of.text_hash = other.text_hash) as has_same_contexts
    from contexts_of
    inner join contexts_of as other using (n_demos, instruction, setting, seed)
    where contexts_of.run <> other.run
    group by all
),

runs as (
    select
        row_lists.*, grids.grid, seed_lists.seeds, settings_of.* exclude (run), run_settings.seed,
        {'normalization': normalization, 'eos': eos} as scoring
    from row_lists
    inner join grids using (run)
    inner join (select run, list_sort(list(distinct seed)) as seeds from contexts_of group by run) as seed_lists
        using (run)
    inner join settings_of using (run)
    inner join run_settings using (run)
)

select
    runs.run, other.run as other_run, len(runs.questions) as n_rows,
    len(list_intersect(runs.questions, other.questions)) as n_shared_rows,
    runs.questions = other.questions as has_same_rows, runs.grid = other.grid as has_same_settings,
    list_sort(list_intersect(runs.n_demos, other.n_demos)) as n_demos,
    list_sort(list_intersect(runs.instructions, other.instructions)) as instructions,
    list_sort(list_intersect(runs.predicts, other.predicts)) as predicts,
    list_sort(list_intersect(runs.methods, other.methods)) as methods,
    runs.seed = other.seed as has_same_seed, runs.scoring = other.scoring as has_same_scoring,
    runs.seeds = other.seeds as has_same_seeds, runs.n_demos = other.n_demos as has_same_n_demos,
    runs.methods = other.methods and runs.predicts = other.predicts as has_same_methods,
    runs.instructions = other.instructions as has_same_instructions,
    coalesce(same_contexts.has_same_contexts, false) as has_same_contexts,
    has_same_rows
    and has_same_settings
    and list_has_any(runs.n_demos, other.n_demos)
    and list_has_any(runs.instructions, other.instructions)
    and list_has_any(runs.predicts, other.predicts)
    and list_has_any(runs.methods, other.methods) as is_comparable
from runs
inner join runs as other on runs.run <> other.run
left join same_contexts on runs.run = same_contexts.run and other.run = same_contexts.other_run
order by all
