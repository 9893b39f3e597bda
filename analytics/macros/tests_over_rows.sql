-- from tests_over_rows('differences'): tests that means over tasks are 0, for other rows of the same tasks.
-- differences: a relation with family and test (of any type), task, estimate, its standard_error over the rows of the
-- task and n_free, the degrees of freedom of that. One row per (family, test): mean; error, of the mean, with n_free
-- degrees of freedom (Welch 1947, Satterthwaite 1946); low, high: its 95 % interval by Student's t; p: two-sided, the
-- same way; p_adjusted: for all tests of the family together (holm); simultaneous_low, simultaneous_high: a band for
-- all of them (Bonferroni). All are null where a task lacks its estimate or error.
create macro tests_over_rows(differences) as table
with
means as (
    select
        family, test,
        case when count(estimate) = count(*) then avg(estimate order by task) end as mean,
        case
            when count(standard_error) = count(*) then sqrt(sum(standard_error ** 2 order by task)) / count(*)
        end as error,
        coalesce(
            sum(standard_error ** 2 order by task) ** 2 / nullif(sum(standard_error ** 4 / nullif(n_free, 0) order by task), 0),
            sum(n_free)
        ) as n_free
    from query_table(differences)
    group by all
),

tested as (
    select *, student_p(mean / nullif(error, 0), n_free) as p
    from means
),

reaches as (
    select
        tested.*, adjusted.p_adjusted,
        case when error = 0 then 0 else t_quantile(n_free) * error end as reach,
        case
            when error = 0 then 0
            else student_quantile(0.05 / count(p) over (partition by family), n_free) * error
        end as simultaneous_reach
    from tested
    inner join holm('tested') as adjusted using (family, test)
)

select
    family, test, mean, error, n_free, mean - reach as low, mean + reach as high, p, p_adjusted,
    mean - simultaneous_reach as simultaneous_low, mean + simultaneous_reach as simultaneous_high
from reaches
