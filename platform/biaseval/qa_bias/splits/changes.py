"""Changes of prediction bias: bootstrap samples of whole articles, the same for the readers that are compared."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.qa_bias.splits.significance import seeded_generator
from biaseval.tables import QA_CHANGE_DRAWS

_N_DRAWN = 2_000_000
"""Articles that are drawn at a time, which bounds the memory at about 50 MB."""

_MEANS = ("lower", "higher", "standard_lower", "standard_higher")

Floats = npt.NDArray[np.float64]


def change_draws(model: str, answers: pa.Table, *, seed: int, draws: int = 1000) -> pa.Table:
    """Return the exact match of both segments in bootstrap samples of whole articles, of two readers.

    Questions about one article are not independent, so a sample has as many articles as the data set, drawn with
    replacement, each with all its questions. It depends on the seed, the data set's name and its number of articles
    alone: both readers are asked the same questions, and so are the readers and heuristics of other calls.

    Args:
        model: the trained reader's name.
        answers: the questions with a value that both readers answered, a row for each heuristic, in any order:
            ``dataset``, ``heuristic``, ``article`` (its number, 0-based) and ``n_articles`` (of the data set; both
            as in ``qa_articles``), ``value``, ``threshold`` and ``standard_threshold`` (at which either reader is
            measured), ``exact_match`` and ``standard_exact_match`` (0 or 1).
        seed: the run's.
        draws: samples of each data set.

    Returns:
        The rows of `biaseval.tables.QA_CHANGE_DRAWS`, ``draws`` for each data set and heuristic, ordered by these. A
        mean is null in samples without a question of its segment.
    """
    tables = [QA_CHANGE_DRAWS.empty()]
    for dataset in sorted(pc.unique(answers["dataset"]).to_pylist()):
        of_dataset = answers.filter(pc.field("dataset") == dataset)
        n_articles = of_dataset["n_articles"][0].as_py()
        heuristics = sorted(pc.unique(of_dataset["heuristic"]).to_pylist())
        sums = np.concatenate(
            [_article_sums(of_dataset.filter(pc.field("heuristic") == one), n_articles) for one in heuristics]
        )
        # [heuristics, right or asked, mean, draws]
        samples = article_weights(dataset, n_articles, seed, draws)
        drawn = np.concatenate([sums @ weights for weights in samples], axis=1)
        right, asked = np.moveaxis(drawn.reshape(len(heuristics), 2, len(_MEANS), draws), 1, 0)
        means = right / np.where(asked > 0, asked, 1)
        for heuristic, of_heuristic, counts in zip(heuristics, means, asked, strict=True):
            columns = [pa.repeat(pa.scalar(value), draws) for value in (model, dataset, heuristic)]
            columns.append(pa.array(np.arange(draws, dtype=np.int32)))
            columns += [pa.array(mean, mask=count == 0) for mean, count in zip(of_heuristic, counts, strict=True)]
            tables.append(pa.table(columns, schema=QA_CHANGE_DRAWS.schema))
    return pa.concat_tables(tables).combine_chunks()


def _article_sums(rows: pa.Table, n_articles: int) -> Floats:
    """Return by article how often the readers are right in each segment, then how often asked, ``[8, n_articles]``."""
    article = rows["article"].to_numpy()
    value = rows["value"].to_numpy()
    right, asked = [], []
    for reader in ("", "standard_"):
        is_lower = value <= rows[f"{reader}threshold"].to_numpy()
        exact_match = rows[f"{reader}exact_match"].to_numpy()
        for is_segment in (is_lower, ~is_lower):
            right.append(np.bincount(article, weights=exact_match * is_segment, minlength=n_articles))
            asked.append(np.bincount(article, weights=is_segment, minlength=n_articles))
    return np.stack([*right, *asked])


def article_weights(dataset: str, n_articles: int, seed: int, draws: int) -> Iterator[Floats]:
    """Yield how often samples hold each article, ``[n_articles, some of the draws]``; they are whole numbers."""
    generator = seeded_generator(seed, dataset, "articles")
    block = max(1, _N_DRAWN // n_articles)
    for start in range(0, draws, block):
        size = min(block, draws - start)
        drawn = generator.integers(n_articles, size=(size, n_articles))
        drawn += n_articles * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * n_articles)
        yield counts.reshape(size, n_articles).T.astype(np.float64)
