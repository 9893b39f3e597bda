-- Rows here: a threshold whose two segments are large enough and do not have every trial, draws of another threshold,
-- or one without a mean.
with
drawn as (
    select
        model, dataset, heuristic, threshold, count(*) as n_draws,
        count(*) filter (
            segment in ('lower', 'higher')
            and trial between 0 and qa_settings.trials - 1
            and exact_match is not null
            and f1 is not null
        ) as n_whole
    from qa_draws
    cross join qa_settings
    group by all
),

compared as (
    select *, if(coalesce(candidates.is_measured, false), 2 * qa_settings.trials, 0) as n_wanted
    from drawn
    full join qa_bias_candidates as candidates using (model, dataset, heuristic, threshold)
    cross join qa_settings
)

select
    format('{}, {}, {}, threshold {}: {} draws, {} of them whole; wanted {}',
           model, dataset, heuristic, threshold, coalesce(n_draws, 0), coalesce(n_whole, 0), n_wanted) as problem
from compared
where coalesce(n_draws, 0) <> n_wanted or coalesce(n_whole, 0) <> n_wanted
order by all
