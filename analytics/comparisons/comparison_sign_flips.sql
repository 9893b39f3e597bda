-- One row per draw: the patterns of signs of every test between runs: those of the run with the most places (the
-- first by name where several have as many), the same for all pairs, so that both directions of a pair agree.
with
longest as (
    select run
    from (select run, max(len(signs)) as n_places from sign_flips group by run)
    order by n_places desc, run
    limit 1
)

select draw, signs
from sign_flips
semi join longest using (run)
