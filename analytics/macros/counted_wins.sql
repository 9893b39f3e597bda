-- from counted_wins('disagreements', keys): by keys (names of columns), how many rows of disagreements only the other
-- side (n_wins) or only the one (n_losses) has right.
create macro counted_wins(disagreements, keys) as table
select
    columns(lambda name: list_contains(keys, name)),
    count(*) filter (is_win) as n_wins, count(*) filter (not is_win) as n_losses
from query_table(disagreements)
group by all
order by all
