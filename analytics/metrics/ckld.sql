-- shown: CKLD
-- meaning: Kullback-Leibler divergence of the shares of gold labels from the shares of predictions, in nats (Choi et al. 2024).
--   Infinite by its formula, and null here, where a gold label is never predicted.
-- range: 0 to inf
-- better: lower
-- noise: none
-- rows: predictions
with
shares as (
    select
        *,
        sum(case when n_gold > 0 then n_gold / sum_gold * ln(n_gold / nullif(n_predicted, 0)) end) over setting
        + case when min(n_predicted) filter (n_gold > 0) over setting = 0 then null else 0 end as divergence
    from (select *, sum(n_gold) over (partition by task, format, n_demos, demo_set, method) as sum_gold from format_labels)
    window setting as (partition by task, format, n_demos, demo_set, method)
)

select
    cells.*, shares.divergence as value,
    ln(cells.n_gold / shares.n_predicted) + 1 - predicted_n_gold / predicted_n_predicted - shares.divergence as influence
from answer_cells as cells
inner join (select * rename (label as gold) from shares) as shares
    using (task, format, n_demos, demo_set, method, gold)
