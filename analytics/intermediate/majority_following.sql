-- One row per (task, n_demos, instruction, predict, method): what predictions follow of the demonstrations, by least
-- squares over the settings of a seed, for each label, averaged over labels; then over the seeds. majority_effect: the
-- slope of a label's share of the predictions on its share of the demonstrations: 1 where predictions have the
-- demonstrations' proportions, 0 where these do not matter. recency: a label's share of the predictions where it is the
-- last demonstration's minus that where it is not; as the last demonstration has more often the label that most have,
-- it includes the effect of the majority. recency_at_equal_shares: the same with both in one model, so at equal shares
-- of the demonstrations. Labels that are always or never last in a seed are left out there. Intervals are over other
-- draws of demonstrations and other test rows: Student's t by the root of error_seeds^2 + error_rows^2, with the
-- degrees of freedom of Satterthwaite (1946). error_seeds: of a mean over seeds. error_rows: of a mean over the test
-- rows, each with the effect on its own predictions: all seeds have the same rows, so that seeds alone do not show the
-- effect of other rows. What belongs to both counts twice. Null with one seed or one row.
with
-- Of all settings of a seed, for each label.
moments as (
    select
        *, count(*) over seed as n_settings,
        share_shown - avg(share_shown) over seed as shown, is_last::int - avg(is_last::int) over seed as last_shown,
        var_pop(share_shown) over seed as of_shown, var_pop(is_last::int) over seed as of_last,
        covar_pop(is_last::int, share_shown) over seed as of_both
    from majority_label_shares
    window seed as (
        partition by task, n_demos, instruction, predict, method, seed, label
        order by number
        rows between unbounded preceding and unbounded following
    )
),

-- Each effect of a label in a seed is the sum of these times its share of the predictions in each setting.
weights as (
    select
        task, n_demos, instruction, setting, number, seed, predict, method, label, share_predicted,
        unnest(['majority_effect', 'recency', 'recency_at_equal_shares']) as name,
        unnest([
            case when of_shown > 1e-9 then shown / of_shown end,
            case when of_last > 1e-9 then last_shown / of_last end,
            case
                when of_shown * of_last - of_both ** 2 > 1e-9
                    then (last_shown * of_shown - shown * of_both) / (of_shown * of_last - of_both ** 2)
            end
        ]) / n_settings as weight
    from moments
),

seed_effects as (
    select
        task, n_demos, instruction, predict, method, seed, name, count(distinct label) as n_labels,
        sum(weight * share_predicted order by label, number) / n_labels as effect
    from weights
    where weight is not null
    group by all
),

over_seeds as (
    select
        * exclude (seed, n_labels, effect), count(*) as n_seeds, avg(effect order by seed) as value,
        stddev_samp(effect order by seed) / sqrt(n_seeds) as error_seeds
    from seed_effects
    group by all
),

-- What a prediction of a label adds to the effects on its row.
label_weights as (
    select
        weights.task, weights.n_demos, weights.instruction, weights.setting, weights.seed, weights.predict,
        weights.method, weights.label as prediction, weights.name, weight / n_labels / n_seeds as weight
    from weights
    inner join seed_effects using (task, n_demos, instruction, predict, method, seed, name)
    inner join over_seeds using (task, n_demos, instruction, predict, method, name)
    where weight is not null
),

prediction_weights as (
    from label_weights pivot (
        any_value(weight) for name in ('majority_effect', 'recency', 'recency_at_equal_shares')
        group by task, n_demos, instruction, setting, seed, predict, method, prediction
    )
),

-- A row whose outputs are all no label has the effect 0, like one that is always answered the same.
row_effects as (
    select
        task, n_demos, instruction, predict, method, row,
        sum(coalesce(columns('^(majority_effect|recency|recency_at_equal_shares)$'), 0) order by number, seed) as "\1"
    from majority_predictions
    left join prediction_weights using (task, n_demos, instruction, setting, seed, predict, method, prediction)
    group by all
),

row_errors as (
    select
        task, n_demos, instruction, predict, method, count(*) as n_rows,
        unnest(['majority_effect', 'recency', 'recency_at_equal_shares']) as name,
        unnest([
            stddev_samp(majority_effect order by row),
            stddev_samp(recency order by row),
            stddev_samp(recency_at_equal_shares order by row)
        ]) / sqrt(n_rows) as error_rows
    from row_effects
    group by task, n_demos, instruction, predict, method
),

errors as (
    select
        *,
        sqrt(error_seeds ** 2 + error_rows ** 2) as error,
        error ** 4 / nullif(error_seeds ** 4 / (n_seeds - 1) + error_rows ** 4 / (n_rows - 1), 0) as df
    from over_seeds
    inner join row_errors using (task, n_demos, instruction, predict, method, name)
),

-- Degrees of freedom are rounded, as those that are whole may come a little short.
intervals as (
    select *, case when error > 1e-12 then t_quantile(round(df, 6)) * error else error end as reach
    from errors
)

select * rename (
    majority_effect_value as majority_effect, recency_value as recency,
    recency_at_equal_shares_value as recency_at_equal_shares
)
from intervals pivot (
    any_value(value) as value, any_value(value - reach) as low, any_value(value + reach) as high
    for name in ('majority_effect', 'recency', 'recency_at_equal_shares')
    group by task, n_demos, instruction, predict, method
)
