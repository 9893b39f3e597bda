-- rows_error(squares, n_rows, n_taken): the standard error of a mean over n_rows rows, of the sum of their squared
-- influences (metric_patterns); null where no row is left. Below 1e-12 it is what rounding leaves of rows that make no
-- difference: 0.
create macro rows_error(squares, n_rows, n_taken) as
    list_transform(
        [sqrt(squares / nullif(n_rows * (n_rows - n_taken), 0))], lambda error: case when error < 1e-12 then 0 else error end
    )[1]
