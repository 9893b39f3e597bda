"""Metrics of weighted rows in NumPy, to be moved a little or resampled."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from tests.label_bias_statistics.answers import Answers, Array


def weighted_accuracy(answers: Answers, weights: Array) -> float:
    return float(np.average(np.array(answers.predicted) == np.array(answers.gold), weights=weights))


def weighted_recalls(answers: Answers, weights: Array) -> Array:
    gold, hit = np.array(answers.gold), np.array(answers.predicted) == np.array(answers.gold)
    return np.array([np.average(hit[gold == label], weights=weights[gold == label]) for label in sorted(set(gold))])


def weighted_macro_f1(answers: Answers, weights: Array) -> float:
    gold, predicted = np.array(answers.gold), np.array(answers.predicted)
    f1 = [
        2 * weights[(gold == label) & (predicted == label)].sum()
        / (weights[gold == label].sum() + weights[predicted == label].sum())
        for label in sorted(set(answers.gold))
    ]  # fmt: skip
    return float(np.mean(f1))


def weighted_rsd(answers: Answers, weights: Array) -> float:
    return float(weighted_recalls(answers, weights).std() / weighted_accuracy(answers, weights))


def weighted_bias_score(answers: Answers, weights: Array) -> float:
    gold = np.array(answers.gold)
    means = [
        np.average(answers.probabilities[gold == label], axis=0, weights=weights[gold == label])
        for label in sorted(set(gold))
    ]
    return float(0.5 * np.abs(np.mean(means, axis=0) - 1 / len(answers.labels)).sum())


def weighted_relative_variance(answers: Answers, weights: Array) -> float:
    """Return it for as many rows of each label as there are, whatever they weigh."""
    recalls = weighted_recalls(answers, weights)
    counts = np.array([answers.gold.count(label) for label in sorted(set(answers.gold))])
    noise = (len(counts) - 1) / len(counts) ** 2 * np.sum(recalls * (1 - recalls) / (counts - 1))
    return float((recalls.var() - noise) / weighted_accuracy(answers, weights) ** 2)


def weighted_squared_preference(answers: Answers, weights: Array) -> float:
    """Return it with what rows of equal weight add to it."""
    gold, n_labels = np.array(answers.gold), len(answers.labels)
    own = [answers.probabilities[gold == label] for label in sorted(set(gold))]
    of_gold = [weights[gold == label] for label in sorted(set(gold))]
    means = [np.average(rows, axis=0, weights=w) for rows, w in zip(own, of_gold, strict=True)]
    noise = sum(float((rows.var(axis=0, ddof=1) / len(rows)).sum()) for rows in own) / len(own) ** 2
    return float(((np.mean(means, axis=0) - 1 / n_labels) ** 2).sum() - noise)


def weighted_brier(answers: Answers, weights: Array) -> float:
    hot = np.array(answers.gold)[:, None] == np.array(list(answers.labels))
    return float(np.average(((answers.probabilities - hot) ** 2).sum(axis=1), weights=weights))


def weighted_ece(answers: Answers, weights: Array) -> float:
    """Return it by the bins of Guo et al. (2017): each without its lower end, with its upper one."""
    confidence = answers.probabilities.max(axis=1)
    gap = (np.array(answers.predicted) == np.array(answers.gold)) - confidence
    bins = np.digitize(confidence, np.linspace(0, 1, 16), right=True)
    return float(sum(abs((weights * gap)[bins == one].sum()) for one in range(16)) / weights.sum())


def weighted_ckld(answers: Answers, weights: Array) -> float:
    of = {label: weights[np.array(answers.gold) == label].sum() for label in sorted(set(answers.gold))}
    predicted = [weights[np.array(answers.predicted) == label].sum() for label in of]
    return float(stats.entropy(list(of.values()), predicted)) + float(
        np.log(weights.sum() / sum(predicted))  # labels that are no gold label take shares, too
    )


METRIC: dict[str, Callable[[Answers, Array], float]] = {
    "macro_f1": weighted_macro_f1, "accuracy": weighted_accuracy, "rsd": weighted_rsd,
    "bias_score": weighted_bias_score, "relative_variance": weighted_relative_variance,
    "squared_preference": weighted_squared_preference, "brier": weighted_brier, "ckld": weighted_ckld,
    "ece": weighted_ece,
}  # fmt: skip


def influences(answers: Sequence[Answers], metric: str) -> Array:
    """Return by how much a little more of each row moves a metric, averaged over sets, times the number of rows."""
    n, step = len(answers[0].gold), 1e-6
    moved = np.zeros(n)
    for each in answers:
        for row in range(n):
            up, down = np.ones(n), np.ones(n)
            up[row] += step
            down[row] -= step
            moved[row] += n * (METRIC[metric](each, up) - METRIC[metric](each, down)) / (2 * step) / len(answers)
    return moved


def resampled(*sides: Sequence[Answers], metric: str, rng: np.random.Generator, n_draws: int = 2000) -> Array:
    """Return a metric of the first side, less that of the second, of rows drawn with replacement.

    Draws that lack a gold label are left out.
    """
    n, gold = len(sides[0][0].gold), np.array(sides[0][0].gold)
    found: list[float] = []
    while len(found) < n_draws:
        weights = np.bincount(rng.integers(n, size=n), minlength=n).astype(float)
        if all(weights[gold == label].sum() for label in set(gold)):
            means = [np.mean([METRIC[metric](each, weights) for each in side]) for side in sides]
            found.append(float(means[0] - sum(means[1:])))
    return np.array(found)
