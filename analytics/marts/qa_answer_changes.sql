-- One row per (debiased reader, dataset of any role or 'mean' of those out of distribution, metric 'f1' or
-- 'exact_match'): what its change against the standard reader of the same base, data and seed may be said to show, from
-- 0 to 1, on the questions that both answered; the mean counts each set once, and is there where every set has a
-- change. estimate: the reader minus its standard one. From n_units on, as of two_model_tests over articles; all
-- readers, sets and metrics are one family. p_adjusted is twice that of the family, for a page has another one
-- (qa_debiasing), so that in 95 % of pages none of all its words is wrong. verdict: of an effect of at least 0.01. Null
-- with a single article, but for estimate and n_units.
with
sums as (
    select
        model, dataset, unnest(['f1', 'exact_match']) as metric, article, count(*) as n_lower,
        unnest([sum(f1 - standard_f1 order by row), sum(exact_match - standard_exact_match order by row)]) as lower
    from qa_paired_answers
    where standard_f1 is not null
    group by model, dataset, article
),

differences as (
    select
        'all' as family,
        {'model': model, 'dataset': dataset, 'metric': metric} as test,
        article as unit, n_lower, 0 as n_higher, lower, 0 as higher
    from sums
),

parts as (
    select unnest(test), unit, part, moved
    from two_model_parts('differences')
),

-- Sets that each reader answered, of which all must have a change for a mean.
outside as (
    select
        model, answered.dataset, count(*) over (partition by model) as n_datasets,
        count(compared.dataset) over (partition by model) as n_compared
    from (select distinct model, dataset from qa_paired_answers) as answered
    semi join (select distinct dataset from qa_articles where role = 'out_of_distribution') as roles using (dataset)
    left join (select distinct model, dataset from sums) as compared using (model, dataset)
),

placed as (
    select *, dataset as place
    from parts
    union all
    select model, dataset, metric, unit, part / n_datasets as part, moved / n_datasets as moved, 'mean' as place
    from parts
    inner join outside using (model, dataset)
    where n_compared = n_datasets
),

units as (
    select
        'all' as family, {'model': model, 'dataset': place, 'metric': metric} as test,
        dense_rank() over (order by dataset, unit) - 1 as unit, part, moved
    from placed
),

tests as (
    select
        tests.* exclude (family, p_adjusted),
        case when p_adjusted is not null then least(1, 2 * p_adjusted) end as p_adjusted
    from two_model_tests('units', 'sign_flips') as tests
)

select
    test.model as model, test.dataset as dataset, test.metric as metric, estimate, n_units, standard_error, low, high,
    p, p_adjusted, simultaneous_low, simultaneous_high, smallest_detectable,
    verdict(estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, least_effect(test.metric)) as verdict
from tests
order by all
