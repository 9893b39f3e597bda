"""What label-bias runs do not share is named, and what cannot be compared is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from biaseval.analysis.comparing import compare_runs
from biaseval.errors import BiasevalError, InputError
from biaseval.report.compare_words import caveats, sentences
from biaseval.store import Run
from tests.commands import call
from tests.compare.runs import GOLDS, HITS, label_plan, make
from tests.labelplans import Plan
from tests.majorityplans import MajorityPlan
from tests.specs import as_older, write_plan

# Label bias, the guard


def _named(labels: list[str]) -> Plan:
    return label_plan({task: hits[1] for task, hits in HITS.items()})


def _other_gold(plan: Plan) -> None:
    for row in plan.prompts:
        if (row["task"], row["purpose"], row["row"]) == ("task7", "main", 3):
            row["gold"] = "a"


def _other_instance(plan: Plan) -> None:
    for row in plan.prompts:
        if (row["task"], row["purpose"], row["row"]) == ("task7", "main", 3):
            row["instance_id"] = "another"


def _fewer_rows(plan: Plan) -> None:
    dropped = {row["prompt_id"] for row in plan.prompts if (row["task"], row["row"]) == ("task7", 7)}
    plan.prompts = [row for row in plan.prompts if row["prompt_id"] not in dropped]
    plan.label_scores = [row for row in plan.label_scores if row["prompt_id"] not in dropped]


@pytest.mark.parametrize("change", [_other_gold, _other_instance, _fewer_rows])
def test_a_task_with_other_rows_is_left_out_and_named(
    change: Callable[[Plan], None], labels: list[str], tmp_path: Path
) -> None:
    plan = _named(labels)
    change(plan)
    changed = make(plan, tmp_path / "changed")
    compared = compare_runs([labels[0], changed])
    pair = compared.pair("first", "changed")
    assert (pair["n_tasks"], pair["n_rows"], pair["differing_tasks"]) == (6, 48, ["task7"])
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert (row["n_units"], row["estimate"]) == (6, pytest.approx((2 + 3 + 1 + 4 + 2 + 2) / 8 / 6))
    assert "changed against first: left out, with other rows or labels in each: task7." in caveats(compared)
    assert "task7" not in {row["task"] for row in compared.disagreements}


def _other_seed(plan: Plan) -> None:
    plan.spec["seed"] = 43


def _other_scoring(plan: Plan) -> None:
    plan.spec["scoring"] = {"normalization": "sum", "eos": True}


def _other_context(plan: Plan) -> None:
    plan.contexts[0]["text"] = "Here is another example."


def _other_input(plan: Plan) -> None:
    plan.prompts[0]["input_text"] = "Q: written otherwise"


def _more_settings(plan: Plan) -> None:
    more = _named([])
    twice = label_plan({task: hits[1] for task, hits in HITS.items()}, n_demos=(0, 2))
    assert len(more.prompts) * 2 == len(twice.prompts)
    plan.prompts, plan.contexts, plan.label_scores = twice.prompts, twice.contexts, twice.label_scores


def _another_task(plan: Plan) -> None:
    extra = label_plan({"task8": "11110000"})
    plan.tasks += extra.tasks
    plan.prompts += extra.prompts
    plan.contexts += extra.contexts
    plan.label_scores += extra.label_scores


@pytest.mark.parametrize(
    ("change", "column", "said"),
    [
        (_other_seed, "has_same_seed", "other seeds in the specs"),
        (_other_scoring, "has_same_scoring", "scored in another way"),
        (_other_context, "has_same_contexts", "other demonstrations or another text"),
        (_other_input, "has_same_inputs", "written otherwise in the prompt"),
        (_more_settings, "has_same_n_demos", "other numbers of demonstrations"),
        (_another_task, None, "left out, in one of the two only: task8"),
    ],
)
def test_what_runs_do_not_share_is_named(
    change: Callable[[Plan], None], column: str | None, said: str, labels: list[str], tmp_path: Path
) -> None:
    plan = _named(labels)
    change(plan)
    changed = make(plan, tmp_path / "changed")
    compared = compare_runs([labels[0], changed])
    pair = compared.pair("first", "changed")
    met = {name: value for name, value in pair.items() if name.startswith("has_same")}
    assert met == {**dict.fromkeys(met, True), **({column: False} if column else {})}
    assert [caveat for caveat in caveats(compared) if said in caveat], caveats(compared)
    assert len(compared.tests) == 2 * 6
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert row["estimate"] == pytest.approx(15 / 8 / 7)


def test_means_are_over_the_demonstration_sets_that_both_have(labels: list[str], tmp_path: Path) -> None:
    plan = _named(labels)
    second = label_plan(dict.fromkeys(HITS, "00000000"))
    for rows in (second.prompts, second.contexts):
        for row in rows:
            row["demo_set"] = 1
            row["context_id"] += "/1"
    for row in (*second.prompts, *second.label_scores):
        row["prompt_id"] += "/1"
    for name in ("prompts", "contexts", "label_scores"):
        getattr(plan, name).extend(getattr(second, name))
    more = make(plan, tmp_path / "more")
    compared = compare_runs([labels[0], more])
    [row] = [row for row in compared.tests if (row["run"], row["metric"]) == ("first", "accuracy")]
    assert row["estimate"] == pytest.approx(15 / 8 / 7)  # and not what all wrong answers of the second set make of it
    assert compared.pair("first", "more")["has_same_sets"] is False
    assert [caveat for caveat in caveats(compared) if "other demonstration sets" in caveat]


def test_specs_and_environments_are_compared_key_by_key(labels: list[str], tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    shutil.copytree(labels[0], changed)
    as_older(changed).write_text(
        "environment.json", json.dumps({"versions": {"torch": "2.9"}, "model": {"digest": "abc", "model": {}}})
    )
    spec = (changed / "spec.yaml").read_text()
    (changed / "spec.yaml").write_text(spec.replace("path: models/tiny", "path: models/other"))
    facts = {row["fact"]: row["values"] for row in compare_runs([labels[0], str(changed)]).facts}
    assert facts == {
        "spec.model.path": {"first": "models/tiny", "changed": "models/other"},
        "versions.torch": {"first": None, "changed": "2.9"},
        "fingerprint.model": {"first": None, "changed": "abc"},
    }


def test_a_constant_answer_is_said_first(tmp_path: Path) -> None:
    constant = make(
        label_plan(dict.fromkeys(HITS, "".join("1" if gold == "a" else "0" for gold in GOLDS))), tmp_path / "a"
    )
    other = make(label_plan({task: hits[1] for task, hits in HITS.items()}), tmp_path / "b")
    told = sentences(compare_runs([other, constant]))
    assert told[0].startswith("No better than one label for all: no calibration, 0 demonstrations: a.")
    assert len([sentence for sentence in told if sentence.startswith("No better")]) == 1


# Refusals


def test_what_cannot_be_compared_is_refused_with_one_message(
    labels: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    majority = make(MajorityPlan(("likelihood",)), tmp_path / "boolq")
    elsewhere = make(label_plan({"elsewhere": "11110000"}), tmp_path / "elsewhere")
    plan = label_plan({"task1": "11110000"})
    plan.prompts[0]["instance_id"] = "another"
    others = make(plan, tmp_path / "others")
    unfinished = Plan()
    unfinished.task("task1", ["a", "b"])
    unfinished.probabilities("task1", "main", "a", [0.5, 0.5])
    begun = unfinished.write(tmp_path / "begun")
    old = tmp_path / "old"
    shutil.copytree(labels[1], old)
    as_older(old).delete("sign_flips/part-00000.parquet")
    cases: list[tuple[list[str], int, str]] = [
        ([labels[0]], 2, "compare: needs at least two runs"),
        ([labels[0], labels[0]], 2, "a run is named twice"),
        ([labels[0], majority], 2, "name runs of one kind"),
        ([labels[0], str(tmp_path / "absent")], 2, "is not a run directory"),
        ([labels[0], elsewhere], 2, "first and elsewhere: nothing can be compared: no task is in both"),
        ([labels[0], others], 2, "task1 have other main rows or labels in each; a single file is split by"),
        ([labels[0], begun], 1, "is missing; biaseval report"),
        ([labels[0], str(old)], 1, "analysed by a version that stored no sign_flips"),
        ([*labels, "--out", str(tmp_path / "page.htm")], 2, "does not end in .html"),
    ]
    for arguments, code, said in cases:
        found = call(capsys, monkeypatch, "compare", *arguments)
        assert (found.code, found.out) == (code, ""), arguments
        assert found.err.startswith("error: ")
        assert said in found.err, found.err
        assert "Traceback" not in found.err


def test_kinds_without_metrics_of_a_model_are_refused(labels: list[str], tmp_path: Path) -> None:
    run = Run.open(str(tmp_path / "search"))
    run.write_text("spec.yaml", "kind: search\n")
    with pytest.raises(InputError, match="is of the kind 'search', which has no metrics to compare"):
        compare_runs([labels[0], run.uri])


def test_a_run_that_shares_nothing_is_left_out_beside_others_that_do(labels: list[str], tmp_path: Path) -> None:
    elsewhere = make(label_plan({"elsewhere": "11110000"}), tmp_path / "elsewhere")
    compared = compare_runs([*labels, elsewhere])
    assert compared.others == ["other"]
    assert "elsewhere shares nothing with first that could be compared, and is left out." in caveats(compared)
    with pytest.raises(InputError, match="name another one first"):
        compare_runs([elsewhere, *labels])


# What is said and shown


def test_an_unfinished_run_stays_an_error_of_its_own(labels: list[str], tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    shutil.copytree(labels[1], begun)
    (begun / "label_scores" / "part-00000.parquet").unlink()
    write_plan(Run.open(str(begun)))
    with pytest.raises(BiasevalError, match="1 of 1 parts missing"):
        compare_runs([labels[0], str(begun)])
