-- One row per (model, task, n_demos, instruction, setting, predict, method): majority_by_setting, averaged over seeds.
-- sd_f1 is the sample standard deviation over seeds, null with one. n_rows counts the rows of all seeds. is_within:
-- inside the robustness boundary, so that rb_at_10 (rb_at_k) is its share of the settings. boundary: the weighted F1
-- from which on a setting is inside, null where being inside says nothing: most outputs are no label, and weighted F1
-- measures their format, or no setting is shown to be better than an answer that is always the same. is_marked: inside
-- a boundary that says something. is_above_constant, constant_p: as in majority_by_setting, of the means over seeds,
-- adjusted for all settings; n_seeds_not_above: seeds in which neither exceeds that of the constant answer.
-- share_most_frequent: the largest of the seeds. recency: a label's share of the predictions with the seeds where it is
-- the last demonstration's, minus that with the others, averaged over the labels that are both; null where none is.
with
intervals as (
    select
        model, task, n_demos, instruction, setting, predict, method, interval_low(weighted_f1, draw) as weighted_f1_low,
        interval_high(weighted_f1, draw) as weighted_f1_high
    from majority_draws_over_seeds
    group by all
),

means as (
    select
        model, task, n_demos, instruction, setting, number, predict, method,
        avg(columns('^(weighted_f1|accuracy|share_majority|share_last|share_no_label)$') order by seed) as "\1",
        stddev_samp(weighted_f1 order by seed) as sd_f1, max(share_most_frequent) as share_most_frequent,
        count(*) as n_seeds, sum(n_rows)::bigint as n_rows
    from majority_by_setting
    group by all
),

-- What another last demonstration changes at the same proportions.
label_contrasts as (
    select
        task, n_demos, instruction, setting, predict, method, label,
        avg(share_predicted order by seed) filter (is_last)
        - avg(share_predicted order by seed) filter (not is_last) as recency
    from majority_label_shares
    group by all
),

bests as (
    select
        model, task, n_demos, instruction, predict, method, max(weighted_f1) as best_f1,
        avg(share_no_label order by number) as mean_share_no_label
    from means
    group by all
)

select
    model, task, n_demos, instruction, setting, number, predict, method, weighted_f1, weighted_f1_low, weighted_f1_high,
    sd_f1, accuracy, share_majority, share_last, share_no_label, weighted_f1 >= best_f1 - 0.1 - 1e-9 as is_within,
    if(mean_share_no_label <= 0.5 and n_settings_above > 0, best_f1 - 0.1, null) as boundary,
    is_within and boundary is not null as is_marked, n_seeds, n_rows, recency, share_most_frequent, constant_p,
    is_above_constant, n_seeds_not_above
from means
inner join intervals using (model, task, n_demos, instruction, setting, predict, method)
inner join bests using (model, task, n_demos, instruction, predict, method)
inner join (select * exclude (label, recency), avg(recency order by label) as recency from label_contrasts group by all)
    using (task, n_demos, instruction, setting, predict, method)
inner join (select * from majority_constant_tests where seed is null)
    using (task, n_demos, instruction, setting, predict, method)
order by all
