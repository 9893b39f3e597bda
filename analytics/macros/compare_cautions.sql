-- from compare_cautions('shared', 'compared', reasons, measured): cautions about how other_run differs from run: run,
-- other_run, line, lead (empty), text, which stands behind the names of the runs. shared: a relation *_shared; compared:
-- *_compared; reasons: further texts, by run, other_run and line; measured: each thing that a run measured.
create macro compare_cautions(shared, compared, reasons, measured) as table
select run, other_run, 1 as line, '' as lead, 'nothing can be compared, so the run is left out.' as text
from query_table(shared)
where not is_comparable
union all by name
select run, other_run, line, '' as lead, text || '.' as text
from query_table(reasons)
semi join (select * from query_table(shared) where is_comparable) as pairs using (run, other_run)
where text is not null
union all by name
select
    run, other_run, 16 as line, '' as lead,
    'not compared, because only one of the two runs has it: '
    || some_of(list(format('{} ({})', thing, owner) order by len(thing), thing), 6) || '.' as text
from (
    select pairs.run, other_run, thing, any_value(own.run) as owner
    from query_table(shared) as pairs
    inner join query_table(measured) as own on is_comparable and own.run in (pairs.run, other_run)
    group by all
    having count(distinct own.run) = 1
)
group by all
union all by name
select
    run, other_run, 90 as line, '' as lead,
    format(
        'the interval of {} includes 0. Intervals hold for all tests at once, and p is step-down, which finds more; verdicts go '
        || 'by p.', counted(count(*), 'significant difference')
    ) as text
from query_table(compared)
where verdict in ('higher', 'lower') and verdict_low <= 0 and verdict_high >= 0
group by run, other_run
order by run, other_run, line, text
