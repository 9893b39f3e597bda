-- One row per (in-distribution dataset, method or 'all', out-of-distribution dataset or 'mean' of them): do readers
-- that rely less on the shortcut they were trained against do better elsewhere (P3)? Over n_models debiased readers:
-- the correlation of significance_change of the addressed heuristic (qa_debiasing) with f1_change on the other set
-- (qa_out_of_distribution). Below 0, smaller significances go with larger F1. Null below 3 readers, and where either
-- does not vary (tolerance 1e-9). pearson_low, pearson_high: 95 %, by Fisher's z, from 4 readers on; it takes them as
-- independent, which seeds, bases and biases of one study are not quite. spearman: Pearson's of the ranks, means for
-- ties.
with
shifts as (
    select qa_debiasing.model, qa_debiasing.method, qa_debiasing.dataset, qa_debiasing.significance_change
    from qa_debiasing
    inner join (select distinct dataset, role from qa_out_of_distribution) as roles using (dataset)
    where qa_debiasing.is_addressed and roles.role = 'in_distribution' and qa_debiasing.method <> 'standard'
),

outcomes as (
    select model, dataset as other_dataset, f1_change
    from qa_out_of_distribution
    where role = 'out_of_distribution'
    union all
    select model, 'mean' as other_dataset, f1_change
    from qa_out_of_distribution_by_model
),

asked as (
    select
        shifts.dataset, unnest([shifts.method, 'all']) as method, outcomes.other_dataset, shifts.model,
        if(outcomes.f1_change is null, null, shifts.significance_change) as x,
        if(shifts.significance_change is null, null, outcomes.f1_change) as y
    from shifts
    inner join outcomes using (model)
),

ranked as (
    select
        *,
        rank() over (partition by dataset, method, other_dataset order by round(x, 9))
        + (count(*) over (partition by dataset, method, other_dataset, round(x, 9)) - 1) / 2 as x_rank,
        rank() over (partition by dataset, method, other_dataset order by round(y, 9))
        + (count(*) over (partition by dataset, method, other_dataset, round(y, 9)) - 1) / 2 as y_rank
    from asked
    where x is not null and y is not null
),

correlations as (
    select
        dataset, method, other_dataset, count(*) as n_models,
        count(*) >= 3 and max(x) - min(x) > 1e-9 and max(y) - min(y) > 1e-9 as is_defined,
        if(is_defined, least(1, greatest(-1, corr(y, x order by model))), null) as pearson,
        if(is_defined, least(1, greatest(-1, corr(y_rank, x_rank order by model))), null) as spearman
    from ranked
    group by all
)

select
    dataset, method, other_dataset, coalesce(correlations.n_models, 0) as n_models, correlations.pearson,
    case
        when correlations.n_models > 3 then tanh(
            atanh(correlations.pearson) - 1.959963984540054 / sqrt(correlations.n_models - 3)
        )
    end as pearson_low,
    case
        when correlations.n_models > 3 then tanh(
            atanh(correlations.pearson) + 1.959963984540054 / sqrt(correlations.n_models - 3)
        )
    end as pearson_high,
    correlations.spearman
from (select distinct dataset, method, other_dataset from asked) as groups
left join correlations using (dataset, method, other_dataset)
order by all
