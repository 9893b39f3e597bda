-- word_p(list({metric, estimate, p})): the p-value that a word about differences goes by, where all of them have to be to
-- the same side of 0: the largest of theirs, or 1 where their signs differ (intersection-union test; Berger 1982). That
-- of relative_variance is halved: RSD has said to which side, so that its second test is one-sided. Null if one has none.
create macro word_p(tests) as
    list_transform(
        [tests],
        lambda given: case
            when list_count(list_transform(given, lambda test: test.p)) < len(given) then null
            when len(list_distinct(list_transform(given, lambda test: sign(test.estimate)))) > 1 then 1
            else list_max(list_transform(
                given, lambda test: if(test.metric = 'relative_variance', test.p / 2, test.p)
            ))
        end
    )[1]
