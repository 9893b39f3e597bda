-- visible_bias_score(list({error, df}), n_tests): the BiasScore of a model that prefers one label which bias_score_p
-- tells from noise with a power of 80 %, whichever label it is: of each label the standard error of its mean
-- probability, with its degrees of freedom, and of these the largest. By Student's t, at 5 % over n_tests: labels, of
-- two 1, times demonstration sets. Null where no BiasScore is as large, and where a label has no error.
create macro visible_bias_score(labels, n_tests) as
    list_transform(
        [list_transform(labels, lambda label: (student_quantile(0.05 / n_tests, label.df) + student_quantile(0.4, label.df)) * label.error)],
        lambda distances: case
            when list_count(distances) = len(distances) and list_max(distances) <= 1 - 1 / len(distances)
                then list_max(distances)
        end
    )[1]
