-- intersection_union_p(list({estimate, p})): the p-value that several differences are not all to the same side of 0: the
-- largest of theirs, or 1 where their signs differ (intersection-union test; Berger 1982). Null if one has none.
create macro intersection_union_p(tests) as
    list_transform(
        [tests],
        lambda given: case
            when list_count(list_transform(given, lambda test: test.p)) < len(given) then null
            when len(list_distinct(list_transform(given, lambda test: sign(test.estimate)))) > 1 then 1
            else list_max(list_transform(given, lambda test: test.p))
        end
    )[1]
