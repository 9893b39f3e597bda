-- One row per (model, role): qa_by_dataset, averaged over the data sets of a role that the model has answered, each
-- counted once. The sets are taken as they are: the error of their mean comes from their questions, which are different
-- ones. Normal 95 % intervals; null where a set has a single row.
with

errors as (

    select
        *,
        exact_match * (1 - exact_match) / nullif(n_rows - 1, 0) as error_squared,
        power(greatest(f1_high - f1, f1 - f1_low) / 1.959963984540054, 2) as error_squared_f1
    from qa_by_dataset

),

means as (

    select
        model,
        role,
        avg(exact_match order by dataset) as exact_match,
        avg(f1 order by dataset) as f1,
        sqrt(sum(error_squared order by dataset)) / count(*) as error,
        sqrt(sum(error_squared_f1 order by dataset)) / count(*) as error_f1,
        count(error_squared_f1) = count(*) as has_error,
        count(*) as n_datasets,
        sum(n_rows)::bigint as n_rows,
        sum(n_missing)::bigint as n_missing
    from errors
    group by all

)

select
    model,
    role,
    exact_match,
    if(has_error, greatest(0, exact_match - 1.959963984540054 * error), null) as exact_match_low,
    if(has_error, least(1, exact_match + 1.959963984540054 * error), null) as exact_match_high,
    f1,
    if(has_error, greatest(0, f1 - 1.959963984540054 * error_f1), null) as f1_low,
    if(has_error, least(1, f1 + 1.959963984540054 * error_f1), null) as f1_high,
    n_datasets,
    n_rows,
    n_missing
from means
order by all
