-- told_lengths('prompt_lengths'): how much longer demonstrations make a prompt, as a line of conclusions.
create macro told_lengths(lengths) as table
select
    4 as line, 'Price of demonstrations:' as lead,
    'on average, a prompt has ' || listed(list(
        counted(n_tokens, 'token') || ' ' || with_demos(n_demos)
        || case when times_as_long = 1 then '' else format(' ({:.1f} times as many)', times_as_long) end order by n_demos
    ))
    || case when count(*) = 1 then format(', of which {:,} come before the text of the row.', any_value(n_tokens_before)) else '.' end as text
from (from query_table(lengths) qualify count(*) over () <= 3 or n_demos in (min(n_demos) over (), max(n_demos) over ()))
having max(n_demos) > 0
