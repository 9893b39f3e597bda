-- One row per (task, n_demos, method, format, against_n_demos, against_method, against_format): standard errors of the
-- differences between two settings, over the rows that both have, resampled, and the degrees of freedom, as in task_errors;
-- of what label_bias_pairs compares in the base format, and format_pairs in others. n_main_rows, n_bias_score_rows: these
-- rows, each counted once.
with

pairs as (

    select
        n_demos,
        method,
        'base' as format,
        against_n_demos,
        against_method,
        'base' as against_format
    from label_bias_pairs

    union

    select
        n_demos,
        method,
        format,
        n_demos as against_n_demos,
        against_method,
        against_format
    from format_pairs

),

-- Materialized, so that each setting meets only what it stands against: in another order there are far more rows.
asked as materialized (

    select
        main_answers.task,
        pairs.n_demos,
        pairs.method,
        pairs.format,
        pairs.against_n_demos,
        pairs.against_method,
        pairs.against_format,
        main_answers.row,
        main_answers.pattern
    from pairs
    inner join main_answers
        on
            pairs.n_demos = main_answers.n_demos
            and pairs.method = main_answers.method
            and pairs.format = main_answers.format

),

main_pairs as (

    select
        asked.task,
        asked.n_demos,
        asked.method,
        asked.format,
        asked.against_n_demos,
        asked.against_method,
        asked.against_format,
        asked.pattern,
        other.pattern as against_pattern,
        count(*) as n_rows
    from asked
    inner join main_answers as other
        on
            asked.against_n_demos = other.n_demos
            and asked.against_method = other.method
            and asked.against_format = other.format
            and asked.task = other.task
            and asked.row = other.row
    group by all

),

own_moves as materialized (

    select
        main_pairs.*,
        own.gold,
        own.n_gold,
        own.accuracy,
        own.macro_f1,
        own.rsd,
        own.relative_variance
    from main_pairs
    inner join main_patterns as own using (task, n_demos, method, format, pattern)

),

main_moves as (

    select
        own_moves.* exclude (accuracy, macro_f1, rsd, relative_variance),
        own_moves.accuracy - other.accuracy as accuracy,
        own_moves.macro_f1 - other.macro_f1 as macro_f1,
        own_moves.rsd - other.rsd as rsd,
        own_moves.relative_variance - other.relative_variance as relative_variance
    from own_moves
    inner join main_patterns as other
        on
            own_moves.task = other.task
            and own_moves.against_n_demos = other.n_demos
            and own_moves.against_method = other.method
            and own_moves.against_format = other.format
            and own_moves.against_pattern = other.pattern

),

main_errors as (

    select
        task,
        n_demos,
        method,
        format,
        against_n_demos,
        against_method,
        against_format,
        sum(n_rows)::bigint as n_all,
        n_all - count(distinct gold) as n_free,
        sqrt(
            sum(n_rows * accuracy ** 2 order by pattern, against_pattern) / nullif(n_all - 1, 0) / n_all
        ) as accuracy,
        sqrt(
            sum(n_rows * macro_f1 ** 2 order by pattern, against_pattern) / nullif(n_all - 1, 0) / n_all
        ) as macro_f1,
        sqrt(
            sum(
                n_rows * rsd ** 2 * n_gold / nullif(n_gold - 1, 0) order by pattern, against_pattern
            )
        ) / n_all as rsd,
        sqrt(
            sum(
                n_rows * relative_variance ** 2 * n_gold / nullif(n_gold - 1, 0) order by pattern, against_pattern
            )
        ) / n_all as relative_variance
    from main_moves
    group by task, n_demos, method, format, against_n_demos, against_method, against_format

),

bias_errors as (

    select
        own.task,
        pairs.n_demos,
        pairs.method,
        pairs.format,
        pairs.against_n_demos,
        pairs.against_method,
        pairs.against_format,
        count(*) as n_bias_score_rows,
        n_bias_score_rows - count(distinct own.gold) as n_free_bias_score,
        sqrt(
            sum((own.bias_score - other.bias_score) ** 2 * own.n_gold / nullif(own.n_gold - 1, 0) order by own.row)
        ) / count(*) as bias_score,
        sqrt(
            sum(
                (own.squared_preference - other.squared_preference) ** 2 * own.n_gold / nullif(own.n_gold - 1, 0)
                order by own.row
            )
        ) / count(*) as squared_preference
    from pairs
    inner join bias_score_rows as own
        on
            pairs.n_demos = own.n_demos
            and pairs.method = own.method
            and pairs.format = own.format
    inner join bias_score_rows as other
        on
            pairs.against_n_demos = other.n_demos
            and pairs.against_method = other.method
            and pairs.against_format = other.format
            and own.task = other.task
            and own.row = other.row
    group by
        own.task,
        pairs.n_demos,
        pairs.method,
        pairs.format,
        pairs.against_n_demos,
        pairs.against_method,
        pairs.against_format

)

select
    task,
    n_demos,
    method,
    format,
    against_n_demos,
    against_method,
    against_format,
    main_errors.accuracy,
    main_errors.macro_f1,
    main_errors.rsd,
    bias_errors.bias_score,
    main_errors.n_free,
    bias_errors.n_free_bias_score,
    main_errors.relative_variance,
    bias_errors.squared_preference,
    main_errors.n_all as n_main_rows,
    bias_errors.n_bias_score_rows
from main_errors
left join bias_errors using (task, n_demos, method, format, against_n_demos, against_method, against_format)
