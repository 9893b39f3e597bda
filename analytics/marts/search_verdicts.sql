-- One row per objective that is chosen for in several scopes: does choosing help over all of them? estimate: the mean
-- over scopes of evaluation_gain (search_best), on data that the choice did not see, positive where the chosen point is
-- better than the mean trial. Columns are those of sign_flip_tests over the scopes (n_units), for tasks or models like
-- these; verdict: the word that it supports, whatever its size. Empty where there is one scope, no such data, or the
-- objective is of bias_score.
with
scopes as (
    select objective, scope, row_number() over (partition by objective order by scope) - 1 as unit, evaluation_gain
    from search_best
    inner join search_objectives using (objective)
    where evaluation_gain is not null and not is_of_bias_score
),

units as (
    select true as family, objective as test, unit, evaluation_gain as value
    from scopes
    where objective in (select objective from scopes group by objective having count(*) > 1)
)

select
    test as objective, n_units, estimate, standard_error, low, high, p, p_adjusted, simultaneous_low, simultaneous_high,
    smallest_detectable,
    verdict(estimate, p_adjusted, simultaneous_low, simultaneous_high, n_units, 0) as verdict
from sign_flip_tests('units', 'sign_flips')
order by all
