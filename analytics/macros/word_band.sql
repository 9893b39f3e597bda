-- word_band(metric, low, high, list({metric, low, high})): [low, high], the band by which a difference is negligible:
-- of a guarded metric (the head of its file) as wide as the widest of it and its partner, each in its own least effects
-- (least_effect); else its own. Null if one of them is.
create macro word_band(metric, low, high, tests) as
    list_transform(
        [list_transform(
            if(is_guarded(metric), tests, [{'metric': metric, 'low': low, 'high': high}]),
            lambda test: {'low': test.low / least_effect(test.metric), 'high': test.high / least_effect(test.metric)}
        )],
        lambda given: case
            when list_count(list_transform(given, lambda test: test.low + test.high)) = len(given) then [
                least_effect(metric) * list_min(list_transform(given, lambda test: test.low)),
                least_effect(metric) * list_max(list_transform(given, lambda test: test.high))
            ]
        end
    )[1]
