-- paper_threshold(list({threshold, distance, n_lower, n_higher}), sample): the threshold with the largest distance
-- among those with at least 2 * sample questions in both segments; if none of them is significant, among those with at
-- least sample (P3's text). The smallest on ties; null if none is significant. A distance is null where not measured.
create macro paper_threshold(candidates, sample) as
    list_transform(
        [list_filter(
            candidates,
            lambda candidate: candidate.distance > 0 and least(candidate.n_lower, candidate.n_higher) >= sample
        )],
        lambda significant: list_sort(
            list_transform(
                significant,
                lambda candidate: {
                    'is_small': least(candidate.n_lower, candidate.n_higher) < 2 * sample,
                    'nearness': round(-candidate.distance, 9),
                    'threshold': candidate.threshold::double
                }
            )
        )[1].threshold
    )[1]
