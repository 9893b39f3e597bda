-- from holm('tests'): p-values of many tests adjusted so that the chance that any of them errs is 5 % where p_adjusted
-- is at most 5 %, however they depend on each other (Holm 1979): each p times the number of tests that are not smaller,
-- and at least that of the tests before it. tests: a relation with family, test (of any type) and p. One row per
-- (family, test): p_adjusted. Null where p is, which is no test.
create macro holm(tests) as table
with
ranked as (
    select
        family, test, p, count(p) over (partition by family) as n_tests,
        row_number() over (partition by family order by p nulls last, test) as place
    from query_table(tests)
)

select
    family, test,
    case
        when p is not null then max(least(1, p * (n_tests - place + 1))) over (partition by family order by place)
    end as p_adjusted
from ranked
