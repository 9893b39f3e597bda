-- One row per trained reader that is measured out of distribution: qa_out_of_distribution's means over the n_datasets
-- sets out of distribution, each counted once (0 to 1). Changes, of which the standard readers have none, have a 95 %
-- interval, of those of the sets: these have different questions, so their errors are independent. A change is null
-- unless every set has one, and its interval unless every set has that. n_rows: of all sets together. *_p,
-- *_p_adjusted, *_verdict: as in qa_out_of_distribution.
with
means as (
    select
        model, base, data, method, bias, seed, avg(columns('^(f1|exact_match)$') order by dataset) as "\1",
        count(f1_change) = count(*) as is_compared,
        if(
            is_compared,
            avg(columns('^(standard_(?:f1|exact_match)|(?:f1|exact_match)_change)$') order by dataset), null
        ) as "\1",
        count(f1_change_low) = count(*) as has_interval,
        if(
            has_interval,
            sqrt(sum(power(f1_change_high - f1_change_low, 2) order by dataset)) / 2 / count(*),
            null
        ) as half_width_f1,
        if(
            has_interval,
            sqrt(sum(power(exact_match_change_high - exact_match_change_low, 2) order by dataset)) / 2 / count(*),
            null
        ) as half_width,
        count(*) as n_datasets, sum(n_rows)::bigint as n_rows
    from qa_out_of_distribution
    where role = 'out_of_distribution'
    group by all
),

tests as (
    from qa_answer_changes pivot (
        any_value(p) as p, any_value(p_adjusted) as p_adjusted, any_value(verdict) as verdict
        for metric in ('f1', 'exact_match') group by model, dataset
    )
)

select
    model, base, data, method, bias, seed, f1, exact_match, standard_f1, standard_exact_match, f1_change,
    f1_change - half_width_f1 as f1_change_low, f1_change + half_width_f1 as f1_change_high, exact_match_change,
    exact_match_change - half_width as exact_match_change_low,
    exact_match_change + half_width as exact_match_change_high, n_datasets, n_rows, tests.* exclude (model, dataset)
from means
left join (from tests where dataset = 'mean') as tests using (model)
order by all
