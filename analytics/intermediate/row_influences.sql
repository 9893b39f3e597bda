-- One row per (metric, task, format, n_demos, method, row): how far a row moves the metric, averaged over demonstration
-- sets (metric_patterns). purpose: of its rows, main or bias_score. Metrics of bias_score rows are made of means within
-- gold labels of few rows: their influences are scaled by sqrt(n / (n - 1)), so that their spread is that of their
-- errors.
select
    patterns.metric, task, format, n_demos, method,
    case of_rows when 'bias_score' then 'bias_score' else 'main' end as purpose,
    row_patterns.row,
    case of_rows when 'bias_score' then sqrt(spread) else 1 end * influence as influence
from row_patterns
inner join metric_patterns as patterns using (of_rows, task, format, n_demos, method, pattern)
