-- One row per ordered pair (run, other_run) of majority-bias runs over the same data: they have the same settings, and
-- a test row in common, which is one with the same input text and gold label. Names of runs, tasks and files do not
-- count. The runs can be compared draw by draw where all three hold: has_same_rows, all test rows are the same in the
-- same order, and so are the resamples of them (both runs have the same seed); has_same_contexts, with each instruction
-- that both have, every setting and seed has the same text before the test row; has_same_scoring, likelihoods are
-- normalised and ended alike.
select
    run, other_run, has_same_rows and has_same_seed as has_same_rows,
    has_same_contexts and has_same_seeds and has_same_n_demos as has_same_contexts,
    has_same_scoring, n_shared_rows
from majority_bias_shared
where has_same_settings and n_shared_rows > 0
order by all
