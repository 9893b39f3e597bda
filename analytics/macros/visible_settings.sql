-- visible_settings(variance, n_settings, n_seeds, n_tests): the standard deviation over settings that proportions_p
-- tells from noise with a power of 80 %, at 5 % over n_tests. variance: of weighted F1 between draws of demonstrations,
-- beyond the effect of a seed on all settings. As the F test over settings and seeds whose p that of exchanged settings
-- is nearly (Fisher 1935): F's quantiles by Paulson 1942, those under a bias by Patnaik 1949, in five steps. 0 where
-- the variance is 0: any bias is found. Null with one setting or seed, without tests, and where fewer than three of the
-- possible orders make up 5 % / n_tests, so that hardly any bias is found.
create macro visible_settings(variance, n_settings, n_seeds, n_tests) as
    list_transform(
        [{
            'df': n_settings - 1::double,
            'error_df': (n_settings - 1) * (n_seeds - 1)::double,
            'z': normal_quantile(0.1 / n_tests),
            'n_orders': (n_seeds - 1) * lgamma(n_settings + 1::double)
        }],
        lambda given: case when n_settings > 1 and n_seeds > 1 and n_tests > 0
            and given.n_orders >= ln(3 * n_tests / 0.05)
            then sqrt(variance / n_seeds * list_reduce(
                range(5),
                lambda excess, step: f_quantile(given.z, given.df, given.error_df)
                / f_quantile(-0.8416, given.df * (1 + excess) ** 2 / (1 + 2 * excess), given.error_df) - 1,
                0.0::double
            )) end
    )[1]
