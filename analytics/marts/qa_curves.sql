-- One row per (model, dataset, heuristic, bin): exact match and F1 (0 to 1) over the attribute's value, ascending.
-- A bin ends at a whole number, or at a multiple of 0.05 where no value is above 1, so that thresholds lie between
-- bins. There are at most 25, the same for every model, each with at least 30 of the dataset's measured questions
-- where there are as many. 95 % intervals as in qa_by_dataset, clustered by article.
with recursive

scaled as (
    select
        dataset, heuristic,
        if(max(value) over (partition by dataset, heuristic) <= 1 + 1e-9, 20, 1) as n_per_unit,
        ceil(value * n_per_unit - 1e-9) as value_up_to
    from qa_attributes
    where is_measured
),

cumulated as (
    select
        dataset, heuristic, n_per_unit, value_up_to,
        sum(count(*)) over (partition by dataset, heuristic order by value_up_to) - count(*) as n_before,
        sum(count(*)) over (partition by dataset, heuristic) as n_measured,
        greatest(30, n_measured / 25) as n_needed
    from scaled
    group by dataset, heuristic, n_per_unit, value_up_to
),

bins as (
    select dataset, heuristic, n_per_unit, 0 as bin, min(value_up_to) as bin_start, 0::hugeint as n_before
    from cumulated
    group by all
    union all
    select
        bins.dataset, bins.heuristic, bins.n_per_unit, bins.bin + 1 as bin, min(cumulated.value_up_to) as bin_start,
        min(cumulated.n_before) as n_before
    from bins
    inner join cumulated using (dataset, heuristic)
    where
        cumulated.n_before - bins.n_before >= cumulated.n_needed
        and cumulated.n_measured - cumulated.n_before >= cumulated.n_needed
    group by all
),

placed as (
    select qa_measured.*, ceil(qa_measured.value * scales.n_per_unit - 1e-9) as value_up_to
    from qa_measured
    inner join (select dataset, heuristic, any_value(n_per_unit) as n_per_unit from bins group by all) as scales
        using (dataset, heuristic)
),

binned as (
    select placed.*, bins.bin
    from placed
    asof join bins
        on placed.dataset = bins.dataset and placed.heuristic = bins.heuristic and placed.value_up_to >= bins.bin_start
),

articles as (
    select
        {'model': binned.model, 'dataset': dataset, 'heuristic': binned.heuristic, 'bin': binned.bin} as cell,
        qa_articles.article, min(binned.value) as value_low, max(binned.value) as value_high,
        sum(binned.value order by binned.row) as value, sum(binned.exact_match order by binned.row) as exact_match,
        sum(binned.f1 order by binned.row) as f1, count(*) as n_rows
    from binned
    inner join qa_articles using (dataset, example_id)
    group by all
),

spans as (
    select
        cell, min(value_low) as value_low, max(value_high) as value_high,
        sum(value order by article) / sum(n_rows) as value_mean
    from articles
    group by all
)

select
    means.cell.model as model, means.cell.dataset as dataset, means.cell.heuristic as heuristic, means.cell.bin as bin,
    spans.value_low, spans.value_high, spans.value_mean, means.exact_match, means.exact_match_low,
    means.exact_match_high, means.f1, means.f1_low, means.f1_high, means.n_rows, means.n_articles
from article_means('articles') as means
inner join spans using (cell)
order by all
