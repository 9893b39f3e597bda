-- One row per pair of majority_pairs but rb_at_10: error_draws, the standard error of the difference over other draws
-- of demonstrations for the same proportions, with the same test rows, and draws_df, its degrees of freedom
-- (draw_errors). Both sides have the same demonstrations, so the difference in each setting and seed is paired, by the
-- derivatives of the metric (majority_draw_values). No row without a variance to compare. n_seeds: the fewest of a
-- setting.
with
changes as (
    select
        'row' as family,
        {
            'task': task, 'n_demos': n_demos, 'instruction': changed.instruction,
            'against_instruction': against_instruction, 'predict': predict, 'method': changed.method,
            'against_method': against_method, 'metric': metric
        } as test,
        number, seed, plain.value, changed.value as other_value
    from majority_pairs
    inner join majority_draw_values as changed using (task, n_demos, instruction, predict, method, metric)
    inner join majority_draw_values as plain using (task, n_demos, predict, metric, setting, number, seed)
    where
        majority_pairs.against_instruction = plain.instruction and majority_pairs.against_method = plain.method
        and changed.value is not null
        and plain.value is not null
)

select unnest(test), * exclude (family, test)
from draw_errors('changes')
