-- One row per (task, format, n_demos, method, purpose, row): how far a row moves each metric, averaged over demonstration sets.
-- accuracy, macro_f1, rsd and relative_variance are of main rows (main_patterns), bias_score and squared_preference of
-- bias_score rows (bias_score_rows), else null.
-- These two are of means within gold labels of few rows: their influences are scaled by sqrt(n / (n - 1)), so that their
-- spread is that of their errors.
select
    answers.task,
    answers.format,
    answers.n_demos,
    answers.method,
    'main' as purpose,
    answers.row,
    patterns.accuracy,
    patterns.macro_f1,
    patterns.rsd,
    null::double as bias_score,
    patterns.relative_variance,
    null::double as squared_preference
from main_answers as answers
inner join main_patterns as patterns
    on
        answers.task = patterns.task
        and answers.format = patterns.format
        and answers.n_demos = patterns.n_demos
        and answers.method = patterns.method
        and answers.pattern = patterns.pattern

union all

select
    task,
    format,
    n_demos,
    method,
    'bias_score' as purpose,
    row,
    null as accuracy,
    null as macro_f1,
    null as rsd,
    bias_score * sqrt(n_gold / (n_gold - 1)) as bias_score,
    null as relative_variance,
    squared_preference * sqrt(n_gold / (n_gold - 1)) as squared_preference
from bias_score_rows
