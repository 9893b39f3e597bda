-- One row per (metric, task, n_demos, method, format, against_n_demos, against_method, against_format): the standard
-- error of the difference between two settings, over the n_units rows that both have, resampled, and its n_free degrees
-- of freedom, as in metric_errors; of what label_bias_pairs compares in the base format, and format_pairs in others.
with metric_patterns as materialized (from metric_patterns),

row_patterns as materialized (from row_patterns),

pairs as (
    select n_demos, method, 'base' as format, against_n_demos, against_method, against_format
    from label_bias_pairs

    union

    select n_demos, method, format, n_demos as against_n_demos, against_method, against_format
    from format_pairs
),

-- Materialized, so that each setting meets only what it stands against: in another order there are far more rows.
asked as materialized (
    select of_rows, task, pairs.*, row_patterns.row, pattern
    from pairs
    inner join row_patterns using (n_demos, method, format)
),

paired as (
    select asked.* exclude (row), other.pattern as against_pattern, count(*) as n_rows
    from asked
    inner join (
        select * rename (n_demos as against_n_demos, method as against_method, format as against_format)
        from row_patterns
    ) as other using (against_n_demos, against_method, against_format, of_rows, task, row)
    group by all
),

own_moves as materialized (
    select paired.*, own.metric, own.gold, own.spread, own.n_taken, own.influence
    from paired
    inner join metric_patterns as own using (of_rows, task, n_demos, method, format, pattern)
),

moves as (
    select own_moves.*, own_moves.influence - other.influence as difference
    from own_moves
    inner join metric_patterns as other
        on
            own_moves.metric = other.metric and own_moves.task = other.task
            and own_moves.against_n_demos = other.n_demos and own_moves.against_method = other.method
            and own_moves.against_format = other.format and own_moves.against_pattern = other.pattern
)

select
    metric, task, n_demos, method, format, against_n_demos, against_method, against_format,
    sum(n_rows)::bigint as n_units, n_units - count(distinct gold) as n_free,
    rows_error(
        sum(n_rows * spread * difference ** 2 order by pattern, against_pattern), n_units, max(n_taken)
    ) as standard_error
from moves
group by metric, task, n_demos, method, format, against_n_demos, against_method, against_format
