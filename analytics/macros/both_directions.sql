-- from both_directions('tests'): tests of ordered pairs, and of the same pairs the other way round: the sides are
-- exchanged and the difference is turned round. tests: a relation with an estimate, of the other side minus the one. Of
-- run, model, value and is_above_constant, where it has them, the two sides are in columns with and without other_; the
-- ends of every interval are called low and high, or end so. All other columns are the same in both directions.
create macro both_directions(tests) as table
from query_table(tests)
union all by name
select
    columns(lambda name: not regexp_matches(name, '^(other_)?(run|model|value|is_above_constant)$|^estimate$|(low|high)$')),
    columns('^(run|model|value|is_above_constant)$') as 'other_\1',
    columns('^other_(run|model|value|is_above_constant)$') as '\1',
    0 - estimate as estimate, 0 - columns('^(.*)low$') as '\1high', 0 - columns('^(.*)high$') as '\1low'
from query_table(tests)
