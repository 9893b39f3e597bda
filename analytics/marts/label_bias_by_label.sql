-- One row per (model, task, n_demos, demo_set, method, label): how often it is right, predicted and preferred. In the
-- base format of the prompt; format_labels has the others. recall is null where no main row has the label; recall_p:
-- that it is the recall of all rows, by an exact permutation of hits between gold labels (two-sided; null with one gold
-- label). mean_probability is over the bias_score rows, with its standard error (label_preferences); preference_p: that
-- it is 1 / labels, by Student's t, 0 or 1 where no row of a label differs from another; null where a label of the task
-- has fewer than five rows there (n_bias_score_rows_of_label).
select * exclude (format)
from format_labels
where format = 'base'
order by all
