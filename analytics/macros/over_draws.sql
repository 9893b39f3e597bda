-- from over_draws('tests', 'errors'): tests over test rows, extended to other draws of demonstrations too. tests: of
-- sign_flip_tests. errors: of draw_errors, by family and test; a test may lack them. One row per (family, test), with
-- the columns of tests; error_draws and n_seeds; p_both: Student's t by the errors of rows and draws together (which
-- count what belongs to both twice, so that it errs to the safe side: Owen 2007); p_both_adjusted: over the family
-- (holm); both_low, both_high: the simultaneous band, wider as that error is; null with one seed, whose draws are
-- separated from settings, too roughly for a band. both_smallest_detectable: 2.8 such errors. All null where draws are
-- not distinguishable from settings.
create macro over_draws(tests, errors) as table
with
joined as (
    select
        tests.*, error_draws, n_seeds, sqrt(standard_error ** 2 + error_draws ** 2) as error_both,
        error_both ** 4
        / nullif(standard_error ** 4 / (n_units - 1) + coalesce(error_draws ** 4 / draws_df, 0), 0) as df_both,
        if(error_both > 0, student_p(estimate / error_both, df_both), if(error_both = 0, 1, null)) as p_both,
        case
            when n_seeds = 1 then null
            when standard_error > 0 then error_both / standard_error
            when error_both = 0 then 1
        end as widening
    from query_table(tests) as tests
    left join query_table(errors) as errors using (family, test)
),

tested as (
    select family, test, p_both as p
    from joined
)

select
    joined.* exclude (error_both, df_both, widening), adjusted.p_adjusted as p_both_adjusted,
    estimate - (simultaneous_high - estimate) * widening as both_low,
    estimate + (simultaneous_high - estimate) * widening as both_high,
    2.8 * error_both as both_smallest_detectable
from joined
inner join holm('tested') as adjusted using (family, test)
