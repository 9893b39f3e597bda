-- One row per caution about the differences of other_run from run: line, its place; lead,
-- empty; text, which stands behind the names of the runs (compare_cautions).
with
sides as (
    select
        run,
        bool_or(is_any_setting_above_constant is not true) as lacks_setting_above,
        bool_or(not has_enough_rows) as lacks_rows,
        bool_or(has_many_without_label) as has_many_without_label,
        any_value(n_parameters) is null as lacks_size
    from majority_by_model
    group by run
),

pairs as (
    select
        own.*,
        list_filter([first, second], lambda side: side.lacks_setting_above) as constant,
        list_filter([first, second], lambda side: side.lacks_rows) as coarse,
        list_filter([first, second], lambda side: side.has_many_without_label) as unread,
        list_filter([first, second], lambda side: side.lacks_size) as unknown
    from majority_bias_shared as own
    inner join sides as first on own.run = first.run
    inner join sides as second on own.other_run = second.run
),

reasons as (
    select
        run, other_run,
        unnest([
            {
                'line': 5,
                'text': 'in some ways of predicting, no setting is shown to be better than one label for all in '
                || listed(nullif(list_transform(constant, lambda side: side.run), []))
                || '; an RB@10 near 1 is then no robustness'
            },
            {
                'line': 6,
                'text': 'too few test rows for RB@10 in ' || listed(nullif(list_transform(coarse, lambda side: side.run), []))
                || ', at least in one way of predicting: chance decides which settings are inside the boundary'
            },
            {
                'line': 7,
                'text': 'many outputs are no label in ' || listed(nullif(list_transform(unread, lambda side: side.run), []))
                || ', and count as wrong'
            },
            {
                'line': 8,
                'text': 'the size of the model is unknown in ' || listed(nullif(list_transform(unknown, lambda side: side.run), []))
                || ', so the effect of size leaves it out'
            },
            {
                'line': 12,
                'text': if(
                    has_same_scoring, null,
                    'scored in another way (scoring.normalization, scoring.eos), which may explain every difference; '
                    || 'differences of size have no interval'
                )
            },
            {
                'line': 13,
                'text': if(
                    has_same_contexts, null,
                    'other demonstrations or another instruction; their draw is part of each difference, and differences '
                    || 'of size have no interval'
                )
            },
            {
                'line': 14,
                'text': if(has_same_seeds, null, 'other seeds of the demonstrations; each run has its mean over its own')
            },
            {
                'line': 15,
                'text': if(has_same_n_demos, null, 'other numbers of demonstrations; only those of both are compared')
            },
            {
                'line': 16,
                'text': if(has_same_methods, null, 'other methods or ways of predicting; only those of both are compared')
            },
            {
                'line': 17,
                'text': if(
                    has_same_instructions, null,
                    'only one has prompts with and without instruction; those of both are compared'
                )
            },
            {
                'line': 18,
                'text': if(has_same_seed, null, 'other seeds in the specs (seed); differences of size have no interval')
            }
        ], max_depth := 2)
    from pairs
)

from compare_cautions('majority_bias_shared', 'majority_bias_compared', 'reasons')
