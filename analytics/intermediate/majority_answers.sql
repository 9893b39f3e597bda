-- One row per (task, n_demos, instruction, predict, method): how much alike the answers are, over all settings and
-- seeds. share_most_frequent: the predictions that are the most frequent one; no label counts as an answer of its own,
-- as a model that always writes none is constant too.
with
answer_counts as (
    select task, n_demos, instruction, predict, method, prediction, count(*) as n_predictions
    from majority_predictions
    group by all
)

select * exclude (prediction, n_predictions), max(n_predictions) / sum(n_predictions) as share_most_frequent
from answer_counts
group by all
