-- Rows here: a calibration whose p_hat do not sum to 1 (1e-9).
with
sums as (
    select task, n_demos, demo_set, format, setting, instruction, method, sum(exp(log_p_hat)) as p_hat_sum
    from calibration_means
    group by all
)

select
    format('{}, n_demos {}, demo_set {}{}, {}: p_hat sums to {}', task, n_demos, demo_set,
           coalesce(', setting ' || setting, ''), method, coalesce(p_hat_sum::varchar, 'null')) as problem,
    *
from sums
where not coalesce(abs(p_hat_sum - 1) <= 1e-9, false)
order by all
