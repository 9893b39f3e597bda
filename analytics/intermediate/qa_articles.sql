-- One row per question: the number of the article that it is about, 0-based in the order of the texts, of the dataset's
-- n_articles. An article is a title, or a context where questions have no title. Errors of questions about the same
-- article are not independent: they are clustered by it, and bootstrap samples are of whole articles.
with
numbered as (
    select
        dataset, example_id, role, row,
        dense_rank() over (partition by dataset order by coalesce(nullif(title, ''), context)) - 1 as article
    from qa_examples
)

select *, max(article) over (partition by dataset) + 1 as n_articles
from numbered
