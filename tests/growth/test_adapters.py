"""Adapters come to a finished run, for some of its demonstration sets and then for more."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biaseval.errors import InputError
from biaseval.pipelines.directory import read_plan
from biaseval.runs import run_spec, run_status
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.alike import assert_alike
from tests.growth.runs import BY_TASK, SpecOf, assert_same_answers, kept, own_spec, rows
from tests.inprocess import in_this_process
from tests.label_bias.test_own_data import reviews, write_csv

pytestmark = pytest.mark.usefixtures("here")

METRICS = ("macro_f1", "accuracy", "rsd", "bias_score")
LORA: dict[str, Any] = {
    "precision": "float32", "r": 2, "epochs": 1, "n_examples": 4, "learning_rate": 5e-2,
    "gradient_checkpointing": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> SpecOf:
    """Return what makes a spec of two demonstration sets on a test file, so that adapters take no test row."""
    folder = tmp_path_factory.mktemp("csv")
    write_csv(folder / "reviews.csv", reviews(90))
    write_csv(folder / "test.csv", reviews(20, "other"))

    def spec_of(*n_demos: int, prompt: Any = None, **changes: Any) -> LabelBiasSpec:
        given = {"calibration": ["cc"], **changes}
        return own_spec(folder, tiny_llama, prompt={"n_demos": list(n_demos), "demo_sets": 2}, **given)

    return spec_of


@pytest.fixture(scope="module")
def finished(spec: SpecOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished run without adapters."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    with in_this_process():
        run_spec(spec(0, 2), str(folder), page=False)
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Iterator[Run]:
    """Yield a copy of the finished run; what a test adds is made without Ray."""
    with in_this_process():
        yield Run.open(str(shutil.copytree(finished, tmp_path / "run")))


def stamps(run: Run, *folders: str) -> dict[str, int]:
    """Return when each file was written, in nanoseconds."""
    files = (path for folder in folders for path in Path(run.uri, folder).rglob("*") if path.is_file())
    return {str(path): path.stat().st_mtime_ns for path in files}


def trained(run: Run) -> list[str]:
    found = rows(run, "select distinct n_demos, demo_set from training order by all")
    assert len(found) == len(list(Path(run.uri, "adapters").rglob("adapter_config.json")))
    return [f"k{row['n_demos']}.s{row['demo_set']}" for row in found]


@pytest.mark.slow
def test_adapters_of_some_sets_are_added_to_a_finished_run_and_then_those_of_all(
    run: Run, spec: SpecOf, tmp_path: Path
) -> None:
    before, written, measured = kept(run), stamps(run, "label_scores", "prompts"), rows(run, BY_TASK)
    run_spec(spec(0, 2, lora={**LORA, "n_demos": [2], "demo_sets": 1}), run.uri, page=False)
    assert all(stage.n_units_done == stage.n_units for stage in run_status(run.uri).stages)
    assert trained(run) == ["k2.s0"]
    # Nothing that was there is made again, and no prompt has two scores of the model.
    assert stamps(run, "label_scores", "prompts") == written
    assert before.items() <= kept(run).items()
    [counts] = rows(
        run,
        "select (select count(distinct prompt_id) from adapted_scores) as adapted, "
        "(select count(*) from prompts where n_demos = 2 and demo_set = 0) as planned, "
        "(select count(*) from (select prompt_id, label from label_scores group by all having count(*) > 1)) as twice",
    )
    assert counts["adapted"] == counts["planned"] > 0
    assert counts["twice"] == 0
    assert_alike([row for row in rows(run, BY_TASK) if row["method"] in ("none", "cc")], measured)
    settings = (
        "select distinct method, n_demos, demo_set from label_bias_by_task where method like 'lora%' order by all"
    )
    assert rows(run, settings) == [{"method": m, "n_demos": 2, "demo_set": 0} for m in ("lora", "lora+cc")]

    first = stamps(run, "label_scores", "adapted_scores", "adapters")
    more = spec(0, 2, 3, calibration=["cc", "looc"], lora=LORA)
    run_spec(more, run.uri, page=False)
    assert trained(run) == ["k0.s0", "k2.s0", "k2.s1", "k3.s0", "k3.s1"]
    assert first.items() <= stamps(run, "label_scores", "adapted_scores", "adapters").items()
    fresh = run_spec(more, str(tmp_path / "fresh"), page=False)
    # A run that was planned with adapters grows in the same way.
    begun = run_spec(spec(0, 2, lora={**LORA, "n_demos": [2], "demo_sets": 1}), str(tmp_path / "begun"), page=False)
    first = stamps(begun, "label_scores", "adapted_scores", "adapters")
    run_spec(more, begun.uri, page=False)
    assert first.items() <= stamps(begun, "label_scores", "adapted_scores", "adapters").items()
    assert_same_answers(begun, fresh, BY_TASK)
    assert read_plan(run)["tokens"] == read_plan(fresh)["tokens"]
    assert_same_answers(
        *(run, fresh, BY_TASK),
        "select adapter, row, instance_id, prompt, label from training_rows order by all",
        "select n_demos, method, metric, estimate, verdict from label_bias_verdicts order by all",
    )
    after = kept(run)
    run_spec(more, run.uri, page=False)
    assert kept(run) == after
    held_out = run_spec(spec(0, 2, held_out=True), str(tmp_path / "held_out"), page=False)
    with pytest.raises(InputError, match="lora takes rows of held_out"):
        run_spec(spec(0, 2, held_out=True, lora=LORA), held_out.uri)
    assert run_status(held_out.uri).is_planned
    for lora, why in (
        ({**LORA, "n_examples": 5}, r"lora\.n_examples"),
        ({**LORA, "n_demos": [0, 2]}, r"lora\.n_demos"),
        (None, "lora"),
    ):
        with pytest.raises(InputError, match=rf"belongs to another spec(.|\n)*{why}"):
            run_spec(spec(0, 2, 3, calibration=["cc", "looc"], lora=lora), run.uri)


def test_adapters_of_some_sets_are_compared_with_none_in_these_sets(run: Run, spec: SpecOf) -> None:
    written = stamps(run, "label_scores", "prompts")
    run_spec(spec(0, 2, lora={**LORA, "n_demos": [2], "demo_sets": 1}), run.uri, page=False)
    assert (trained(run), stamps(run, "label_scores", "prompts")) == (["k2.s0"], written)
    by_set = {
        (row["n_demos"], row["method"], row["demo_set"]): np.array([row[metric] for metric in METRICS])
        for row in rows(run, BY_TASK)
    }
    none, lora, cc = (by_set[2, method, 0] for method in ("none", "lora", "lora+cc"))
    assert not np.allclose(none, by_set[2, "none", 1])
    both = (none + by_set[2, "none", 1]) / 2
    changes = {
        (row["n_demos"], row["method"], row["against_method"]): row
        for row in rows(run, "from label_bias_changes where suite = 'all'")
    }
    verdicts = {
        (row["method"], row["against_method"], row["metric"]): row
        for row in rows(run, "from label_bias_verdicts where n_demos = 2 and suite = 'all'")
    }
    calibrated = (by_set[2, "cc", 0] + by_set[2, "cc", 1]) / 2
    for pair, expected in {
        ("lora", "none"): lora - none,
        ("lora+cc", "none"): cc - none,
        ("lora+cc", "lora"): cc - lora,
        ("cc", "none"): calibrated - both,
        ("none", "none"): both - by_set[0, "none", 0],
    }.items():
        change = changes[2, *pair]
        assert [change[metric] for metric in METRICS] == pytest.approx(expected, abs=1e-9), pair
        assert [verdicts[*pair, metric]["estimate"] for metric in METRICS] == pytest.approx(expected, abs=1e-9)
        assert None not in (verdicts[*pair, "accuracy"]["standard_error"], change["accuracy_low"])
        assert change["against_n_rows"] == (40 if pair == ("cc", "none") else 20)
    remedies = {row["method"]: row for row in rows(run, "from label_bias_remedies where n_demos = 2 and suite = 'all'")}
    for method, before in {"lora": none, "cc": both}.items():
        found = [remedies[method][f"{metric}_before"] for metric in METRICS]
        assert found == pytest.approx(before, abs=1e-9)
    # Calibration inputs, and their cost, are those of the sets that have adapters.
    assert remedies["lora+cc"]["n_prompts"] * 2 == remedies["cc"]["n_prompts"] > 0
    costs = {row["method"]: row for row in rows(run, "from mitigation_costs where n_demos = 2")}
    assert [costs[method]["n_demo_sets"] for method in ("cc", "lora", "lora+cc")] == [2, 1, 1]
    assert costs["lora+cc"]["tokens"] - costs["lora"]["tokens"] < costs["cc"]["tokens"]
    assert {row["n_demos"] for row in rows(run, "from mitigation_costs where method like 'lora%'")} == {2}
    # Marts of prompts' formats, and the tests against a constant answer, count no set twice.
    for mart in ("label_bias_by_format", "label_bias_metrics", "label_bias_format_labels", "label_bias_format_spread"):
        assert {row["format"] for row in rows(run, f"from {mart}") if "format" in row} <= {"base"}
    [told] = rows(run, "select text from label_bias_cautions where text like 'LoRA%'")
    assert told["text"].startswith("LoRA has adapters for some demonstration sets alone")
