-- One row per caution about the differences of other_run from run: line, its place; lead,
-- empty; text, which follows the names of the runs (compare_cautions).
with
reasons as (
    select
        own.run, own.other_run, unnest(range(10, 15))::int as line,
        unnest([
            format('left out: {} with the same id and another text', counted(nullif(own.n_differing, 0), 'question')),
            format(
                'left out: {} in one of the two runs only',
                counted(nullif(own.n_lacking + back.n_lacking, 0), 'question')
            ),
            format(
                'the values of {} differ (text tools); those of the run first by name are used',
                listed(nullif(own.differing_heuristics, []))
            ),
            if(own.has_same_variant, null, 'another variant of the measurement (variant)'),
            if(own.has_same_seed, null, 'other seeds in the specs (seed)')
        ]) as text
    from qa_bias_shared as own
    inner join qa_bias_shared as back on own.run = back.other_run and own.other_run = back.run
),

measured as (select run, unnest([dataset, heuristic]) as thing from qa_bias_by_heuristic)

from compare_cautions('qa_bias_shared', 'qa_bias_compared', 'reasons', 'measured')
