-- One row per task of label bias: the best constant answer, which gives the most frequent gold label of the main rows
-- (label). majority_accuracy: its accuracy, the label's share p. majority_macro_f1: its macro-F1, 2 p / (1 + p) over
-- the number of gold labels, which grows with p; macro_f1_slope: the derivative of that by p. n_gold_least: rows of the
-- rarest.
select
    task, arg_max(gold, {'n_gold': n_gold, 'gold': gold}) as label, max(n_gold) / sum(n_gold) as majority_accuracy,
    2 * majority_accuracy / (1 + majority_accuracy) / count(*) as majority_macro_f1,
    2 / (1 + majority_accuracy) ** 2 / count(*) as macro_f1_slope,
    min(n_gold) as n_gold_least
from (select distinct task, label as gold, n_gold from format_labels where n_gold > 0)
group by task
