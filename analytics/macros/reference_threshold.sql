-- reference_threshold(list({threshold, distance, n_lower, n_higher} order by threshold), sample): the threshold that
-- P3's code chooses, going through them once. The first significant one is taken, however small its segments; after
-- that only those with more than 2 * sample questions in both segments count, and one replaces the choice if its
-- distance is larger (tolerance 1e-9), or if the choice has a segment of fewer than 2 * sample and it is significant.
-- Null if none is. A distance is null where not measured.
create macro reference_threshold(candidates, sample) as
    list_reduce(
        list_transform(
            candidates,
            lambda candidate: {
                'threshold': candidate.threshold::double,
                'distance': coalesce(candidate.distance, 0)::double,
                'smaller': least(candidate.n_lower, candidate.n_higher)::bigint
            }
        ),
        lambda choice, candidate: case
            when candidate.distance <= 0 then choice
            when choice.threshold is null then candidate
            when candidate.smaller <= 2 * sample then choice
            when candidate.distance > choice.distance + 1e-9 or choice.smaller < 2 * sample then candidate
            else choice
        end,
        {'threshold': null::double, 'distance': 0::double, 'smaller': 0::bigint}
    ).threshold
