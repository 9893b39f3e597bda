-- One row per optimizer step: mean_loss (nats) over the adapters that made it, and the ends of their middle 80 %.
select
    step, count(*) as n_adapters, avg(loss order by adapter) as mean_loss, quantile_cont(loss, 0.1) as low,
    quantile_cont(loss, 0.9) as high
from training
group by step
