-- from paired_answers('answers', 'pairs', keys): the answers that both sides of each ordered pair have to the same
-- thing, which keys (names of columns) tell: prediction and other_prediction, and of the one side prompt_id and gold.
-- answers: a relation with run, keys and prediction, and maybe model. pairs: with run and other_run, maybe model and
-- other_model, and those of the keys that a pair is not compared in all of.
create macro paired_answers(answers, pairs, keys) as table
from query_table(pairs)
natural join (
    select columns(lambda name: list_contains(keys, name) or regexp_matches(name, '^(run|model|prediction|prompt_id|gold)$'))
    from query_table(answers)
)
natural join (
    select columns(lambda name: list_contains(keys, name)), columns('^(run|model|prediction)$') as 'other_\1'
    from query_table(answers)
)
