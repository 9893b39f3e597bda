"""Metrics of weighted rows in NumPy, to be moved a little or resampled; weights are (row) or (draw, row)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from tests.label_bias_statistics.answers import Answers, Array


def _marked(labels: Sequence[str], answers: Answers) -> Any:
    """Return which rows have which of the gold labels: (row, label)."""
    return np.array(labels)[:, None] == np.array(sorted(set(answers.gold)))


def _hits(answers: Answers) -> Any:
    return np.array(answers.predicted) == np.array(answers.gold)


def weighted_accuracy(answers: Answers, weights: Array) -> Any:
    return weights @ _hits(answers) / weights.sum(axis=-1)


def weighted_recalls(answers: Answers, weights: Array) -> Any:
    gold = _marked(answers.gold, answers)
    return (weights @ (gold & _hits(answers)[:, None])) / (weights @ gold)


def weighted_macro_f1(answers: Answers, weights: Array) -> Any:
    gold, predicted = (_marked(labels, answers) for labels in (answers.gold, answers.predicted))
    return np.mean(2 * (weights @ (gold & predicted)) / (weights @ gold + weights @ predicted), axis=-1)


def weighted_rsd(answers: Answers, weights: Array) -> Any:
    return weighted_recalls(answers, weights).std(axis=-1) / weighted_accuracy(answers, weights)


def _preferences(answers: Answers, weights: Array) -> Any:
    """Return by how much each label's probability, a mean over gold labels of means, is beyond an equal share."""
    gold = _marked(answers.gold, answers)
    sums = [weights @ (answers.probabilities * one[:, None]) / (weights @ one)[..., None] for one in gold.T]
    return np.mean(sums, axis=0) - 1 / len(answers.labels)


def weighted_bias_score(answers: Answers, weights: Array) -> Any:
    return 0.5 * np.abs(_preferences(answers, weights)).sum(axis=-1)


def weighted_relative_variance(answers: Answers, weights: Array) -> Any:
    """Return it for as many rows of each label as there are, whatever they weigh."""
    recalls, counts = weighted_recalls(answers, weights), _marked(answers.gold, answers).sum(axis=0)
    noise = (len(counts) - 1) / len(counts) ** 2 * np.sum(recalls * (1 - recalls) / (counts - 1), axis=-1)
    return (recalls.var(axis=-1) - noise) / weighted_accuracy(answers, weights) ** 2


def weighted_squared_preference(answers: Answers, weights: Array) -> Any:
    """Return it with what rows of equal weight add to it."""
    own = [answers.probabilities[one] for one in _marked(answers.gold, answers).T]
    noise = sum(float((rows.var(axis=0, ddof=1) / len(rows)).sum()) for rows in own) / len(own) ** 2
    return (_preferences(answers, weights) ** 2).sum(axis=-1) - noise


def weighted_brier(answers: Answers, weights: Array) -> Any:
    hot = np.array(answers.gold)[:, None] == np.array(list(answers.labels))
    return weights @ ((answers.probabilities - hot) ** 2).sum(axis=1) / weights.sum(axis=-1)


def weighted_ece(answers: Answers, weights: Array) -> Any:
    """Return it by the bins of Guo et al. (2017): each without its lower end, with its upper one."""
    confidence = answers.probabilities.max(axis=1)
    bins = np.digitize(confidence, np.linspace(0, 1, 16), right=True)[:, None] == range(16)
    return np.abs(weights @ (bins * (_hits(answers) - confidence)[:, None])).sum(axis=-1) / weights.sum(axis=-1)


def weighted_ckld(answers: Answers, weights: Array) -> Any:
    gold, predicted = (weights @ _marked(labels, answers) for labels in (answers.gold, answers.predicted))
    divergence = stats.entropy(gold, predicted, axis=-1)
    return divergence + np.log(weights.sum(axis=-1) / predicted.sum(axis=-1))  # what is no gold label takes shares, too


METRIC: dict[str, Callable[[Answers, Array], Any]] = {
    "macro_f1": weighted_macro_f1, "accuracy": weighted_accuracy, "rsd": weighted_rsd,
    "bias_score": weighted_bias_score, "relative_variance": weighted_relative_variance,
    "squared_preference": weighted_squared_preference, "brier": weighted_brier, "ckld": weighted_ckld,
    "ece": weighted_ece,
}  # fmt: skip


def influences(answers: Sequence[Answers], metric: str) -> Array:
    """Return by how much a little more of each row moves a metric, averaged over sets, times the number of rows."""
    n, step = len(answers[0].gold), 1e-6
    moves = (METRIC[metric](each, 1 + by * np.eye(n)) / by for each in answers for by in (step, -step))
    return np.asarray(sum(moves) * n / 2 / len(answers))


def resampled(*sides: Sequence[Answers], metric: str, rng: np.random.Generator, n_draws: int = 2000) -> Array:
    """Return a metric of the first side, less that of the second, of rows drawn with replacement.

    Draws that lack a gold label are left out.
    """
    n, gold = len(sides[0][0].gold), _marked(sides[0][0].gold, sides[0][0])
    drawn = np.array([np.bincount(rng.integers(n, size=n), minlength=n) for _ in range(n_draws)]).astype(float)
    weights = drawn[(drawn @ gold > 0).all(axis=1)]
    means = [np.mean([METRIC[metric](each, weights) for each in side], axis=0) for side in sides]
    return np.asarray(means[0] - sum(means[1:]))
