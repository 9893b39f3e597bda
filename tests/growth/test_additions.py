"""Additions to a label-bias run make what is missing, and the rest keeps its bytes."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.errors import InputError
from biaseval.label_bias import data
from biaseval.pipelines.directory import read_plan
from biaseval.runs import run_spec, run_status
from biaseval.runs.commands import claimed_run
from biaseval.spec import LabelBiasSpec, grown_keys
from biaseval.store import Run
from tests.alike import assert_alike
from tests.growth.runs import kept, own_spec, rows
from tests.label_bias.test_lm_eval_tasks import write as write_task
from tests.label_bias.test_own_data import reviews, spec_of, write_csv
from tests.test_pipelines import digests

pytestmark = pytest.mark.usefixtures("here")

CONSTANT = "marts/label_bias_constant_differences.parquet"


def test_more_demonstrations_sets_and_methods_make_only_what_is_missing(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = kept(run)
    first = yaml.safe_load(run.read_text("spec.yaml"))
    prompt = {"n_demos": [0, 2, 3], "demo_sets": 2}
    more = own_spec(csv_folder, tiny_llama, prompt=prompt, calibration=["cc", "dc", "looc"])
    run_spec(more, run.uri)
    n_before = sum(part["n_prompts"] for part in read_plan(run)["parts"])
    fresh = run_spec(more, str(tmp_path / "fresh"))
    assert n_before == sum(part["n_prompts"] for part in read_plan(fresh)["parts"])
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert f"of {n_before:,} rows are scored" in capsys.readouterr().err
    # The numbers are those of a run that was asked for all of it at once.
    for question in (
        "from label_bias_by_task order by all",
        "select prompt_id, context_id, labels, input_text, n_tokens from prompts order by prompt_id",
        "select context_id, text, demo_ids from contexts order by context_id",
        "select n_demos, method, metric, estimate, verdict from label_bias_verdicts order by all",
    ):
        assert_alike(rows(run, question), rows(fresh, question))
    assert yaml.safe_load(run.read_text("specs/00000.yaml")) == first
    assert run_status(run.uri).is_complete
    # The same again changes nothing, and the first spec is now another.
    run_spec(more, run.uri)
    assert kept(run) == after
    with pytest.raises(InputError, match=r"belongs to another spec; choose another directory"):
        run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), run.uri)


@pytest.mark.slow
def test_a_format_is_added_and_what_was_there_says_the_same(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    def spec(n_demos: Sequence[int], **formats: Any) -> LabelBiasSpec:
        prompt = {"n_demos": list(n_demos), "formats": formats}
        return own_spec(csv_folder, tiny_llama, prompt=prompt, calibration=["cc"])

    terse, back = {"item": "{input} => {label}", "separator": "\n"}, {"order": "reversed"}
    before, marts = kept(run), {name: run.read_bytes(name) for name in run.files("marts")}
    n_before = sum(part["n_prompts"] for part in read_plan(run)["parts"])
    run_spec(spec([0, 2], terse=terse), run.uri)
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert sum(part["n_prompts"] for part in read_plan(run)["parts"]) == 2 * n_before
    of_base = rows(run, "from label_bias_constant_differences where format = 'base' order by all")
    assert of_base == pq.read_table(pa.BufferReader(marts[CONSTANT])).to_pylist()
    changed = {name for name, content in marts.items() if run.read_bytes(name) != content}
    assert {name.removeprefix("marts/label_bias_format_") for name in changed} == {
        "marts/label_bias_by_format.parquet",
        CONSTANT,
        "changes.parquet",
        "labels.parquet",
        "spread.parquet",
    }
    more = spec([0, 2, 3], terse=terse, back=back)
    run_spec(more, run.uri)
    assert {name: kept(run)[name] for name in after} == after
    fresh = run_spec(more, str(tmp_path / "fresh"))
    for question in (
        "select prompt_id, context_id, format, input_text, n_tokens from prompts order by prompt_id",
        "select context_id, format, text, demo_ids from contexts order by context_id",
        "from label_bias_by_task order by all",
        "from label_bias_by_format order by all",
        "from label_bias_format_spread order by all",
    ):
        assert_alike(rows(run, question), rows(fresh, question))
    counted = "select format, count(*) as n from prompts group by format order by format"
    assert [row["format"] for row in rows(run, counted)] == ["back", "base", "terse"]
    with pytest.raises(InputError, match=r"prompt\.formats"):
        run_spec(spec([0, 2, 3], terse={**terse, "separator": "\n\n"}, back=back), run.uri)


@pytest.mark.slow
def test_a_killed_addition_is_begun_again(run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path) -> None:
    more = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2, 4]}, calibration=["cc"])
    with claimed_run(more, run.uri):
        pass  # planned, and killed before anything was scored
    assert not run_status(run.uri).is_complete
    planned = read_plan(run)
    # Killed earlier: parts are written, the plan is not.
    shutil.copytree(run.uri, tmp_path / "killed")
    killed = Run.open(str(tmp_path / "killed"))
    first = {**planned, "parts": planned["parts"][:1], "n_parts": 1}
    killed.write_json("plan.json", first)
    killed.write_text("spec.yaml", killed.read_text("specs/00000.yaml"))
    killed.delete("specs")
    for one in (run, killed):
        run_spec(more, one.uri)
    assert kept(killed) == kept(run)
    question = "from label_bias_by_task order by all"
    assert_alike(rows(killed, question), rows(run, question))


def test_a_killed_addition_that_is_not_repeated_leaves_the_run_as_it_was(
    run: Run, csv_folder: Path, tiny_llama: Path
) -> None:
    before = kept(run)
    prompts = run.read_part("prompts", 0)
    run.write_part("prompts", 7, prompts.slice(0, 1))
    run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), run.uri)
    assert kept(run) == before


def test_a_run_of_an_older_version_keeps_the_rows_of_bias_score_that_it_drew(
    csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    """They were the first rows, whatever their labels."""
    run = str(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "bias_score_rows", lambda order, *_, n_fewest, **__: [*order[:n_fewest]])
        run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), run)
    before = kept(Run.open(run))
    more = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2, 3]}, calibration=["cc", "dc"])
    run_spec(more, run)
    after = kept(Run.open(run))
    assert {name: after[name] for name in before} == before
    fresh = run_spec(more, str(tmp_path / "fresh"))
    drawn, anew = (
        rows(each, "select instance_id, label from splits where role = 'bias_score' order by position")
        for each in (Run.open(run), fresh)
    )
    assert len(drawn) == len(anew) == 6
    assert {row["instance_id"] for row in drawn} != {row["instance_id"] for row in anew}
    assert sorted(row["label"] for row in anew) == ["bad", "bad", "good", "good", "mixed", "mixed"]


def test_what_would_change_rows_that_are_there_is_refused(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    small = spec_of(csv_folder, model={"path": str(tiny_llama)}, prompt={"n_demos": [0, 2], "demo_sets": 1})
    run_spec(small, str(tmp_path / "small"))
    before = kept(Run.open(str(tmp_path / "small")))
    large = small.model_copy(update={"prompt": small.prompt.model_copy(update={"n_demos": [0, 2, 4]})})
    with pytest.raises(InputError, match=r"tasks would have other rows than it has, .* takes test rows"):
        run_spec(large, str(tmp_path / "small"))
    assert kept(Run.open(str(tmp_path / "small"))) == before
    for changes, said in (
        ({"prompt": {"n_demos": [0, 4]}}, "prompt.n_demos: the run has [0, 2], the spec [0, 4]"),
        ({"prompt": {"n_demos": [0, 2, 4]}, "seed": 7}, "seed: the run has 42, the spec 7"),
    ):
        with pytest.raises(InputError) as caught:
            run_spec(own_spec(csv_folder, tiny_llama, calibration=["cc"], **changes), run.uri)
        assert said in str(caught.value)


def test_data_sets_are_added_behind_those_that_are_there(run: Run, csv_folder: Path, tiny_llama: Path) -> None:
    first = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2, 3]}, calibration=["cc"])
    run_spec(first, run.uri)  # so that a part of contexts has the number that a second task would have
    before = kept(run)
    content = first.model_dump()
    second = {**content["data"][0], "name": "again", "train": content["data"][0]["test"], "test": None}
    write_csv(csv_folder / "more.csv", reviews(24, "more"))
    second["train"] = str(csv_folder / "more.csv")
    two = LabelBiasSpec.model_validate({**content, "data": [*content["data"], second]})
    run_spec(two, run.uri)
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert rows(run, "select distinct task from label_bias_by_task order by task") == [
        {"task": "again"},
        {"task": "reviews"},
    ]
    turned = LabelBiasSpec.model_validate({**content, "data": [second, *content["data"]]})
    with pytest.raises(InputError, match=r"belongs to another spec|would have other rows"):
        run_spec(turned, run.uri)


def test_a_task_of_the_harness_is_added_and_stays_what_it_was(
    run: Run, csv_folder: Path, tiny_llama: Path, tmp_path: Path
) -> None:
    (tmp_path / "tasks").mkdir()
    content = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]).model_dump()
    task = {"lm_eval": str(write_task(tmp_path / "tasks"))}
    two = LabelBiasSpec.model_validate({**content, "data": [*content["data"], task]})
    before = kept(run)
    run_spec(two, run.uri)
    assert {name: kept(run)[name] for name in before} == before
    assert {"task": "odd-even"} in rows(run, "select distinct task from label_bias_by_task")
    run_spec(two, run.uri)
    write_task(tmp_path / "tasks", question="another?")
    with pytest.raises(InputError, match=r"odd-even\.yaml: the file, or one that it names, changed since"):
        run_spec(two, run.uri)


def test_a_refused_addition_leaves_nothing_behind(run: Run, csv_folder: Path, tiny_llama: Path) -> None:
    before = digests(Path(run.uri))
    content = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]).model_dump()
    write_csv(csv_folder / "few.csv", reviews(12, "few"))
    second = {**content["data"][0], "name": "again", "train": str(csv_folder / "few.csv"), "test": None}
    two = LabelBiasSpec.model_validate({**content, "data": [*content["data"], second]})
    with pytest.raises(InputError, match=r"has 12 rows that can be used"):
        run_spec(two, run.uri)
    assert digests(Path(run.uri)) == before
    write_csv(csv_folder / "few.csv", reviews(24, "few"))
    run_spec(two, run.uri)
    assert len(rows(run, "from tasks")) == 2


def test_a_killed_addition_of_a_data_set_is_swept(run: Run, csv_folder: Path, tiny_llama: Path) -> None:
    before = kept(run)
    for table in ("tasks", "splits", "contexts", "prompts"):
        run.write_part(table, 1, run.read_part(table, 0))
    run_spec(own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"]), run.uri)
    assert kept(run) == before


def test_what_is_trained_is_planned_once(csv_folder: Path, tiny_llama: Path) -> None:
    small = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0]})
    large = own_spec(csv_folder, tiny_llama, prompt={"n_demos": [0, 2]})
    assert grown_keys(small, large) == ["prompt.n_demos"]
    assert grown_keys(large, small) == []
    lora = LabelBiasSpec.model_validate({**large.model_dump(), "lora": {}})
    assert grown_keys(LabelBiasSpec.model_validate({**small.model_dump(), "lora": {}}), lora) == []
