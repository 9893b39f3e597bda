-- One row per (model, task, n_demos, instruction, predict, method): where the variance of weighted F1 comes from, and
-- whether proportions matter at all. Components of the weighted F1 of one setting and seed, by analysis of variance:
-- var_settings, between settings beyond what seeds explain, not below 0; var_seeds, between seeds within a setting,
-- which are draws of demonstrations (with them goes what rows make of one draw alone); both null with one seed.
-- var_rows: what another draw of as many test rows would add, from the rows' influences (majority_pattern_values); null
-- with one row. Settings and seeds have the same rows, so that most of it moves all of them together, and it is no part
-- of the other two. sd_f1_corrected: the root of var_settings, sd_f1 without the noise of the seeds: sqrt(max(0,
-- sd_f1^2 - mean over settings of the variance over seeds / n_seeds)). proportions_p: the chance of as large a variance
-- over settings of the mean over seeds if each setting's draws were like those of any other: settings are exchanged
-- within a seed, in the orders of setting_permutations (Fisher 1935); null with one seed or setting. Demonstrations are
-- drawn again for each setting and seed, so that they are exchangeable then. proportions_p_adjusted: times the number
-- of such tests of the run (Bonferroni). sd_f1_smallest_detectable: the smallest sd_f1_corrected that
-- proportions_p_adjusted tells from noise in four of five runs of so many settings and seeds (visible_settings), from
-- the variance of what one setting and seed has beyond what both add to others.
with
setting_variances as (
    select
        model, task, n_demos, instruction, predict, method, number, avg(weighted_f1 order by seed) as weighted_f1,
        var_samp(weighted_f1 order by seed) as var_seeds, count(*) as n_seeds, sum(n_rows) as n_rows
    from majority_by_setting
    group by all
),

variances as (
    select
        model, task, n_demos, instruction, predict, method, var_samp(weighted_f1 order by number) as var_means,
        avg(var_seeds order by number) as var_seeds, count(*) as n_settings, max(n_seeds) as n_seeds,
        sum(n_rows)::bigint as n_rows
    from setting_variances
    group by all
),

row_variances as (
    select
        task, n_demos, instruction, predict, method, number, seed, sum(n_rows) as n_test_rows,
        sum(n_rows * value order by gold, prediction) / n_test_rows as weighted_f1,
        sum(n_rows * value ** 2 order by gold, prediction) / n_test_rows as mean_square
    from majority_pattern_values
    group by all
),

of_rows as (
    select
        task, n_demos, instruction, predict, method,
        avg(
            if(n_test_rows > 1, greatest(0, mean_square - weighted_f1 ** 2) / (n_test_rows - 1), null)
            order by number, seed
        ) as var_rows
    from row_variances
    group by all
),

seed_lists as (
    select model, task, n_demos, instruction, predict, method, seed, list(weighted_f1 order by number) as f1s
    from majority_by_setting
    group by all
),

seed_variances as (
    select * exclude (seed, f1s), var_samp(list_avg(f1s) order by seed) as var_seed_means
    from seed_lists
    group by all
),

placed as (
    select seed_lists.* exclude (f1s), draw,
        list_select(f1s, list_transform(numbers, lambda number: number + 1)) as f1s
    from seed_lists
    inner join setting_permutations using (seed)
    where len(f1s) = len(numbers)
),

-- The variance over settings of the mean over seeds grows with the products of pairs of seeds; all else in it is the same
-- in every order.
statistics as (
    select
        model, task, n_demos, instruction, predict, method, draw,
        round(sum(list_dot_product(placed.f1s, other.f1s) order by placed.seed, other.seed), 9) as statistic
    from placed
    inner join placed as other using (model, task, n_demos, instruction, predict, method, draw)
    where placed.seed < other.seed and len(placed.f1s) > 1
    group by all
),

tests as (
    select * exclude (draw, statistic, observed), avg((statistic >= observed)::int) as proportions_p
    from (
        select
            *,
            any_value(statistic) filter (draw = 0) over (partition by model, task, n_demos, instruction, predict, method) as observed
        from statistics
    )
    group by all
)

select
    variances.model, variances.task, variances.n_demos, variances.instruction, variances.predict, variances.method,
    if(variances.n_seeds > 1, greatest(0, var_means - var_seeds / variances.n_seeds), null) as var_settings,
    var_seeds, var_rows, sqrt(var_settings) as sd_f1_corrected, proportions_p,
    if(proportions_p > 0, least(1, proportions_p * count(proportions_p) over ()), null) as proportions_p_adjusted,
    n_settings, n_seeds, n_rows,
    if(proportions_p is null, null, visible_settings(
        round((var_seeds - var_seed_means) * variances.n_settings / (variances.n_settings - 1), 12),
        variances.n_settings, variances.n_seeds,
        count(proportions_p) over ()
    )) as sd_f1_smallest_detectable
from variances
inner join seed_variances using (model, task, n_demos, instruction, predict, method)
inner join of_rows using (task, n_demos, instruction, predict, method)
left join tests using (model, task, n_demos, instruction, predict, method)
order by all
