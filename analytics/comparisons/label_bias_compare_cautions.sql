-- One row per caution about the differences of other_run from run: line, its place; lead,
-- empty; text, which stands behind the names of the runs (compare_cautions).
with
reasons as (
    select
        own.run, own.other_run,
        unnest([
            {
                'line': 10,
                'text': 'left out, because rows or labels differ: ' || some_of(nullif(own.differing_tasks, []), 5)
            },
            {
                'line': 11,
                'text': 'left out, because only one of the two runs has it: '
                || some_of(nullif(own.lacking_tasks || back.lacking_tasks, []), 5)
            },
            {
                'line': 12,
                'text': if(
                    own.has_same_scoring, null,
                    'scored in another way (scoring.normalization, scoring.eos), which may explain every difference'
                )
            },
            {
                'line': 13,
                'text': if(
                    own.has_same_inputs, null,
                    'the prompts show the rows in another way (format, instruction or length limit)'
                )
            },
            {
                'line': 14,
                'text': if(
                    own.has_same_contexts, null,
                    'the demonstrations, or other text before the rows, differ; their draw is part of each difference'
                )
            },
            {
                'line': 15,
                'text': if(own.has_same_sets, null, 'other demonstration sets; means are over those that both have')
            },
            {
                'line': 16,
                'text': if(own.has_same_bias_score_rows, null, 'BiasScore leaves out tasks whose rows of it differ')
            },
            {
                'line': 17,
                'text': if(
                    own.has_same_n_demos, null, 'other numbers of demonstrations; only those of both are compared'
                )
            },
            {'line': 18, 'text': if(own.has_same_methods, null, 'other methods; only those of both are compared')},
            {'line': 19, 'text': if(own.has_same_seed, null, 'other seeds in the specs (seed)')}
        ], max_depth := 2)
    from label_bias_shared as own
    inner join label_bias_shared as back on own.run = back.other_run and own.other_run = back.run
)

from compare_cautions('label_bias_shared', 'label_bias_compared', 'reasons')
