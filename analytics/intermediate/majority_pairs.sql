-- One row per (task, n_demos, instruction, against_instruction, predict, method, against_method, metric): the
-- differences that a run's page judges (majority_verdicts). A method against none, with the same instruction: mean_f1,
-- sd_f1, rb_at_10. With against without instruction, of the same method: tails_f1 and middle_f1.
with
measured as (
    select distinct task, n_demos, instruction, predict, method
    from majority_weights
)

select
    task, n_demos, measured.instruction, plain.instruction as against_instruction, predict, measured.method,
    plain.method as against_method,
    unnest(
        case
            when measured.instruction = plain.instruction then ['mean_f1', 'sd_f1', 'rb_at_10']
            else ['tails_f1', 'middle_f1']
        end
    ) as metric
from measured
inner join measured as plain using (task, n_demos, predict)
where
    (measured.instruction = plain.instruction and measured.method <> 'none' and plain.method = 'none')
    or (measured.instruction and not plain.instruction and measured.method = plain.method)
