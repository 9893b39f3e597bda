-- noise_p(own_p, other_p): the p-value that neither of two sides prefers a label: the smaller bias_score_p, times the
-- number of sides that have one (Bonferroni). Null where neither has.
create macro noise_p(own_p, other_p) as
    bonferroni_p(least(own_p, other_p), (own_p is not null)::int + (other_p is not null)::int)
