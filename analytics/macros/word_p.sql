-- word_p(list({metric, estimate, p, noise_p})): the p-value that a word about differences goes by, where all of them
-- have to be to the same side of 0: the largest of theirs, or 1 where their signs differ (intersection-union test;
-- Berger 1982). That of a partner is halved: its metric has said to which side, so that its second test is one-sided.
-- Of a guarded metric (the head of its file) noise_p, that neither side is above noise, is another of them. Null if one
-- has none.
create macro word_p(tests) as
    list_transform(
        [list_transform(
            tests,
            lambda test: {
                'side': sign(test.estimate),
                'p': case
                    when word_metric(test.metric) <> test.metric then test.p / 2
                    when not is_guarded(test.metric) or test.noise_p <= test.p then test.p
                    when test.noise_p > test.p then test.noise_p
                end
            }
        )],
        lambda given: case
            when list_count(list_transform(given, lambda test: test.p)) < len(given) then null
            when len(list_distinct(list_transform(given, lambda test: test.side))) > 1 then 1
            else list_max(list_transform(given, lambda test: test.p))
        end
    )[1]
