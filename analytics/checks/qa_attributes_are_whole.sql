-- Rows here: a question without a heuristic that the run asked for, an attribute of an unknown question or heuristic,
-- or a value that cannot be compared with a threshold.
with
asked as (
    select qa_examples.dataset, qa_examples.example_id, unnest(qa_settings.heuristics) as heuristic
    from qa_examples
    cross join qa_settings
)

select format('question {} of {} has no {}', example_id, dataset, heuristic) as problem
from asked
anti join qa_attributes using (dataset, example_id, heuristic)
union all
select format('question {} of {} has {}, which was not asked for', example_id, dataset, heuristic) as problem
from qa_attributes
anti join asked using (dataset, example_id, heuristic)
union all
select
    format('question {} of {} has {} {}', example_id, dataset, heuristic, coalesce(value::varchar, 'null')) as problem
from qa_attributes
where not coalesce(isfinite(value), false) or is_measured is null
order by all
