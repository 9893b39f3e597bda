-- One row per objective of a search: its place, 0-based, and whether more is better.
select
    unnest(objectives) as objective,
    unnest(range(len(objectives))) as number,
    unnest(are_maximized) as is_maximized
from search_settings
