-- from two_model_parts('sums'): what each article does to a difference between two models: of their means, or of the
-- gaps between their means in two segments of the questions (lower minus higher). sums: a relation with family and test
-- (of any type), unit (the article), n_lower and n_higher (its questions in either segment), lower and higher: the sums
-- over them of the difference between the models' values. Where no article of a test has a question of the higher
-- segment, the difference is one of means. One row per (family, test, unit): part: what the article adds to the
-- difference, where that is 0: of its questions' differences is subtracted how much better one model is in both
-- segments alike, which is no difference of gaps; the parts sum to the difference. moved: how far the difference moves
-- where the article is left out; null where a segment lies in it alone.
create macro two_model_parts(sums) as table
with
totals as (
    select
        family, test, sum(n_lower) as n_lower, sum(n_higher) as n_higher, sum(lower order by unit) as lower,
        sum(higher order by unit) as higher
    from query_table(sums)
    group by all
),

shares as (
    select
        sums.*, totals.n_lower as all_lower, nullif(totals.n_higher, 0) as all_higher,
        coalesce((totals.lower + totals.higher) / (all_lower + all_higher), 0) as level,
        totals.lower / all_lower as lower_mean, totals.higher / all_higher as higher_mean
    from query_table(sums) as sums
    inner join totals using (family, test)
)

select
    family, test, unit,
    (lower - n_lower * level) / all_lower - coalesce((higher - n_higher * level) / all_higher, 0) as part,
    (n_lower * lower_mean - lower) / nullif(all_lower - n_lower, 0)
    - if(all_higher is null, 0, (n_higher * higher_mean - higher) / nullif(all_higher - n_higher, 0)) as moved
from shares
