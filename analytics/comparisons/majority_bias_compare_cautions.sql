-- One row per caution about the differences of other_run from run: line, its place; lead,
-- empty; text, which follows the names of the runs (compare_cautions).
with
sides as (
    select
        run,
        bool_or(is_any_setting_above_constant is not true) as lacks_setting_above,
        bool_or(not has_enough_rows) as lacks_rows, bool_or(has_many_without_label) as has_many_without_label,
        any_value(n_parameters) is null as lacks_size
    from majority_by_model
    group by run
),

pairs as (
    select
        own.*, listed([side.run for side in [first, second] if side.lacks_setting_above]) as constant,
        listed([side.run for side in [first, second] if side.lacks_rows]) as coarse,
        listed([side.run for side in [first, second] if side.has_many_without_label]) as unread,
        listed([side.run for side in [first, second] if side.lacks_size]) as unknown
    from majority_bias_shared as own
    inner join sides as first on own.run = first.run
    inner join sides as second on own.other_run = second.run
),

reasons as (
    select
        run, other_run, unnest(range(5, 9) || range(12, 16))::int as line,
        unnest([
            'in some ways of predicting, no setting is shown to be better than always answering one label in ' || constant
            || '; an RB@10 near 1 is then no robustness',
            'too few test rows for RB@10 in ' || coarse
            || ', at least in one way of predicting: chance decides which settings are inside the boundary',
            'many outputs are no label in ' || unread || ', and count as wrong',
            'the size of the model is unknown in ' || unknown || ', so the effect of size leaves it out',
            if(
                has_same_scoring, null,
                'scored in another way (scoring.normalization, scoring.eos), which may explain every difference; '
                || 'differences of size have no interval'
            ),
            if(
                has_same_contexts, null,
                'other demonstrations or another instruction; their draw is part of each difference, and differences '
                || 'of size have no interval'
            ),
            if(has_same_seeds, null, 'other seeds of the demonstrations; each run has its mean over its own'),
            if(has_same_seed, null, 'other seeds in the specs (seed); differences of size have no interval')
        ]) as text
    from pairs
),

measured as (
    select run, unnest([counted(n_demos, 'demonstration'), shown_predict(predict), shown_method(method),
            case when instruction then 'prompts with instruction' else 'prompts without instruction' end]) as thing
    from majority_by_model
)

from compare_cautions('majority_bias_shared', 'majority_bias_compared', 'reasons', 'measured')
