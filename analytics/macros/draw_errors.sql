-- from draw_errors('changes'): what other draws of demonstrations, for the same proportions and with the same test
-- rows, would change of differences of majority-label bias. changes: a relation with family, test (a struct with
-- metric), number (of the setting), seed, value and other_value: what the draw of a seed adds to the metric of each
-- side, null where a side lacks the seed. The difference is the sum of other_value minus that of value. One row per
-- (family, test): error_draws, its standard error over draws, and draws_df, the degrees of freedom of that. With
-- several seeds: from the variance over seeds within settings, by Satterthwaite (1946): of the paired difference in
-- settings where both sides have the same seeds, else of each side, as their errors add. Where a side has one seed in a
-- setting: from the variance over at least 6 settings, which holds what proportions change too, and not for sd_f1. No
-- row without a variance to compare. draws_df is null where nothing varies. n_seeds: the fewest of a setting and side.
create macro draw_errors(changes) as table
with
of_settings as (
    select
        family, test, number, count(value) as n_own, count(other_value) as n_other,
        count(round(other_value - value, 12)) as n_both,
        coalesce(sum(other_value order by seed), 0) - coalesce(sum(value order by seed), 0) as change,
        n_both * var_samp(round(other_value - value, 12) order by seed) as var_both,
        n_own * var_samp(value order by seed) as var_own, n_other * var_samp(other_value order by seed) as var_other
    from query_table(changes)
    where value is not null or other_value is not null
    group by all
),

of_draws as (
    select
        family, test, number, least(n_own, n_other) as n_seeds, round(change, 12) as change,
        case when n_both = n_own and n_both = n_other then var_both else var_own + var_other end as variance,
        case
            when n_both = n_own and n_both = n_other then var_both ** 2 / nullif(n_both - 1, 0)
            else var_own ** 2 / nullif(n_own - 1, 0) + var_other ** 2 / nullif(n_other - 1, 0)
        end as variance_of_variance
    from of_settings
),

over_settings as (
    select
        family, test, min(n_seeds) as n_seeds,
        case
            when min(n_seeds) > 1 then sum(variance order by number)
            when min(n_seeds) = 1 and any_value(test.metric) <> 'sd_f1' and count(*) >= 6
                then count(*) * var_samp(change order by number)
        end as variance,
        case
            when min(n_seeds) > 1
                then sum(variance order by number) ** 2 / nullif(sum(variance_of_variance order by number), 0)
            else count(*) - 1
        end as draws_df
    from of_draws
    group by all
)

select family, test, sqrt(variance) as error_draws, draws_df, n_seeds
from over_settings
where variance is not null
