-- all_partners(): metrics whose words need a second test, that of a partner which is smooth in the rows and which noise does
-- not raise on average: one entry each of metric, partner and is_guarded. Of a guarded metric the influences of rows take
-- the side of each label as known, which it is not where there is hardly any bias: its words also need a side that is above
-- the noise of rows (noise_p), and 'negligible' goes by the partner's band too.
create macro all_partners() as [
    {'metric': 'rsd', 'partner': 'relative_variance', 'is_guarded': false},
    {'metric': 'bias_score', 'partner': 'squared_preference', 'is_guarded': true}
]
