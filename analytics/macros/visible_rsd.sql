-- visible_rsd(accuracy, n_fewest, n_rows, n_labels, n_tests): the RSD of a model that prefers one of n_labels gold
-- labels which rsd_p tells from noise with a power of 80 %, whichever label it prefers or shuns. Recall of that label
-- lies apart from that of the others, which have the same; the gold label with the fewest rows, n_fewest of n_rows,
-- needs the most. By normal theory of two proportions, with the correction for continuity that exact tests need
-- (Casagrande, Pike & Smith 1978), at 5 % over n_tests: labels, of two 1, times demonstration sets. Null where recalls
-- would have to lie beyond 0 or 1, so that no bias can be seen, and with one label or an accuracy of 0 or 1.
create macro visible_rsd(accuracy, n_fewest, n_rows, n_labels, n_tests) as
    list_transform(
        [{
            'a': accuracy::double,
            'n': n_fewest::double,
            'm': n_rows - n_fewest::double,
            'z': normal_quantile(0.05 / greatest(1, n_tests)),
            'correction': (1 / n_fewest + 1 / (n_rows - n_fewest)) / 2
        }],
        lambda given: case when n_labels > 1 and given.a > 0 and given.a < 1 then list_transform(
            [sqrt(given.a * (1 - given.a) * 2 * given.correction * (given.n + given.m) / (given.n + given.m - 1))],
            lambda error: list_transform(
                list_transform(
                    -- The spread under the bias is not that without one: once more with that of the first distance.
                    [(given.z + 0.8416) * error + given.correction],
                    lambda first: given.z * error
                    + 0.8416 * list_max(list_transform(
                        [1, -1],
                        lambda side: list_transform(
                            [{
                                'own': given.a + side * first * given.m / (given.n + given.m),
                                'others': given.a - side * first * given.n / (given.n + given.m)
                            }],
                            lambda recall: case
                                when least(recall.own, recall.others) >= 0 and greatest(recall.own, recall.others) <= 1
                                    then sqrt(
                                        recall.own * (1 - recall.own) / given.n
                                        + recall.others * (1 - recall.others) / given.m
                                    )
                            end
                        )[1]
                    ))
                    + given.correction
                ),
                lambda distance: sqrt(n_labels - 1) / n_labels * distance / given.a
            )[1]
        )[1] end
    )[1]
