-- One row per (n_demos, purpose): how many prompts lost demonstrations, or text, to the length limit.
-- A looc prompt leaves one demonstration out by design.
select
    n_demos,
    purpose,
    count(*) as n_rows,
    count(*) filter (n_demos_used < n_demos - (purpose = 'looc')::int) as n_fewer_demos,
    count(*) filter (is_truncated) as n_truncated
from prompts
group by all
