"""Words about readers, and the arithmetic behind them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from tests.handmade import ask, made
from tests.qa_debiasing.study import Study
from tests.qaplans import Rows


@pytest.mark.parametrize(
    "given", ["null, 900, 0.5, 900", "0.5, 900, null, 900", "0.5, 799, 0.9, 900", "0.5, 900, 1, 0"]
)
def test_the_closed_form_has_no_value_where_nothing_was_drawn_or_a_segment_is_too_small(given: str) -> None:
    for replacement in ("false", "true"):
        assert ask(f"expected_significance({given}, 800, {replacement})") is None


def test_the_closed_form_equals_that_of_the_golden_table(shared: Path) -> None:
    golden = pq.read_table(shared / "golden/qa/significance_expected.parquet").to_pylist()
    valid = [row for row in golden if row["valid"]]
    assert len(valid) > 30
    for row in valid:
        shares = [row[f"analytic_{side}_em_mean"] / 100 for side in ("lower", "higher")]
        given = (shares[0], row["n_lower"], shares[1], row["n_higher"], row["sample_size"])
        # Its quantile is that of 100 trials too, computed and not rounded.
        found = ask("expected_significance(?, ?, ?, ?, ?, false)", *given)
        assert found == pytest.approx(row["analytic_distance_em"], abs=0.002)


def test_articles_are_titles_else_contexts_numbered_by_data_set() -> None:
    study = Study({"ans_len": [1]})
    study.questions({"ans_len": [1] * 6})
    study.titles(["Normans", "Atoms", "", None, "Atoms", None])
    for example, context in zip(study.examples, ["x", "y", "Beta", "Beta", "z", "Zeta"], strict=True):
        example["context"] = context
    study.questions({"ans_len": [1] * 3}, dataset="natural")
    for example in study.examples[6:]:
        example["context"] = "c"
    study.answers([1] * 6)
    [found] = study.asked("select article, n_articles from qa_articles order by dataset, row")
    articles = [tuple(row.values()) for row in found]
    # Of natural all are one; of squad Atoms, Beta, Normans and Zeta: in their order.
    assert articles == [(0, 1)] * 3 + [(number, 4) for number in (2, 0, 1, 1, 0, 3)]


Changes = dict[str, tuple[str, float | None, dict[str, float | None]]]
"""By reader its method, a change of significance on squad and one of F1 on other sets."""


def correlations(changes: Changes) -> Rows:
    addressed = {"dataset": "squad", "is_addressed": True}
    debiasing: Rows = [
        {"model": model, "method": method, **addressed, "significance_change": shift}
        for model, (method, shift, _) in changes.items()
    ]
    # What is not addressed, or measured elsewhere, takes no part.
    debiasing += [row | {"is_addressed": False, "significance_change": 50.0} for row in debiasing[:2]]
    debiasing += [row | {"dataset": "natural", "significance_change": 60.0} for row in debiasing[:2]]
    outcomes, means = [], []
    for model, (_, _, others) in changes.items():
        outside = {"model": model, "role": "out_of_distribution"}
        outcomes += [{**outside, "dataset": dataset, "f1_change": change} for dataset, change in others.items()]
        outcomes.append({"model": model, "role": "in_distribution", "dataset": "squad", "f1_change": 0.7})
        known = [change for change in others.values() if change is not None]
        means.append({"model": model, "f1_change": sum(known) / len(others) if len(known) == len(others) else None})
    tables = {"qa_out_of_distribution": outcomes, "qa_out_of_distribution_by_model": means}
    return made("qa_debiasing_correlation", qa_debiasing=debiasing, **tables)


def test_correlations_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    changes: Changes = {}
    for number in range(14):
        shift = float(rng.normal()) if number % 4 else 0.0  # some tie
        others: dict[str, float | None] = {name: float(0.3 * shift + rng.normal()) for name in ("natural", "trivia")}
        changes[f"reader {number:02}"] = ("resample" if number < 6 else "learned_mixin", shift, others)
    changes["standard"] = ("standard", None, {"natural": None, "trivia": None})
    found = {tuple(row.values())[:3]: row for row in correlations(changes)}
    methods = {"resample": 6, "learned_mixin": 8, "all": 14}
    assert found.keys() == {("squad", method, other) for method in methods for other in ("natural", "trivia", "mean")}
    for (_, method, other), row in found.items():
        chosen = [one for one in changes.values() if one[0] == method or (method == "all" and one[0] != "standard")]
        x = [float(shift) for _, shift, _ in chosen if shift is not None]
        y = [np.mean([*others.values()]) if other == "mean" else others[other] for _, _, others in chosen]
        reference = stats.pearsonr(x, y)
        interval = reference.confidence_interval(0.95)
        assert row["n_models"] == methods[method] == len(x)
        names = ("pearson", "pearson_low", "pearson_high", "spearman")
        wanted = [reference.statistic, interval.low, interval.high, stats.spearmanr(x, y).statistic]
        assert [row[name] for name in names] == pytest.approx(wanted)


N_ARTICLES, N_ROWS = 20, 600

GIVEN, SEARCHED = (3.0,), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)

WORDS = ("lower", "higher")


def page(
    rng: np.random.Generator,
    thresholds: Sequence[float] = GIVEN,
    bias: float = 0.25,
    debiased: float | None = None,
    gain: float = 0.0,
    n_draws: int = 200,
) -> tuple[Rows, Rows]:
    """Return the changes of bias and of answers of four readers on a set and one elsewhere.

    They are alike in errors and differ by article; all rely on ``ans_len`` up to 3 by the bias, and on ``cos_sim`` not.

    ``bias`` is how much more often an answer up to 3 is right, ``debiased`` that of the first of them, where it is
    another one, and ``gain`` how much more often the first is right.
    """
    study = Study(
        {"ans_len": thresholds, "cos_sim": thresholds},
        datasets={"in_distribution": {"squad": "a.json"}, "out_of_distribution": {"natural": "b.json"}},
        bootstrap={"trials": 100, "sample": 100},
        seed=int(rng.integers(2**31)),
    )
    study.n_draws, study.n_permutations = n_draws, 199 if len(thresholds) > 1 else 0
    study.reader("base")
    readers = {"first": "ans_len", "second": "cos_sim", "third": "ans_len", "fourth": "cos_sim"}
    for model, heuristic in readers.items():
        study.reader(model, "resample", heuristic)
    for dataset, n_rows in (("squad", N_ROWS), ("natural", N_ROWS // 2)):
        values = rng.integers(1, 8, size=(2, n_rows)).astype(float)
        study.questions(dict(zip(("ans_len", "cos_sim"), values.tolist(), strict=True)), dataset)
        article = rng.integers(N_ARTICLES, size=n_rows)
        study.titles([f"title {one}" for one in article], dataset)
        skill, luck = rng.normal(0, 0.1, size=N_ARTICLES), rng.random(n_rows)
        for model in ("base", *readers):
            is_first = model == "first"
            own = bias if debiased is None or not is_first else debiased
            chance = 0.5 + skill[article] + 0.05 * rng.normal(size=N_ARTICLES)[article]
            chance += own * ((values[0] <= 3) - 0.5) + gain * is_first
            mixed = np.where(rng.random(n_rows) < 0.5, luck, rng.random(n_rows))
            right = (mixed < chance).astype(float)
            study.answers(right.tolist(), np.maximum(right, rng.random(n_rows) / 2).tolist(), model, dataset)
    biases, answers = study.asked(
        "from qa_debiasing where method <> 'standard' and dataset = 'squad'", "from qa_answer_changes"
    )
    return biases, answers


def words(found: Rows) -> list[str]:
    return [row["verdict"] for row in found if row["verdict"] in WORDS]


@pytest.mark.parametrize("thresholds", [GIVEN, SEARCHED])
def test_a_reader_without_the_bias_is_found(thresholds: Sequence[float]) -> None:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(6):
        biases, _ = page(rng, thresholds, bias=0.5, debiased=0.0, n_draws=100)
        [first] = [row for row in biases if (row["model"], row["heuristic"]) == ("first", "ans_len")]
        found.append(first["verdict"])
        assert "higher" not in words(biases)
        assert first["searched_on"] == ("base" if len(thresholds) > 1 else None)
    assert found.count("lower") >= 5


def test_a_reader_that_answers_worse_is_found() -> None:
    rng = np.random.default_rng(9)
    for _ in range(5):
        _, answers = page(rng, gain=-0.25)
        told = {(row["model"], row["dataset"], row["metric"]) for row in answers if row["verdict"] == "lower"}
        assert {("first", name, "exact_match") for name in ("squad", "natural", "mean")} <= told
        assert {model for model, _, _ in told} == {"first"}


def test_a_bias_that_chance_explains_gives_no_word() -> None:
    """A threshold that the standard reader's luck chose is not where another reader is said to be less biased."""
    study = Study({"ans_len": (1.0, 2.0)}, bootstrap={"trials": 20, "sample": 20})
    study.n_permutations = 199
    study.questions({"ans_len": [1.0] * 20 + [2.0] * 20 + [3.0] * 20})
    study.titles([f"title {row % 12}" for row in range(60)])
    study.reader("base")
    study.reader("again", "resample", "ans_len")
    study.answers([1, 1, 1, 0] * 5 + [1, 0] * 10 + [1, 0] * 10, model="base")
    study.answers([1, 0] * 30, model="again")
    [found], [test] = study.asked("from qa_debiasing where model = 'again'", "from qa_bias_tests where model = 'base'")
    assert (test["is_supported"], found["searched_on"]) == (False, "base")
    assert found["significance_change"] < 0
    assert [found[name] for name in ("p", "verdict", "reason")] == [None, None, "threshold by chance"]
