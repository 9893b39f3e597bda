-- One row per trained reader that is measured out of distribution: qa_out_of_distribution's means over the n_datasets
-- sets out of distribution, each counted once (0 to 1). Changes, of which the standard readers have none, have a 95 %
-- interval, of those of the sets: these have different questions, so their errors are independent. A change is null
-- unless every set has one, and its interval unless every set has that. n_rows: of all sets together. *_p,
-- *_p_adjusted, *_verdict: as in qa_out_of_distribution.
with
means as (
    select
        model, base, data, method, bias, seed, avg(f1 order by dataset) as f1,
        avg(exact_match order by dataset) as exact_match,
        count(f1_change) = count(*) as is_compared,
        if(is_compared, avg(standard_f1 order by dataset), null) as standard_f1,
        if(is_compared, avg(standard_exact_match order by dataset), null) as standard_exact_match,
        if(is_compared, avg(f1_change order by dataset), null) as f1_change,
        if(is_compared, avg(exact_match_change order by dataset), null) as exact_match_change,
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
)

select
    means.model, base, data, method, bias, seed, f1, exact_match, standard_f1, standard_exact_match, f1_change,
    f1_change - half_width_f1 as f1_change_low,
    f1_change + half_width_f1 as f1_change_high,
    exact_match_change,
    exact_match_change - half_width as exact_match_change_low,
    exact_match_change + half_width as exact_match_change_high,
    n_datasets, n_rows, f1_tests.p as f1_p, f1_tests.p_adjusted as f1_p_adjusted, f1_tests.verdict as f1_verdict,
    exact_match_tests.p as exact_match_p, exact_match_tests.p_adjusted as exact_match_p_adjusted,
    exact_match_tests.verdict as exact_match_verdict
from means
left join qa_answer_changes as f1_tests
    on means.model = f1_tests.model and f1_tests.dataset = 'mean' and f1_tests.metric = 'f1'
left join qa_answer_changes as exact_match_tests
    on
        means.model = exact_match_tests.model and exact_match_tests.dataset = 'mean'
        and exact_match_tests.metric = 'exact_match'
order by all
