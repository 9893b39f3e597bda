"""How certain an average bias is: exact match of both segments in bootstrap samples of whole articles."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.qa_bias.splits.changes import article_weights
from biaseval.tables import QA_BIAS_DRAWS


def bias_draws(model: str, answers: pa.Table, *, seed: int, draws: int = 1000) -> pa.Table:
    """Return the exact match of both segments in bootstrap samples of whole articles.

    Samples are those of ``change_draws``: the same for all models and heuristics of a data set.

    Args:
        model: its name.
        answers: its questions with a value, a row for each heuristic that has a threshold, in any order: ``dataset``,
            ``heuristic``, ``article`` and ``n_articles`` (both as in ``qa_articles``), ``value``, ``threshold``,
            ``exact_match`` (0 or 1).
        seed: the run's.
        draws: samples of each data set.

    Returns:
        The rows of `biaseval.tables.QA_BIAS_DRAWS`, ``draws`` for each data set and heuristic, ordered by these. A mean
        is null in samples without a question of its segment.
    """
    tables = [QA_BIAS_DRAWS.empty()]
    for dataset in sorted(pc.unique(answers["dataset"]).to_pylist()):
        of_dataset = answers.filter(pc.field("dataset") == dataset)
        n_articles = of_dataset["n_articles"][0].as_py()
        heuristics = sorted(pc.unique(of_dataset["heuristic"]).to_pylist())
        sums = []
        for heuristic in heuristics:
            rows = of_dataset.filter(pc.field("heuristic") == heuristic)
            is_lower = rows["value"].to_numpy() <= rows["threshold"].to_numpy()
            article, exact_match = rows["article"].to_numpy(), rows["exact_match"].to_numpy()
            for is_segment in (is_lower, ~is_lower):
                for weights in (exact_match * is_segment, is_segment):
                    sums.append(np.bincount(article, weights=weights, minlength=n_articles))
        samples = article_weights(dataset, n_articles, seed, draws)
        drawn = np.concatenate([np.stack(sums) @ weights for weights in samples], axis=1)
        for heuristic, (lower, n_lower, higher, n_higher) in zip(
            heuristics, drawn.reshape(len(heuristics), 4, draws), strict=True
        ):
            columns = [pa.repeat(pa.scalar(value), draws) for value in (model, dataset, heuristic)]
            columns.append(pa.array(np.arange(draws, dtype=np.int32)))
            columns += [
                pa.array(right / np.where(asked > 0, asked, 1), mask=asked == 0)
                for right, asked in ((lower, n_lower), (higher, n_higher))
            ]
            tables.append(pa.table(columns, schema=QA_BIAS_DRAWS.schema))
    return pa.concat_tables(tables).combine_chunks()
