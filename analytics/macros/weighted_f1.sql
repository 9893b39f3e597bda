-- weighted_f1(list(gold), list(prediction)): the F1 of each gold label, weighted by its share of the rows.
-- A null prediction is wrong and belongs to no label. Null without rows; a null gold label is an error.
create macro weighted_f1(golds, predictions) as
    list_transform(
        [{'golds': golds, 'predictions': predictions, 'rows': list_zip(golds, predictions)}],
        lambda given: list_transform(
            [{
                'gold': list_histogram(given.golds),
                'predicted': list_histogram(given.predictions),
                'correct': list_histogram(
                    list_transform(given.rows, lambda pair: case when pair[1] = pair[2] then pair[1] end)
                )
            }],
            lambda counts: case
                when list_count(given.golds) < len(given.rows) or len(given.predictions) < len(given.rows)
                    then error('weighted_f1: a gold label is null, or the lists differ in length')
                else list_sum(
                    list_transform(
                        map_keys(counts.gold),
                        lambda label: counts.gold[label] / len(given.golds)
                        * 2 * coalesce(counts.correct[label], 0)
                        / (counts.gold[label] + coalesce(counts.predicted[label], 0))
                    )
                )
            end
        )[1]
    )[1]
