-- One row per caution about the differences of other_run from run: line, its place; lead,
-- empty; text, which follows the names of the runs (compare_cautions).
with
reasons as (
    select
        own.run, own.other_run, unnest(range(10, 18))::int as line,
        unnest([
            'left out, because rows or labels differ: ' || some_of(nullif(own.differing_tasks, []), 5),
            'left out, because only one of the two runs has it: '
            || some_of(nullif(own.lacking_tasks || back.lacking_tasks, []), 5),
            if(
                own.has_same_scoring, null,
                'scored in another way (scoring.normalization, scoring.eos, prompt.prefix_mode), which may explain every difference'
            ),
            if(
                own.has_same_inputs, null,
                'the prompts show the rows in another way (format, instruction or length limit)'
            ),
            if(
                own.has_same_contexts, null,
                'the text before the rows differs (instruction or demonstrations), which is part of each difference'
            ),
            if(own.has_same_sets, null, 'other demonstration sets; means are over those that both have'),
            if(own.has_same_bias_score_rows, null, 'BiasScore leaves out tasks whose rows of it differ'),
            if(own.has_same_seed, null, 'other seeds in the specs (seed)')
        ]) as text
    from label_bias_shared as own
    inner join label_bias_shared as back on own.run = back.other_run and own.other_run = back.run
),

measured as (
    select run, unnest([counted(n_demos, 'demonstration'), shown_method(method)]) as thing
    from (select distinct run, n_demos, method from label_bias_by_task_over_sets)
)

from compare_cautions('label_bias_shared', 'label_bias_compared', 'reasons', 'measured')
