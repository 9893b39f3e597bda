-- One row per (task, n_demos, method, purpose, row): how far a row moves each metric, averaged over demonstration sets.
-- accuracy, macro_f1 and rsd are of main rows (main_patterns), bias_score of bias_score rows (bias_score_rows), else null.
select
    answers.task,
    answers.n_demos,
    answers.method,
    'main' as purpose,
    answers.row,
    patterns.accuracy,
    patterns.macro_f1,
    patterns.rsd,
    null::double as bias_score
from main_answers as answers
inner join main_patterns as patterns
    on
        answers.task = patterns.task
        and answers.n_demos = patterns.n_demos
        and answers.method = patterns.method
        and answers.pattern = patterns.pattern

union all

select
    task,
    n_demos,
    method,
    'bias_score' as purpose,
    row,
    null as accuracy,
    null as macro_f1,
    null as rsd,
    bias_score
from bias_score_rows
