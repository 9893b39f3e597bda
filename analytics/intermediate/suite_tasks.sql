-- One row per (suite, task): the tasks of each suite.
select suite, task
from bootstrap_draws
where draw = 0
