-- bonferroni_p(p, n_tests): the p-value of the smallest of n_tests: p * n_tests, at most 1. Null of null.
create macro bonferroni_p(p, n_tests) as
    case when p * n_tests > 1 then 1 else p * n_tests end
