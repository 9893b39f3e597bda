-- from two_model_tests('parts', 'sign_flips'): tests that differences between models are 0, of the rows of
-- two_model_parts, or of sums of them by (family, test, unit). The columns of sign_flip_tests, of which p and
-- p_adjusted are of the articles' parts: those of a large article are large, so that it counts as one article whatever
-- its size. standard_error is that of the jackknife that leaves out an article at a time (Efron & Stein 1981; for
-- clusters Bell & McCaffrey 2002), which is not too small where a few articles have most questions; intervals, the band
-- and smallest_detectable go by it.
create macro two_model_tests(parts, sign_flips) as table
with
part_values as (
    select family, test, unit, part * count(*) over (partition by family, test) as value
    from query_table(parts)
),

errors as (
    select
        family, test,
        if(
            count(moved) = count(*),
            sqrt((count(*) - 1) / count(*) * sum(moved ** 2 order by unit)),
            null
        ) as standard_error,
        least(count(*), (select max(len(signs)) from query_table(sign_flips))) - 1 as df
    from query_table(parts)
    group by all
),

-- A band is as many errors wide as that of the parts, whose own error is another one.
scaled as (
    select
        tests.* exclude (standard_error, low, high, simultaneous_low, simultaneous_high, smallest_detectable),
        if(tests.standard_error is null, null, errors.standard_error) as standard_error,
        t_quantile(errors.df) * errors.standard_error as reach,
        if(
            errors.standard_error = 0,
            tests.simultaneous_high - tests.estimate,
            (tests.simultaneous_high - tests.estimate) / nullif(tests.standard_error, 0) * errors.standard_error
        ) as simultaneous_reach
    from sign_flip_tests('part_values', sign_flips) as tests
    inner join errors using (family, test)
)

select
    family, test, n_units, estimate, standard_error, if(standard_error is null, null, estimate - reach) as low,
    if(standard_error is null, null, estimate + reach) as high, p, p_adjusted,
    estimate - simultaneous_reach as simultaneous_low, estimate + simultaneous_reach as simultaneous_high,
    2.8 * standard_error as smallest_detectable
from scaled
