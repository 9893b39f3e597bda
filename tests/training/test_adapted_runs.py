"""Whole runs with adapters on a real Ray: trained, scored beside the base model, measured, and resumed."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import yaml
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, LlamaConfig
from typer.testing import CliRunner

from biaseval.analysis import query
from biaseval.cli import app
from biaseval.errors import InputError
from biaseval.execute.cluster import Cluster
from biaseval.execute.training import Training
from biaseval.models import AdapterSlot, ModelSource, load_model, load_tokenizer
from biaseval.pipelines.kind import Trained
from biaseval.runs import run_status, train_lora
from biaseval.scoring import LabelScorer
from biaseval.spec import AnySpec, load_spec
from biaseval.store import Run
from biaseval.tables import TRAINING
from biaseval.training.recipe import adapters_recipe
from biaseval.units import Unit, missing_units
from tests.taskfiles import write_task
from tests.test_models import SMALL, save_random
from tests.training.interruptions import troubled_adapter

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

TASK = "task9501_two_classification"
LORA: dict[str, Any] = {
    "precision": "float32", "r": 4, "epochs": 2, "learning_rate": 5e-3, "gradient_checkpointing": False,
}  # fmt: skip
SETTINGS = ("k0.s0", "k2.s0", "k2.s1", "k2.s2")
ADAPTERS = [f"{TASK}/{setting}" for setting in SETTINGS]


def write_spec(folder: Path, model: Path, **changes: Any) -> Path:
    write_task(folder / "tasks", TASK, n_instances=140, number=9501)
    content = {
        "kind": "label_bias", "name": "tiny", "model": {"path": str(model)},
        "tasks": {"path": "tasks", "include": [TASK], "min_instances": 130, "max_eval": 12},
        "prompt": {"n_demos": [0, 2], "demo_sets": 3}, "calibration": ["cc", "looc"], "lora": LORA,
        "execution": {"part_rows": 20}, **changes,
    }  # fmt: skip
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def trained(
    tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, ray_cluster: None
) -> tuple[Trained, Path, Path]:
    """Return (summary, spec file, run directory) of adapters that one worker without DeepSpeed trained."""
    folder = tmp_path_factory.mktemp("adapted")
    spec, run_dir = write_spec(folder, tiny_llama), folder / "run"
    summary = train_lora(load_spec(spec), str(run_dir))
    assert not (run_dir / "label_scores").exists()
    return summary, spec, run_dir


@pytest.fixture(scope="module")
def finished(trained: tuple[Trained, Path, Path]) -> tuple[Path, Path]:
    """Return (spec file, run directory) of an undisturbed label-bias run, whose adapters were trained first."""
    _, spec, run_dir = trained
    files = sorted((run_dir / "adapters").rglob("*.safetensors"))
    before = [path.stat().st_mtime_ns for path in files]
    done = CliRunner().invoke(app, ["run", str(spec), "--run-dir", str(run_dir)])
    assert done.exit_code == 0
    assert "lora+looc" in done.stdout
    assert [path.stat().st_mtime_ns for path in files] == before
    return spec, run_dir


def weights(run_dir: Path) -> dict[str, dict[str, torch.Tensor]]:
    files = sorted((run_dir / "adapters").glob("*/*/adapter_model.safetensors"))
    return {str(file.parent.relative_to(run_dir / "adapters")): load_file(file) for file in files}


def prompts_of(run_dir: Path, adapter: str) -> pa.Table:
    """Return the prompts of an adapter's setting, as text."""
    return query(
        [run_dir],
        "select prompt_id, c.text || input_text as text, labels from prompts p join contexts c using (context_id) "
        f"where p.task || '/k' || p.n_demos || '.s' || p.demo_set = '{adapter}' order by prompt_id",
    )


def logprobs(table: pa.Table) -> dict[tuple[str, str], list[float]]:
    return {(row["prompt_id"], row["label"]): row["token_logprobs"] for row in table.to_pylist()}


def assert_close(found: dict[tuple[str, str], list[float]], wanted: dict[tuple[str, str], list[float]]) -> None:
    assert wanted
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, atol=1e-4)


def test_training_leaves_adapters_and_their_steps(trained: tuple[Trained, Path, Path], tiny_llama: Path) -> None:
    summary, spec, run_dir = trained
    lines = dict(summary.lines)
    assert (lines["adapters"], lines["steps"]) == ("4 of 4 (4 trained now)", "16")
    first_loss, last_loss = map(float, lines["loss, first to last step"].split(" to "))
    assert last_loss < first_loss
    assert 0 <= float(lines["outside optimizer steps"].removesuffix("% of them")) < 100
    summary.refuse_given_up()
    run = Run.open(str(run_dir))
    assert run.parts("training") == set(range(4))
    rows = run.read_table("training")
    assert rows.schema == TRAINING.schema
    assert [(row["adapter"], row["step"]) for row in rows.to_pylist()] == [
        (name, step) for name in ADAPTERS for step in range(4)
    ]
    assert {(row["model"], row["task"], row["n_tokens"]) for row in rows.to_pylist()} == {("tiny", TASK, None)}
    assert list(weights(run_dir)) == ADAPTERS
    adapted = load_model(ModelSource(str(tiny_llama), adapter=str(run_dir / "adapters" / TASK / "k2.s0")))
    assert any("lora_A" in name for name, _ in adapted.named_parameters())
    assert not [path for path in run_dir.rglob("*") if "incomplete" in path.name or path.name == ".train"]
    environment = (run_dir / "environment.json").read_bytes()
    assert json.loads(environment)["training"][0].items() >= {"n_adapters": 4, "workers": 1, "zero": None}.items()
    again = dict(train_lora(load_spec(spec), str(run_dir)).lines)
    assert (again["adapters"], "outside optimizer steps" in again) == ("4 of 4 (0 trained now)", False)
    assert (run_dir / "environment.json").read_bytes() == environment


def troubled(spec: AnySpec, units: Sequence[Unit], *, stops: str, dies: str, marker: Path) -> Training:
    """Return the stage of these adapters, of which one stops and one loses its worker (`troubled_adapter`)."""
    return Training(
        name="training", verb="trained", noun="adapters", units=units, execution=spec.execution,
        recipe=adapters_recipe(spec.model, spec.lora), work=troubled_adapter,
        arguments={"name": "tiny", "stops": stops, "dies": dies, "marker": str(marker)},
    )  # fmt: skip


def test_a_worker_that_is_alone_and_dies_goes_on_with_what_is_left(
    trained: tuple[Trained, Path, Path], tmp_path: Path
) -> None:
    """It trains in the process that leads it, which Ray begins anew; what was complete is not trained again."""
    _, spec_file, first = trained
    run_dir, marker = tmp_path / "run", tmp_path / "killed"
    shutil.copytree(first, run_dir)
    for name in ("training", "adapters"):
        shutil.rmtree(run_dir / name)
    spec, run = load_spec(spec_file), Run.open(str(run_dir))
    units = [
        Unit(one["part"], 1, (f"adapters/{one['adapter']}/adapter_config.json",), one)
        for one in run.read_json("plan.json")["adapters"][:2]
    ]
    costliest, other = sorted(units, key=lambda unit: -unit.work["tokens"])
    stage = troubled(spec, units, stops="none", dies=other.work["adapter"], marker=marker)
    with Cluster(spec.execution) as cluster:
        done = list(stage.make(run, units, cluster))
    assert marker.exists()
    assert [one.is_complete for one in done] == [True, True]
    written = (run_dir / costliest.files[0]).stat().st_mtime_ns
    assert written < marker.stat().st_mtime_ns
    found, expected = weights(run_dir), weights(first)
    assert list(found) == ADAPTERS[:2]
    for name, own in found.items():
        assert all(torch.equal(own[key], value) for key, value in expected[name].items())


def test_what_is_complete_stays_whatever_dies(
    trained: tuple[Trained, Path, Path], tmp_path: Path, tiny_llama: Path
) -> None:
    """Of four adapters one is there, one stops, one was begun by a killed process, and one's worker is killed."""
    run_dir, marker = tmp_path / "run", tmp_path / "killed"
    shutil.copytree(trained[2], run_dir)
    shutil.rmtree(run_dir / "training")
    there, dies, begun, stops = ADAPTERS  # the one that dies is the cheapest of those that are missing, and the last
    for lost in (stops, dies):
        shutil.rmtree(run_dir / "adapters" / lost)
    (run_dir / "adapters" / begun / "adapter_config.json").unlink()
    (run_dir / "adapters" / begun / "adapter_model.safetensors").write_bytes(b"half")
    (run_dir / ".train" / "outcomes").mkdir(parents=True)
    (run_dir / ".train" / "outcomes" / "00002.json").write_text("{}")
    kept = run_dir / "adapters" / there / "adapter_config.json"
    before = kept.stat().st_mtime_ns
    spec = load_spec(write_spec(tmp_path, tiny_llama, lora={**LORA, "workers": 2, "zero": 2}))
    run = Run.open(str(run_dir))
    units = [
        Unit(one["part"], 1, (f"adapters/{one['adapter']}/adapter_config.json",), one)
        for one in run.read_json("plan.json")["adapters"]
    ]
    stage = troubled(spec, units, stops=stops, dies=dies, marker=marker)
    with Cluster(spec.execution) as cluster:
        done = {one.unit.work["adapter"]: one for one in stage.make(run, missing_units(run, units), cluster)}
    assert {name: one.facts["is_complete"] for name, one in done.items()} == {stops: False, begun: True, dies: True}
    assert done[stops].facts["n_steps"] == 2
    assert done[dies].facts["first_step"] == 0
    assert done[dies].tokens == units[1].work["tokens"] == min(unit.work["tokens"] for unit in units[1:])
    assert kept.stat().st_mtime_ns == before
    # What was complete when the worker died was not trained again.
    written = (run_dir / "adapters" / begun / "adapter_config.json").stat().st_mtime_ns
    assert written < marker.stat().st_mtime_ns
    found, expected = weights(run_dir), weights(trained[2])
    assert list(found) == [there, dies, begun]
    for name, own in found.items():
        assert own.keys() == expected[name].keys()
        assert max((own[key] - value).abs().max().item() for key, value in expected[name].items()) < 1e-4
    steps = [(row["adapter"], row["step"]) for row in run.read_table("training").to_pylist()]
    assert steps == [(name, step) for name, n_steps in ((dies, 4), (begun, 4), (stops, 2)) for step in range(n_steps)]
    assert not (run_dir / ".train").exists()
    sitting = json.loads((run_dir / "environment.json").read_text())["training"][-1]
    assert list(sitting) == ["n_adapters", "workers", "zero", "seconds", "step_seconds"]
    assert (sitting["n_adapters"], sitting["workers"], sitting["zero"]) == (2, 2, 2)


def test_all_methods_come_out_of_one_run(finished: tuple[Path, Path]) -> None:
    rows = query([finished[1]], "select distinct n_demos, method from label_bias_by_model order by all").to_pylist()
    found = {n_demos: {row["method"] for row in rows if row["n_demos"] == n_demos} for n_demos in (0, 2)}
    assert found[2] == {"none", "cc", "looc", "lora", "lora+cc", "lora+looc"}
    assert found[0] == {"none", "cc", "lora", "lora+cc"}
    run = Run.open(str(finished[1]))
    assert run.parts("adapted_scores") == run.parts("label_scores") == run.parts("prompts")
    for part in run.parts("prompts"):
        prompts = run.read_part("prompts", part)
        assert len(set(zip(*(prompts[name].to_pylist() for name in ("n_demos", "demo_set")), strict=True))) == 1


def test_adapted_scores_are_those_of_the_attached_and_of_the_merged_adapter(
    finished: tuple[Path, Path], tiny_llama: Path, tmp_path: Path
) -> None:
    run_dir = finished[1]
    run = Run.open(str(run_dir))
    base, adapted = (logprobs(run.read_table(table)) for table in ("label_scores", "adapted_scores"))
    for setting in SETTINGS:
        folder = run_dir / "adapters" / TASK / setting
        prompts = prompts_of(run_dir, f"{TASK}/{setting}")
        attached = LabelScorer.load(str(tiny_llama), adapter=str(folder)).score(prompts)
        assert_close(adapted, logprobs(attached))
        merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_llama), str(folder))
        scorer = LabelScorer(merged.merge_and_unload().eval(), load_tokenizer(ModelSource(str(tiny_llama))))
        assert_close(adapted, logprobs(scorer.score(prompts)))
        plain = logprobs(LabelScorer.load(str(tiny_llama)).score(prompts))
        assert_close(base, plain)
        # The adapter does something: otherwise the comparisons above would hold for none.
        assert max(abs(adapted[key][0] - values[0]) for key, values in plain.items()) > 0.01


def test_costs_are_those_of_the_training_rows(finished: tuple[Path, Path]) -> None:
    run = Run.open(str(finished[1]))
    tokens = {0: 0, 2: 0}
    for row in run.read_table("training_rows").to_pylist():
        tokens[row["n_demos"]] += LORA["epochs"] * row["n_tokens"]
    costs = {(row["n_demos"], row["method"]): row for row in query([finished[1]], "from mitigation_costs").to_pylist()}
    for n_demos, n_adapters in ((0, 1), (2, 3)):
        lora = costs[n_demos, "lora"]
        assert (lora["tokens"], lora["n_adapters"], lora["n_prompts"]) == (tokens[n_demos], n_adapters, 0)
        assert lora["seconds"] > 0
        assert costs[n_demos, "lora+cc"]["tokens"] > lora["tokens"]
        assert costs[n_demos, "cc"]["trained_parameters"] == 0
    state = Path(finished[1], "adapters", TASK, "k0.s0", "adapter_model.safetensors")
    assert costs[0, "lora"]["trained_parameters"] == sum(weight.numel() for weight in load_file(state).values())


def test_what_is_missing_is_adapters_that_something_needs_and_their_outputs(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    """One adapter is lost and needed, another is lost and all that it was for is there."""
    again = tmp_path / "run"
    shutil.copytree(finished[1], again)
    plan = Run.open(str(again)).read_json("plan.json")
    part = next(part["part"] for part in plan["parts"] if "k2.s1" in part["adapter"])
    (again / "adapted_scores" / f"part-{part:05d}.parquet").unlink()
    for lost in ("k2.s1", "k0.s0"):
        shutil.rmtree(again / "adapters" / TASK / lost)
    status = run_status(str(again))
    adapters, scores = status.stages
    assert (adapters.noun, adapters.size, adapters.size_done) == ("adapters", 4, 2)
    assert scores.n_units_done == scores.n_units - 1
    assert not status.is_complete
    shutil.copytree(finished[1] / "adapters" / TASK / "k2.s1", again / "adapters" / TASK / "k2.s1")
    shutil.copytree(finished[1] / "adapted_scores", again / "adapted_scores", dirs_exist_ok=True)
    assert run_status(str(again)).is_complete  # nothing needs the adapter that is not there


def test_adapters_take_each_others_place_and_leave_the_model_as_it_was(
    finished: tuple[Path, Path], tiny_llama: Path, tmp_path: Path
) -> None:
    run_dir = finished[1]
    prompts = prompts_of(run_dir, f"{TASK}/k2.s0")
    scorer = LabelScorer.load(str(tiny_llama))
    base = scorer.score(prompts)
    files = {
        setting: [
            (run_dir / "adapters" / TASK / setting / name).read_bytes()
            for name in ("adapter_config.json", "adapter_model.safetensors")
        ]
        for setting in SETTINGS
    }
    found = {}
    for setting in (*SETTINGS, *SETTINGS):
        scorer.put_adapter(setting, *files[setting])
        scores = scorer.score(prompts)
        assert scores.equals(found.setdefault(setting, scores))
        scorer.use_adapter(False)
        assert scorer.score(prompts).equals(base)
    assert scorer.path == "packed"
    assert scorer.facts()["self_test_difference"] < 1e-4
    assert not found["k0.s0"].equals(found["k2.s0"])
    scorer.use_adapter(True)
    assert scorer.score(prompts).equals(found["k2.s2"])


def test_an_adapter_that_cannot_be_used_is_said(finished: tuple[Path, Path], tmp_path: Path, tiny_llama: Path) -> None:
    config_of_other = LlamaConfig(**{**SMALL, "hidden_size": 64}, intermediate_size=48)
    other = save_random(config_of_other, tmp_path / "other")
    folder = finished[1] / "adapters" / TASK / "k0.s0"
    config, weights = ((folder / name).read_bytes() for name in ("adapter_config.json", "adapter_model.safetensors"))
    slot = AdapterSlot(load_model(ModelSource(str(other))), str(other))
    with pytest.raises(InputError, match=f"adapter small: does not fit the model {other}: "):
        slot.put("small", config, weights)
    with pytest.raises(InputError, match=r"adapter cut: is damaged .*; delete its folder and train it again"):
        slot.put("cut", config, weights[:-8])
    scorer = LabelScorer.load(str(tiny_llama), adapter=str(folder))
    with pytest.raises(InputError, match="was loaded with an adapter"):
        scorer.put_adapter("second", config, weights)
    with pytest.raises(InputError, match="no adapter was put on the model"):
        scorer.use_adapter(True)
