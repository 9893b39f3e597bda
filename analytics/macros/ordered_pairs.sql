-- from ordered_pairs('pairs'): pairs, and the same pairs the other way round: run, model, exact_match and f1 change
-- places with other_run, other_model and so on.
create macro ordered_pairs(pairs) as table
from query_table(pairs)
union all by name
select
    columns(lambda name: not regexp_matches(name, '^(other_)?(run|model|exact_match|f1)$')),
    columns('^(run|model|exact_match|f1)$') as 'other_\1', columns('^other_(run|model|exact_match|f1)$') as '\1'
from query_table(pairs)
