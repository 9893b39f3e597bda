-- One row per (n_demos, instruction): how training went: adapters, the steps of each, those whose loss is not lower at
-- the last step than at the first (n_not_falling), and the means over adapters of the loss (nats) at both.
with
adapters as (
    select
        n_demos, instruction, adapter, count(*) as n_steps, arg_min(loss, step) as first_loss,
        arg_max(loss, step) as last_loss
    from training
    group by all
)

select
    n_demos, instruction, count(*) as n_adapters, max(n_steps) as n_steps,
    avg(first_loss order by adapter) as first_loss, avg(last_loss order by adapter) as last_loss,
    count(*) filter (last_loss >= first_loss) as n_not_falling
from adapters
group by n_demos, instruction
