-- One row per objective of a search: its place, 0-based, whether more is better, and whether its query reads bias_score:
-- sampling noise alone makes it greater than 0, so no test compares trials by it.
select
    unnest(objectives) as objective,
    unnest(range(len(objectives))) as number,
    unnest(are_maximized) as is_maximized,
    unnest(coalesce(are_of_bias_score, list_transform(objectives, lambda own: false))) as is_of_bias_score
from search_settings
