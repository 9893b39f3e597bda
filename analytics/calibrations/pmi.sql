-- shown: PMI
-- meaning: Domain-conditional pointwise mutual information (Holtzman et al. 2021): probabilities divided by those for
--   an empty input.
-- by: the empty input (Holtzman et al. 2021)
-- inputs: cc
-- reference: Ari Holtzman, Peter West, Vered Shwartz, Yejin Choi and Luke Zettlemoyer. 2021. Surface Form Competition: Why
--   the Highest Probability Answer Isn't Always Right. EMNLP 2021.
-- The second input of cc is empty.
select * exclude (row, input, gold, log_probability), log_probability as log_prior, 1 as n_rows
from calibration_scores
where method = 'pmi' and row = 1
