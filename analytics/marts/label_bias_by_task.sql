-- One row per (model, task, n_demos, demo_set, method): performance and label bias (Reif & Schwartz 2024). As all marts
-- but label_bias_*format*, of the base format of the prompt (format_metrics has the others). macro_f1 and rsd run over
-- the labels that occur in gold, bias_score over the whole label set; rsd is 0 at accuracy 0. Sampling noise of these
-- values: rsd_floor: about the RSD of a model whose recall does not depend on the label, of so many rows and this
-- accuracy (exact to the second moment of hits that are permuted between gold labels); rsd_excess: RSD without the
-- variance of that, at least 0; rsd_p: that hits do not depend on the label, the smallest recall_p of its labels times
-- their number (Bonferroni; two labels have one and the same). Null with one gold label or accuracy 0 or 1, where RSD
-- says nothing. relative_variance: the square of RSD without what rows add to it, signed: (variance of recalls - (C -
-- 1) / C^2 * sum over the C gold labels of r (1 - r) / (n - 1)) / accuracy^2, with accuracy for r and n for n - 1 at a
-- label of one row. The numerator is on average the variance between labels, whatever the accuracy, so that it does not
-- fall where only accuracy rises, as RSD does. Null at accuracy 0, where there is nothing to divide by, so that RSD, 0
-- there, has no word. n_gold_labels: gold labels among the bias_score rows. bias_score_of_perfect: that of a model
-- which is always right and sure, 1 - n_gold_labels / n_labels, so that 0 is not within reach where a label does not
-- occur. bias_score_floor: about what rows alone leave of a model without preference, the mean of half the sum of
-- normal deviations; bias_score_p: that no label is preferred, by preference_p as above; the floor is null unless every
-- label occurs, p unless each has five rows: n_fewest_bias_score_rows: the fewest rows that a label has there, which is
-- fewest_bias_score_label (the first on ties). squared_preference: the sum over labels of (mean probability - 1 /
-- labels)^2, less its squared standard error, which is what rows add: signed, and 0 on average without preference. Null
-- where each gold label has one row. is_above_constant: a setting is better than the best answer that is always the
-- same: true where accuracy or macro_f1 is shown to exceed that of such an answer (majority_accuracy,
-- majority_macro_f1; constant_p, one-sided, adjusted for all sets of the run), false where neither exceeds it, null
-- where that is not shown (constant_tests). n_main_gold_labels: gold labels among the main rows. majority_accuracy,
-- majority_macro_f1: of always giving the most frequent of them (majority-class baseline). share_most_frequent: of the
-- predictions, the most frequent one. rsd_smallest_detectable, bias_score_smallest_detectable: the smallest biases that
-- rsd_p and bias_score_p find in four of five runs of so many rows (smallest_biases); null where they find none.
select
    format_metrics.* exclude (format),
    constant_p, is_above_constant, smallest.rsd_smallest_detectable, smallest.bias_score_smallest_detectable
from format_metrics
inner join constant_tests using (task, format, n_demos, demo_set, method)
left join smallest_biases as smallest using (task, n_demos, demo_set, method)
where format = 'base'
order by all
