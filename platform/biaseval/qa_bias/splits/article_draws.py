"""How certain biases and their changes are: exact match of both segments in bootstrap samples of whole articles."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.qa_bias.splits.significance import seeded_generator
from biaseval.tables import TableSchema

_N_DRAWN = 2_000_000
"""Articles that are drawn at a time, which bounds the memory at about 50 MB."""

_N_PLACE = 4
"""Columns before the means: model, data set, heuristic, draw."""

Floats = npt.NDArray[np.float64]


def article_draws(table: TableSchema, model: str, answers: pa.Table, *, seed: int, draws: int = 1000) -> pa.Table:
    """Return the exact match of both segments in bootstrap samples of whole articles, of one reader or of two.

    Questions about one article are not independent, so a sample has as many articles as the data set, drawn with
    replacement, each with all its questions. It depends on the seed, the data set's name and its number of articles
    alone: compared readers are asked the same questions, and so are the readers and heuristics of other calls.

    Args:
        table: `QA_BIAS_DRAWS`, or `QA_CHANGE_DRAWS`, which compares a trained reader with the standard one.
        model: the reader's name.
        answers: the questions with a value and a threshold that all readers answered, a row for each heuristic, in any
            order: ``dataset``, ``heuristic``, ``article`` (its number, 0-based) and ``n_articles`` (of the data set;
            both as in ``qa_articles``), ``value``, ``threshold`` (at which the reader is measured), ``exact_match`` (0
            or 1); for two readers also ``standard_threshold`` and ``standard_exact_match``.
        seed: the run's.
        draws: samples of each data set.

    Returns:
        The rows of the table, ``draws`` for each data set and heuristic, ordered by these. A mean is null in samples
        without a question of its segment.
    """
    tables = [table.empty()]
    means = table.schema.names[_N_PLACE:]
    for dataset in sorted(pc.unique(answers["dataset"]).to_pylist()):
        of_dataset = answers.filter(pc.field("dataset") == dataset)
        n_articles = of_dataset["n_articles"][0].as_py()
        heuristics = sorted(pc.unique(of_dataset["heuristic"]).to_pylist())
        sums = np.concatenate(
            [_article_sums(of_dataset.filter(pc.field("heuristic") == one), n_articles, means) for one in heuristics]
        )
        # [heuristics, mean, right or asked, draws]
        samples = _article_weights(dataset, n_articles, seed, draws)
        drawn = np.concatenate([sums @ weights for weights in samples], axis=1)
        for heuristic, of_heuristic in zip(
            heuristics, drawn.reshape(len(heuristics), len(means), 2, draws), strict=True
        ):
            columns = [pa.repeat(pa.scalar(value), draws) for value in (model, dataset, heuristic)]
            columns.append(pa.array(np.arange(draws, dtype=np.int32)))
            columns += [
                pa.array(right / np.where(asked > 0, asked, 1), mask=asked == 0) for right, asked in of_heuristic
            ]
            tables.append(pa.table(columns, schema=table.schema))
    return pa.concat_tables(tables).combine_chunks()


def _article_sums(rows: pa.Table, n_articles: int, means: list[str]) -> Floats:
    """Return by article how often the reader of each mean is right, and how often asked, ``[2 means, n_articles]``."""
    article, value = rows["article"].to_numpy(), rows["value"].to_numpy()
    sums = []
    for mean in means:
        reader = mean.removesuffix("lower").removesuffix("higher")
        is_lower = value <= rows[f"{reader}threshold"].to_numpy()
        is_segment = is_lower if mean.endswith("lower") else ~is_lower
        for weights in (rows[f"{reader}exact_match"].to_numpy() * is_segment, is_segment):
            sums.append(np.bincount(article, weights=weights, minlength=n_articles))
    return np.stack(sums)


def _article_weights(dataset: str, n_articles: int, seed: int, draws: int) -> Iterator[Floats]:
    """Yield how often samples hold each article, ``[n_articles, some of the draws]``; they are whole numbers."""
    generator = seeded_generator(seed, dataset, "articles")
    block = max(1, _N_DRAWN // n_articles)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = generator.integers(n_articles, size=(size, n_articles))
        drawn += n_articles * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n_articles)
        yield counts.reshape(size, n_articles).T.astype(np.float64)
