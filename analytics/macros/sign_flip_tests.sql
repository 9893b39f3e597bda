-- from sign_flip_tests('units', 'sign_flips'): tests that means over units are 0, of the same units in each family.
-- units: a relation with family and test (of any type), unit (0-based within the family) and value; a test may lack
-- units. Values count to 1e-12: what rounding leaves of equal numbers is no difference. The mean over the units that a
-- test has is tested by flipping the signs of whole units (exact where values are as likely above as below 0; Fisher
-- 1935, Pitman 1937, Dror et al. 2018), in the patterns of the relation sign_flips, of which the first 2^n are all
-- patterns of n units. Units beyond their length are taken together with earlier ones. One row per (family, test):
-- n_units; estimate, the mean; standard_error; low, high: its 95 % interval by Student's t; p: two-sided. p_adjusted:
-- the same for all tests of the family together, so that the chance that any of them errs is 5 %: a test is compared
-- with the largest statistic, in each pattern, of itself and the tests that are no clearer (Westfall & Young 1993, free
-- step-down; Romano & Wolf 2005). simultaneous_low, simultaneous_high: a band that holds for all of them together, by
-- the largest statistic of all (single step), so that it may hold 0 where p_adjusted is at most 5 %, and never excludes
-- 0 elsewhere; null below 6 units, where no such p can reach 5 %. smallest_detectable: 2.8 standard errors, which a
-- test of 5 % finds with a power of 80 %. All but n_units is null where a value is, and errors and p with one unit.
create macro sign_flip_tests(units, sign_flips) as table
with
families as (
    select family, least(max(unit) + 1, (select max(len(signs)) from query_table(sign_flips)))::bigint as n_places
    from query_table(units)
    group by family
),

folded as (
    select
        family, test, unit % n_places as place, sum(round(value, 12) order by unit) as value, count(*) as n_members,
        count(*) - count(value) as n_lacking
    from query_table(units)
    inner join families using (family)
    group by all
),

sizes as (
    select family, test, sum(n_members)::bigint as n_units, count(*) as n_folded, sum(n_lacking) as n_lacking
    from folded
    group by all
),

-- The value of units that are taken together is scaled, so that the mean over places is that over units.
placed as (
    select
        family, test, n_units, n_folded, n_places,
        list(coalesce(value, 0) * n_folded / n_units order by place) as placed_values
    from (
        select sizes.*, n_places, unnest(range(n_places)) as place
        from sizes
        inner join families using (family)
        where n_lacking = 0
    )
    left join folded using (family, test, place)
    group by all
),

lists as materialized (
    select
        *,
        dense_rank() over (order by family) as family_id, row_number() over (order by family, test) as id,
        list_sum(placed_values) / n_folded as estimate,
        list_sum(list_transform(placed_values, lambda x: x * x)) as squares
    from placed
),

-- Once for each number of places, not for each test.
cut as materialized (
    select n_places, draw, signs[:n_places]::double[] as signs
    from query_table(sign_flips)
    inner join (select distinct n_places from families) on draw < if(n_places < 30, 1 << n_places, draw + 1)
),

-- sqrt(n) * mean / sqrt(mean of squares), which grows with Student's t and needs no variance of its own.
statistics as materialized (
    select
        family_id, id, draw,
        round(if(squares > 0, abs(list_dot_product(placed_values, signs)) / sqrt(squares), 0), 9) as statistic
    from lists
    inner join cut using (n_places)
),

observed as materialized (
    select id, statistic as observed
    from statistics
    where draw = 0
),

-- The largest statistic of a test and those that are no clearer, in each pattern.
stepped as (
    select
        family_id, id, draw, observed, statistic,
        max(statistic) over (partition by family_id, draw order by observed) as largest
    from statistics
    inner join observed using (id)
),

counted as materialized (
    select
        family_id, id, any_value(observed) as observed, avg((statistic >= observed)::int) as p,
        avg((largest >= observed)::int) as p_step
    from stepped
    group by all
),

criticals as (
    select
        family_id,
        -- Beyond its rounding, so that 0 is inside the band of a test that ties with it, and is not significant.
        quantile_disc(statistic, 0.95) + 1e-8 as critical
    from (select family_id, draw, max(statistic) as statistic from statistics group by all)
    group by all
),

tested as (
    select
        lists.*, p,
        -- No clearer test has a smaller p: that of a test is at least those of the tests before it.
        max(p_step) over (partition by family_id order by counted.observed desc) as p_adjusted,
        critical,
        if(n_folded > 1, sqrt(greatest(0, squares / n_folded - estimate ** 2) / (n_folded - 1)), null) as standard_error
    from lists
    inner join counted using (family_id, id)
    inner join criticals using (family_id)
)

select
    sizes.family, sizes.test, sizes.n_units, estimate, standard_error,
    estimate - t_quantile(tested.n_folded - 1) * standard_error as low,
    estimate + t_quantile(tested.n_folded - 1) * standard_error as high,
    if(tested.n_folded > 1, p, null) as p, if(tested.n_folded > 1, p_adjusted, null) as p_adjusted,
    estimate - reach as simultaneous_low, estimate + reach as simultaneous_high,
    2.8 * standard_error as smallest_detectable
from sizes
left join (
    select
        *,
        case
            when n_folded >= 6 and critical ** 2 < n_folded - 1e-6
                then critical * sqrt((n_folded - 1) / (n_folded - critical ** 2)) * standard_error
        end as reach
    from tested
) as tested using (family, test)
