-- expected_significance(lower, n_lower, higher, n_higher, sample, replacement): the bias significance in points,
-- without the noise of trials: the distance between the expected bounds of trials of `sample` questions, of two
-- segments with these shares of exact matches (0 to 1) and sizes; 0 where they overlap. Bounds: 100 * (share -/+ 1.8777
-- * sigma / sqrt(sample) * f), where sigma = sqrt(share * (1 - share)), as exact match is 0 or 1, and f = sqrt((n -
-- sample) / (n - 1)), or 1 with replacement. 1.8777 is the expected upper quantile (97.5 %) of 100 normal trials, as
-- many as P3's; more of them move it to 1.96. Null if a share is null or a segment smaller than the sample.
create macro expected_significance(lower_mean, n_lower, higher_mean, n_higher, sample, replacement) as
    list_transform(
        [list_transform(
            [
                {'share': lower_mean::double, 'n': n_lower::double},
                {'share': higher_mean::double, 'n': n_higher::double}
            ],
            lambda segment: {
                'middle': 100 * segment.share,
                'reach': case
                    when segment.n >= sample then 187.77 * sqrt(
                        greatest(0, segment.share * (1 - segment.share)) / sample
                        * case when replacement then 1 else (segment.n - sample) / greatest(1, segment.n - 1) end
                    )
                end
            }
        )],
        lambda bounds: list_transform(
            [abs(bounds[1].middle - bounds[2].middle) - bounds[1].reach - bounds[2].reach],
            lambda gap: case when gap > 1e-9 then gap when gap is not null then 0 end
        )[1]
    )[1]
