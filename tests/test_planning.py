"""Planning: costs, the smallest bias found, and what is read once."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.analysis.sql_files import connect
from biaseval.errors import InputError
from biaseval.execute.cluster import Cluster
from biaseval.execute.resources import Resources
from biaseval.pipelines import planning
from biaseval.pipelines.cost_lines import cost_lines, costs, idle_budget, reference_hours
from biaseval.pipelines.qa.plan import ModelPlan, QuestionsPlan, describe_questions
from biaseval.runs import describe
from biaseval.runs.commands import claimed_run
from biaseval.spec import ExecutionSpec, LabelBiasSpec, QaBiasSpec, load_spec
from biaseval.store import Run
from tests.buckets import free_port
from tests.growth.runs import own_spec
from tests.label_bias.test_own_data import reviews, write_csv
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.taskfiles import write_task
from tests.validation.test_smallest_biases import smallest

FLOPS = 10 * 0.4 * 989e12 * 3600
"""Ten hours of an H200 at 40 % of its peak."""


def test_hours_and_costs_follow_from_peak_rates_and_prices() -> None:
    found = costs(FLOPS, ExecutionSpec(prices={"H200": 4.5, "L4": 0.8}))
    assert found["H200"] == pytest.approx({"gpu_hours": 10, "cost": 45})
    assert found["L4"] == pytest.approx({"gpu_hours": 10 * 989 / 121, "cost": 8 * 989 / 121})
    assert costs(FLOPS, ExecutionSpec()) == {}


def test_a_plan_says_them_a_line_an_accelerator() -> None:
    lines = dict(cost_lines("FLOPs", int(FLOPS), ExecutionSpec(prices={"H200": 4.5}, actors=4, gpus_per_actor=2)))
    assert lines["on H200"] == (
        "10 GPU-hours at 40% of its peak, 1.25 hours with 8 of them: 45 at 4.5 an hour, in the unit of "
        "execution.prices; each has 139 GiB"
    )
    assert lines["GPU-hours at 100 TFLOP/s"] == f"{reference_hours(FLOPS):.3g}, a rate to compare plans by"
    assert reference_hours(3.6e17) == 1
    assert list(cost_lines("FLOPs", 1)) == [("FLOPs", "1"), ("GPU-hours at 100 TFLOP/s", "under 0.01")]


def test_what_readers_cost_is_said_too() -> None:
    models = [ModelPlan("reader", 900, 10**9, 1000, 5 * 10**6), ModelPlan("file", 900, None, None, None)]
    plan = QuestionsPlan({"dev": 900}, models, [])
    content = """
        {kind: qa_bias, name: x, datasets: {in_distribution: {dev: dev.json}}, execution: {prices: {H100: 2}},
         models: [{name: reader, path: reader}, {name: file, predictions: {dev: file.json}}]}
    """
    hours = 1e16 / (0.4 * 989e12 * 3600)  # two operations a parameter and token
    found = describe_questions(QaBiasSpec.model_validate(yaml.safe_load(content)), plan, None)
    assert found.facts["costs"]["H100"] == pytest.approx({"gpu_hours": hours, "cost": 2 * hours})
    assert dict(found.lines)["on H100"].endswith("at 2 an hour, in the unit of execution.prices; each has 79 GiB")
    assert found.facts["gpu_hours_at_100_tflops"] == pytest.approx(1e16 / 3.6e17)
    idle = idle_budget(ExecutionSpec(max_gpu_hours=2, gpus_per_actor=0))
    assert idle == ["note: no GPU is used: execution.max_gpu_hours counts nothing"]
    assert idle_budget(ExecutionSpec(max_gpu_hours=2)) == idle_budget(ExecutionSpec(gpus_per_actor=0)) == []


def test_a_plan_says_the_smallest_bias_of_its_rows_and_what_it_assumes(tmp_path: Path, tiny_llama: Path) -> None:
    write_csv(tmp_path / "reviews.csv", reviews(200))
    write_csv(tmp_path / "test.csv", reviews(300, "other"))
    described = describe(own_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}))
    found, counts = described.facts["smallest_bias"], [150, 75, 75]
    names = ("n_test_rows", "n_fewest_rows", "n_gold_labels")
    assert [described.facts[name] for name in names] == [300, 75, 3]
    accuracy = 1 / 3 + 0.4 * (1 - 1 / 3)
    rsd, bias_score = found["rsd"], found["bias_score"]
    assert (found["accuracy"], rsd) == pytest.approx((accuracy, smallest(counts, accuracy)))
    assert 0.03 < bias_score < 0.3
    lines = list(described.lines)
    place = [name for name, _ in lines].index("smallest bias found")
    assert lines[place][1] == f"RSD {rsd:.3f}, BiasScore {bias_score:.3f}, in four of five such runs"
    assert f"at an accuracy of {accuracy:.2f} (40% of the way from chance to 1)" in lines[place + 1][1]
    # Few rows show none.
    write_csv(tmp_path / "reviews.csv", reviews(30))
    write_csv(tmp_path / "test.csv", reviews(12, "other"))
    few = describe(own_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}))
    assert few.facts["smallest_bias"]["rsd"] is None
    assert dict(few.lines)["smallest bias found"].startswith("RSD none, ")


def test_a_plan_of_majority_bias_says_the_smallest_effect_of_proportions(tmp_path: Path, tiny_llama: Path) -> None:
    for name, each in (("train", 10), ("test", 5)):
        write_jsonl(tmp_path / f"{name}.jsonl", boolq_rows(name, each, each))
    model, predict = {"path": str(tiny_llama)}, ["likelihood", "generate"]

    def planned(**changes: object) -> tuple[float | None, str]:
        described = describe(boolq_spec(tmp_path, model=model, predict=predict, **changes))
        return described.facts["smallest_bias"]["sd_f1_corrected"], dict(described.lines)["smallest bias found"]

    smallest, line = planned(calibration=["cc", "dc"], seeds=[0, 1, 2, 3, 4])
    with closing(connect([])) as connection:  # with and without instruction; likelihood, cc, dc and generate
        [(expected,)] = connection.execute("select visible_settings(0.01, 11, 5, 8)").fetchall()
    assert smallest == pytest.approx(expected)
    assert line == f"a standard deviation of weighted F1 over settings of {expected:.3f}"
    assert (planned()[0] or 0) > 1.5 * expected
    assert planned(seeds=[0]) == (None, "none: one seed cannot separate proportions from the draw of demonstrations")
    few = planned(proportions=[{"True": 0.5, "False": 0.5}, {"True": 1, "False": 0}])
    assert few == (None, "hardly any: so few settings and seeds have too few orders for the test")


TABLES = ("tasks", "splits", "contexts", "prompts", "training_rows")


SPEC = """
kind: label_bias
name: tiny
prompt: {n_demos: [0, 2], demo_sets: 2}
calibration: [cc, dc, looc]
"""


def _spec(folder: Path, model: Path, **changes: Any) -> LabelBiasSpec:
    for number in range(9501, 9506):
        labels = ("no", "yes") if number % 2 else ("no", "not sure", "yes")
        write_task(folder / "tasks", f"task{number}_made", n_instances=130 + number % 7, number=number, labels=labels)
    names = [path.stem for path in sorted((folder / "tasks").iterdir())]
    tasks = {"path": "tasks", "include": names, "min_instances": 130, "max_eval": 30, **changes.pop("tasks", {})}
    content = {**yaml.safe_load(SPEC), "model": {"path": str(model)}, "tasks": tasks, **changes}
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    spec = load_spec(path)
    assert isinstance(spec, LabelBiasSpec)
    return spec


def _plan(spec: LabelBiasSpec, folder: Path) -> dict[str, bytes]:
    """Return the files of a new plan, by their names."""
    with claimed_run(spec, str(folder)) as run:
        names = [name for table in TABLES for name in run.files(table)]
        return {name: run.read_bytes(name) for name in [*names, "plan.json"]}


def _on_ray(patch: pytest.MonkeyPatch, n_workers: int) -> None:
    machine = Resources([{"CPU": 4.0}], is_local=True, n_cores=n_workers)
    patch.setattr(Cluster, "resources", lambda _: machine)
    patch.setattr(planning, "MUCH", 1)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("sampling", ["per_task", "reif2024"])
def test_a_plan_is_the_same_wherever_it_is_made(
    sampling: str, tmp_path: Path, tiny_llama: Path, ray_cluster: None
) -> None:
    lora = {"n_examples": 4} if sampling == "per_task" else None
    spec = _spec(tmp_path, tiny_llama, tasks={"sampling": sampling}, lora=lora, execution={"part_rows": 60})
    here = _plan(spec, tmp_path / "here")
    assert len([name for name in here if name.startswith("prompts/")]) > 5
    with pytest.MonkeyPatch.context() as patch:
        _on_ray(patch, n_workers=2)
        assert _plan(spec, tmp_path / "ray") == here


@pytest.mark.ray
def test_all_that_is_wrong_comes_in_one_message_from_ray_too(
    tmp_path: Path, tiny_llama: Path, ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = _spec(tmp_path, tiny_llama, prompt={"n_demos": [0], "max_tokens": 100_000}, calibration=[])
    for number in (9502, 9504):
        too_long = {"Definition": ["amber river " * 2_500]}
        write_task(tmp_path / "tasks", f"task{number}_made", n_instances=140, number=number, changes=too_long)
    messages = []
    for place in ("here", "ray"):
        if place == "ray":
            _on_ray(monkeypatch, 2)
        with pytest.raises(InputError) as caught:
            _plan(spec, tmp_path / place)
        messages.append(str(caught.value))
        assert not any(Run.open(str(tmp_path / place)).files(name) for name in (*TABLES, "plan.json"))
    assert messages[0] == messages[1]
    assert "task9502_made" in messages[0]
    assert "task9504_made" in messages[0]


def test_a_plan_killed_half_way_is_made_anew(tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = _spec(tmp_path, tiny_llama)
    expected = _plan(spec, tmp_path / "whole")
    write = planning.Files.write

    def killed(files: planning.Files, run: Run, number: int, first: int) -> None:
        if number == 3:
            raise KeyboardInterrupt
        write(files, run, number, first)

    with monkeypatch.context() as patch:
        patch.setattr(planning.Files, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            _plan(spec, tmp_path / "killed")
    left = Run.open(str(tmp_path / "killed"))
    assert left.parts("contexts") == {0, 1, 2}
    assert not left.has("plan.json")
    assert _plan(spec, tmp_path / "killed") == expected


def test_a_plan_does_without_weights_and_a_run_begins_with_all_of_them(tmp_path: Path, tiny_llama: Path) -> None:
    model = Path(shutil.copytree(tiny_llama, tmp_path / "model"))
    spec = _spec(tmp_path, model)
    whole = describe(spec)
    (model / "model.safetensors").unlink()
    found = describe(spec)
    assert (found.lines, found.facts) == (whole.lines, whole.facts)
    problem = f"{model}: model directory without weights; model.safetensors or its shards must be in it"
    assert [*found.notes] == [*whole.notes, f"note: a run begins when the weights are there: {problem}"]
    with pytest.raises(InputError) as caught, claimed_run(spec, str(tmp_path / "run")):
        pass
    assert str(caught.value) == problem
    assert not (tmp_path / "run").exists()


def test_a_run_without_its_ray_writes_nothing(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_port()}")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("biaseval.execute.address._PATIENCE_S", 0.5)
    with (
        pytest.raises(InputError, match=r"^no Ray answers at"),
        claimed_run(_spec(tmp_path, tiny_llama), str(tmp_path / "run")),
    ):
        pass
    assert not (tmp_path / "run").exists()
