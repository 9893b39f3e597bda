-- One row per (n_demos, purpose): how many prompts lost demonstrations, or text, to the length limit.
-- Some methods (looc) leave one demonstration out by design.
select
    n_demos, purpose, count(*) as n_rows,
    count(*) filter (n_demos_used < n_demos - coalesce(leaves_one_out, false)::int) as n_fewer_demos,
    count(*) filter (is_truncated) as n_truncated
from prompts
left join calibration_methods on purpose = calibration_methods.method
group by all
