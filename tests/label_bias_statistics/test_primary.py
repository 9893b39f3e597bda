"""The primary question of a spec is a family of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from biaseval.errors import InputError
from biaseval.spec import LabelBiasSpec, stored_spec
from tests.label_bias_statistics.answers import METRICS, analysed, answers_of, preferring, rows
from tests.statistics_macros.patterns import every_pattern, expected_tests


def _answers(n_demos: tuple[int, ...] = (0, 4)) -> list[Any]:
    rng = np.random.default_rng(0)
    answers = []
    for number in range(9):
        task = f"t{number}"
        for place in n_demos:
            for method, gap in (("none", 0.3), ("cc", 0.3), ("dc", 0.15)):
                setting = {"method": method, "n_demos": place}
                recalls = {"a": 0.5 + gap, "b": 0.5 - gap, "c": 0.5}
                answers.append(answers_of(rng, task, "abc", list("abc" * 20), recalls, **setting))
                answers.append(preferring(rng, task, "abc", list("abc" * 6), rng.normal(size=3).tolist(), **setting))
    return answers


def test_the_primary_question_and_the_rest_are_adjusted_apart() -> None:
    answers = _answers()
    connection = analysed(answers, primary=("rsd", "dc"))
    found = {
        (row["n_demos"], row["method"], row["metric"]): row for row in rows(connection, "from label_bias_verdicts")
    }
    by_task = rows(connection, "from label_bias_changes_by_task order by task")
    primary = {(n_demos, "dc", metric) for n_demos in (0, 4) for metric in ("rsd", "relative_variance")}
    assert {place for place, row in found.items() if row["is_primary"]} == primary
    families: dict[tuple[bool, str | None], list[tuple[int, str, str]]] = {}
    for place in found:
        partner = place[2] if place[2] in ("relative_variance", "squared_preference") else None
        families.setdefault((place in primary, partner), []).append(place)
    assert sorted(map(len, families.values())) == [2, 2, 3, 5, 18]
    for names in families.values():
        matrix = np.array(
            [
                [row["estimate"] for row in by_task if (row["n_demos"], row["method"], row["metric"]) == name]
                for name in names
            ]
        )
        assert matrix.shape == (len(names), 9)
        for name, expected in zip(names, expected_tests(matrix, every_pattern(9)), strict=True):
            for key in ("p", "p_adjusted", "simultaneous_low", "simultaneous_high"):
                assert found[name][key] == pytest.approx(expected[key], abs=1e-6), (name, key)
        # For these very tasks, Holm within the family, too.
        ps = sorted(found[name]["same_tasks_p"] for name in names)
        assert min(found[name]["same_tasks_p_adjusted"] for name in names) == pytest.approx(min(1, ps[0] * len(ps)))


def test_a_primary_question_says_what_a_whole_page_cannot() -> None:
    answers = _answers()
    alone, page = (
        {
            row["n_demos"]: row
            for row in rows(analysed(answers, primary=primary), "from label_bias_verdicts where metric = 'rsd'")
            if row["method"] == "dc"
        }
        for primary in (("rsd", "dc"), None)
    )
    assert all(alone[place]["word_p_adjusted"] <= page[place]["word_p_adjusted"] for place in page)
    assert all(alone[place]["same_tasks_p_adjusted"] < page[place]["same_tasks_p_adjusted"] for place in page)
    assert not any(row["is_primary"] for row in page.values())


def test_more_demonstrations_are_no_part_of_it() -> None:
    found = rows(analysed(_answers(), primary=("accuracy", "cc")), "from label_bias_verdicts where is_primary")
    assert sorted((row["n_demos"], row["method"], row["against_method"], row["metric"]) for row in found) == [
        (0, "cc", "none", "accuracy"),
        (4, "cc", "none", "accuracy"),
    ]
    assert METRICS[1] == "accuracy"


def _spec(**changes: Any) -> LabelBiasSpec:
    content = {"kind": "label_bias", "name": "x", "model": {"path": "m"}, "tasks": {"path": "t"}, **changes}
    spec = stored_spec(content, "spec.yaml")
    assert isinstance(spec, LabelBiasSpec)
    return spec


@pytest.mark.parametrize(
    ("primary", "changes", "problem"),
    [
        (
            {"metric": "rds", "method": "dc"},
            {},
            "primary.metric: input should be 'rsd', 'bias_score', 'accuracy' or 'macro_f1', found 'rds'; change it",
        ),
        (
            {"metric": "relative_variance", "method": "dc"},
            {},
            "primary.metric: input should be 'rsd', 'bias_score', 'accuracy' or 'macro_f1', found 'relative_variance'",
        ),
        (
            {"metric": "rsd", "method": "looc"},
            {},
            "primary.method: 'looc' is no method of this run; there is cc, dc",
        ),
        (
            {"metric": "rsd", "method": "dcc"},
            {},
            "primary.method: 'dcc' is no method of this run; did you mean dc?",
        ),
        ({"metric": "rsd", "method": "none"}, {}, "primary.method: 'none' is no method of this run"),
        ({"metric": "rsd", "method": "lora"}, {}, "primary.method: 'lora' is no method of this run"),
        (
            {"metric": "rsd", "method": "dc"},
            {"calibration": []},
            "primary.method: the run has no method that could change anything; add it to calibration",
        ),
        (
            {"metric": "rsd", "method": "looc@0.5"},
            {"calibration": ["looc@0.5"], "prompt": {"n_demos": [0]}},
            "primary.method: 'looc@0.5' needs demonstrations, and prompt.n_demos has 0 alone",
        ),
        ({"metric": "rsd"}, {}, "primary.method: "),
        ({"metric": "rsd", "method": "dc", "n_demos": 4}, {}, "primary.n_demos: unknown key"),
    ],
)
def test_what_is_no_question_of_the_run_is_refused(
    primary: dict[str, Any], changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        _spec(**{"calibration": ["cc", "dc"], "primary": primary, **changes})
    assert problem in str(caught.value)


def test_a_primary_question_is_of_any_method_of_the_run() -> None:
    for method, name in (("dc@1", "dc"), ("cc@0.50", "cc@0.5"), ("lora", "lora"), ("lora+dc@1.0", "lora+dc")):
        spec = _spec(
            calibration=["dc", "cc@0.5"],
            lora={"preset": "reif2024"},
            primary={"metric": "macro_f1", "method": method},
        )
        assert spec.primary is not None
        assert (spec.primary.metric, spec.primary.method) == ("macro_f1", name)
