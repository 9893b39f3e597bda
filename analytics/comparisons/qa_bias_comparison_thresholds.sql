-- One row per pair of models (qa_bias_paired), dataset and heuristic that both runs ask for: the one threshold that
-- splits the questions for both models; values, thresholds tried and the size of samples are those of run. is_fixed: it
-- is the one that the spec of run gives. Else it is, of those that run tried, the one that tells the segments apart
-- most clearly by the answers of both models together (two-proportion z), with at least a sample of questions in each
-- segment; the smallest on ties. That depends on the sum of the two models' hits and not on their difference: it
-- favours neither model, and stays the same where signs of differences are flipped. better_segment: which one both
-- together answer better: 'lower' (value <= threshold) or 'higher'. n_lower, n_higher: questions that both answered.
with
asked as (
    select run, unnest(heuristics) as heuristic
    from qa_settings
),

by_value as (
    select
        paired.run, paired.other_run, paired.model, paired.other_model, paired.dataset, qa_attributes.heuristic,
        qa_attributes.value, count(*) as n_questions,
        sum(paired.exact_match + paired.other_exact_match) / 2 as hits
    from qa_bias_paired as paired
    inner join qa_attributes using (run, dataset, example_id)
    inner join asked as own on paired.run = own.run and qa_attributes.heuristic = own.heuristic
    inner join asked as other on paired.other_run = other.run and qa_attributes.heuristic = other.heuristic
    where qa_attributes.is_measured and isfinite(qa_attributes.value)
    group by all
),

sums as materialized (
    select
        * exclude (n_questions, hits), sum(n_questions) over below as n_lower, sum(hits) over below as hits_lower,
        sum(n_questions) over whole as n_all, sum(hits) over whole as hits_all
    from by_value
    window
        whole as (partition by run, other_run, model, other_model, dataset, heuristic),
        below as (partition by run, other_run, model, other_model, dataset, heuristic order by value)
),

tried as (
    select distinct
        run, other_run, model, other_model, dataset, heuristic, qa_thresholds.threshold as value, qa_thresholds.is_fixed
    from sums
    inner join qa_thresholds using (run, dataset, heuristic)
),

-- The largest value that a threshold includes has the sums of its lower segment.
candidates as (
    select
        tried.*, sums.n_lower, sums.n_all - sums.n_lower as n_higher, sums.hits_all / sums.n_all as mean,
        sums.hits_lower / sums.n_lower - (sums.hits_all - sums.hits_lower) / (sums.n_all - sums.n_lower) as gap
    from tried
    asof inner join sums using (run, other_run, model, other_model, dataset, heuristic, value)
    where sums.n_lower < sums.n_all
),

judged as (
    select
        candidates.*,
        if(mean > 0 and mean < 1, round(abs(gap) / sqrt(mean * (1 - mean) * (1 / n_lower + 1 / n_higher)), 9), 0) as z
    from candidates
    inner join qa_settings using (run)
    where is_fixed or least(n_lower, n_higher) >= qa_settings.sample
)

select
    run, other_run, model, other_model, dataset, heuristic, value as threshold, is_fixed,
    if(gap >= 0, 'lower', 'higher') as better_segment, n_lower::bigint as n_lower, n_higher::bigint as n_higher
from judged
qualify row_number() over (partition by run, other_run, model, other_model, dataset, heuristic order by z desc, value) = 1
order by all
