"""A study of trained readers as a run: trained in order, measured, resumed, refused; all stages are real."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from typer.testing import CliRunner

from biaseval.cli import app
from biaseval.errors import BiasevalError, InputError
from biaseval.execute import groups
from biaseval.models import ModelSource, load_extractive_model, load_reader_tokenizer
from biaseval.qa_models import ExtractiveReader, WindowSettings, reader_inputs
from biaseval.report.qa_training import training_charts
from biaseval.runs import describe, run_spec, run_status, train_qa
from biaseval.runs.commands import claimed_run
from biaseval.runs.status import UnderWay
from biaseval.spec import QaBiasSpec
from biaseval.store import Run
from biaseval.training.questions import Questions, answer_logits
from tests.inprocess import in_this_process
from tests.qa_training_pipeline.disturbances import DyingSaying, KilledError, logits_file, written
from tests.smallstudy import MAX_TOKENS, NAMES, load, refused, rows, trained, weights, write_spec
from tests.test_pipelines import run_beside

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, bert: Path) -> tuple[Path, Path]:
    """Return (spec file, run directory) of an undisturbed study."""
    with in_this_process():
        return run_beside(write_spec(tmp_path_factory.mktemp("finished"), bert))


# A whole study


def test_a_study_trains_every_reader_and_measures_all_but_bias_models(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    readers = rows(run_dir, "from trained_models order by number")
    assert [row["model"] for row in readers] == NAMES
    assert {row["standard"] for row in readers[2:]} == {"bert"}
    assert [row["bias"] for row in readers] == [None, *["ans_pos"] * 5]
    assert {row["steps"] for row in readers} == {6}
    assert all(row["problem"] is None and row["best_step"] in (2, 5) for row in readers)
    steps = rows(run_dir, "select model, list(step order by step) as steps from training group by all")
    assert {row["model"]: row["steps"] for row in steps} == {name: [*range(6)] for name in NAMES}
    answers = rows(run_dir, "select model, dataset, count(*) as n from qa_predictions group by all order by all")
    measured = sorted(name for name in NAMES if "bias_model" not in name)
    assert answers == [
        {"model": name, "dataset": dataset, "n": n}
        for name in measured
        for dataset, n in (("others", 12), ("plain", 40))
    ]
    assert [row["model"] for row in rows(run_dir, "from qa_models order by number")] == [NAMES[0], *NAMES[2:]]
    marts = ("qa_debiasing", "qa_out_of_distribution", "qa_bias_models", "qa_debiasing_correlation")
    assert [rows(run_dir, f"select count(*) as n from {mart}")[0]["n"] for mart in marts] == [5 * 2 * 2, 5 * 2, 1, 10]
    assert run_status(str(run_dir)).is_complete
    assert not list((run_dir / "checkpoints").rglob("*.safetensors"))
    assert "bert+learned_mixin" in (run_dir / "report.html").read_text()
    [groups] = [one for one in training_charts(partial(rows, run_dir)) if one.name == "debiasing_groups_0_bert-plain"]
    sql = "from qa_bias_by_heuristic where dataset = 'plain' and lower_exact_match is not null"
    ends = [row[f"{side}_exact_match"] for row in rows(run_dir, sql) for side in ("lower", "higher")]
    assert sorted(dot["x"] for dot in groups.spec["data"]["values"]) == sorted(ends)


def test_readers_are_asked_on_the_way_and_the_best_weights_are_kept(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    found = rows(run_dir, "select model, step, list(dataset order by dataset) as sets from evaluations group by all")
    for row in found:
        expected = ["check (biased)", "check (other)"] if "bias_model" in row["model"] else ["check", "others", "plain"]
        assert row["sets"] == expected
        assert row["step"] in (2, 5)
    assert len(found) == 2 * len(NAMES)
    best = rows(run_dir, "select model, best_step, arg_min(step, (loss, step)) as step from evaluations "
                         "join trained_models using (model) where dataset = 'check' group by all")  # fmt: skip
    assert all(row["best_step"] == row["step"] for row in best)
    [bias_model] = rows(run_dir, "select best_step from trained_models where method = 'bias_model'")
    differences = rows(
        run_dir,
        "select step, sum(if(dataset = 'check (biased)', f1, -f1)) as difference from evaluations "
        "where model = 'bert+bias_model' group by all order by difference desc, step",
    )
    assert bias_model["best_step"] == differences[0]["step"]


def test_answers_and_evaluations_are_those_of_the_saved_reader(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    [reader] = rows(run_dir, "from trained_models where model = 'bert+learned_mixin'")
    windows = WindowSettings(MAX_TOKENS, 24)
    alone = ExtractiveReader.load(ModelSource(str(run_dir / reader["path"])), settings=windows)
    questions = Run.open(str(run_dir)).read_table("qa_examples")
    plain = questions.filter(pc.equal(questions["dataset"], "plain"))
    expected = dict(zip(plain["example_id"].to_pylist(), alone.read(plain)["prediction"].to_pylist(), strict=True))
    found = rows(run_dir, "from qa_predictions where model = 'bert+learned_mixin' and dataset = 'plain'")
    assert {row["example_id"]: row["prediction"] for row in found} == expected
    [asked] = rows(run_dir, "from evaluations where model = 'bert+learned_mixin' and dataset = 'plain' "
                            f"and step = {reader['best_step']}")  # fmt: skip
    assert asked["f1"] == pytest.approx(np.mean([row["f1"] for row in found]), abs=1e-6)
    assert asked["exact_match"] == pytest.approx(np.mean([row["exact_match"] for row in found]), abs=1e-6)


def test_guides_are_the_saved_models_read_once(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    run = Run.open(str(run_dir))
    features = run.read_table("qa_features")
    guides = run.read_table("qa_guide_logits")
    assert guides["guide"].unique().to_pylist() == ["bert+bias_model", "bert"]
    for guide in ("bert+bias_model", "bert"):
        own = guides.filter(pc.equal(guides["guide"], guide))
        assert own.select(["example_id", "window"]).equals(features.select(["example_id", "window"]))
        [reader] = rows(run_dir, f"from trained_models where model = '{guide}'")
        source = ModelSource(str(run_dir / reader["path"]))
        model, tokenizer = load_extractive_model(source), load_reader_tokenizer(source)
        shown = Questions(features, reader_inputs(model, tokenizer), tokenizer.pad_token_id or 0)
        for row in (0, features.num_rows - 1):
            with torch.no_grad():
                alone = answer_logits(model, shown.batch([row]), model.device)[:, 0].numpy()
            stored = [own[name][row].as_py() for name in ("start_logits", "end_logits")]
            np.testing.assert_allclose(stored, alone, atol=1e-5)


def test_a_bias_model_learns_from_biased_questions_alone(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    [segment] = rows(run_dir, "from qa_segments")
    values = rows(run_dir, "from qa_training_attributes where role = 'train' and heuristic = 'ans_pos'")
    assert segment["n_lower"] == sum(row["value"] <= 0 for row in values)
    assert segment["n_lower"] + segment["n_higher"] == 48
    assert segment["source"] == "given"
    assert segment["judged_by"] == "bert"
    assert segment["biased_segment"] == ("lower" if segment["lower_high"] > segment["higher_high"] else "higher")
    biased = {row["example_id"] for row in values if (row["value"] <= 0) == (segment["biased_segment"] == "lower")}
    assert len(biased) == segment["n_biased"]
    features = rows(run_dir, "select example_id, count(*) as n from qa_features group by all")
    own = {row["example_id"]: row["n"] for row in features}
    n_windows = {row["method"]: row["n_windows"] for row in rows(run_dir, "from trained_models")}
    assert n_windows["bias_model"] == sum(own[name] for name in biased)
    assert n_windows["standard"] == n_windows["learned_mixin"] == sum(own.values()) > 2 * 48
    smaller = {row["example_id"] for row in values if (row["value"] <= 0) == (segment["n_lower"] < segment["n_higher"])}
    drawn = n_windows["resample"] - sum(own.values())
    missing = abs(segment["n_lower"] - segment["n_higher"])
    assert missing * min(own[name] for name in smaller) <= drawn <= missing * max(own[name] for name in smaller)


def test_a_plan_says_what_a_study_costs(finished: tuple[Path, Path]) -> None:
    spec, run_dir = finished
    plan = describe(load(spec))
    lines = dict(plan.training_lines)
    assert lines["questions, biased (train)"] == "48"
    [counted] = rows(run_dir, "select count(*) as n, sum(len(token_ids))::bigint as tokens, "
                     "count_if(not has_answer) as n_without from qa_features")  # fmt: skip
    [windows] = rows(run_dir, "from qa_training_windows")
    assert (windows["n_questions"], windows["n_windows"], windows["n_tokens"]) == (48, counted["n"], counted["tokens"])
    assert windows["n_unanswerable"] == 0 < windows["n_without"] == counted["n_without"] < windows["n_windows"]
    assert lines["windows, bert on biased"] == f"{counted['n']:,} ({counted['tokens']:,} tokens)"
    assert lines["standard"] == "1 to train, at most 6 steps each, 6 together"
    assert lines["bias models"] == "1 to train, at most 6 steps each, 6 together"
    assert lines["passes for logits of guides"] == "2"
    assert [shape.name for shape in plan.training.shapes] == ["bert"]
    assert plan.facts["training"]["readers"][-1]["name"] == "bert+product_of_experts"
    # Passes of a reader of n parameters: 2 n a token. Two evaluations, of 24 (and 52 other) questions; 52 answered.
    per_question = 2 * plan.training.shapes[0].n_parameters * counted["tokens"] / 48
    found = plan.facts["training"]["flops"]
    assert found["evaluations"] == pytest.approx(per_question * 2 * (5 * 76 + 24), rel=1e-6)
    assert found["answers"] == pytest.approx(per_question * 5 * 52, rel=1e-6)
    assert found["guides"] == pytest.approx(per_question * 48 * 2, rel=1e-6)


# Resuming


@pytest.mark.parametrize("n_steps", [5, 20])
def test_a_killed_study_goes_on_and_becomes_the_same(
    n_steps: int, finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: None
) -> None:
    """Behind 5 steps the standard reader is under way, behind 20 two others are complete and one is."""
    spec, run_dir = finished
    behind = iter(range(n_steps, -1000, -1))
    heard: list[UnderWay] = []
    with monkeypatch.context() as patch:
        patch.setattr(groups, "_Saying", lambda *of_unit: DyingSaying(*of_unit, behind, heard))
        with pytest.raises(KilledError):
            run_spec(load(spec), str(tmp_path / "run"))
    [under_way] = heard
    assert under_way.model == ["bert", "bert+bias_model", "bert+resample", "bert+learned_mixin"][n_steps // 6]
    assert 0 < under_way.n_steps <= n_steps % 6 + 1
    assert under_way.n_planned == 6
    status = run_status(str(tmp_path / "run"))
    assert not status.is_complete
    assert list((tmp_path / "run" / "checkpoints").rglob("checkpoint.json"))
    complete = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("trained_models/*.parquet")}
    assert len(complete) == n_steps // 6
    run_spec(load(spec), str(tmp_path / "run"), page=False)
    for name in NAMES:
        found = weights(tmp_path / "run", name)
        assert all(torch.equal(found[key], value) for key, value in weights(run_dir, name).items())
    for name, changed in complete.items():
        assert (tmp_path / "run" / "trained_models" / name).stat().st_mtime_ns == changed
    for mart in ("qa_debiasing", "qa_out_of_distribution", "qa_bias_models"):
        assert rows(tmp_path / "run", f"from {mart} order by all") == rows(run_dir, f"from {mart} order by all")


@pytest.mark.parametrize(("does", "what"), [
    ("write_bytes", "models/00000-bert/config.json"), ("write_part", "trained_models"), ("delete", "checkpoints/00000"),
    ("write_bytes", ".train/outcomes/00000.json"),
])  # fmt: skip
def test_a_reader_that_dies_at_its_end_is_not_lost(
    does: str, what: str, finished: tuple[Path, Path], bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    here: None,
) -> None:  # fmt: skip
    """Before the last file of the model, before its row, before its checkpoints go, before anybody hears of it."""
    _, run_dir = finished
    spec = write_spec(tmp_path, bert, train={"methods": ["standard"], "biases": [], "thresholds": "mikula2024"})
    real = getattr(Run, does)

    def dying(run: Run, name: str, *arguments: Any) -> Any:
        if name == what:
            raise KilledError
        return real(run, name, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Run, does, dying)
        with pytest.raises(KilledError):
            train_qa(load(spec), str(tmp_path / "run"))
    for _ in range(2):
        assert dict(train_qa(load(spec), str(tmp_path / "run")).lines)["readers"].startswith("1 of 1 ")
        assert not (tmp_path / "run" / "checkpoints" / "00000").exists()
        found = weights(tmp_path / "run", "bert")
        assert all(torch.equal(found[key], value) for key, value in weights(run_dir, "bert").items())


def test_training_alone_is_what_a_run_goes_on_from(
    finished: tuple[Path, Path], tmp_path: Path, bert: Path, here: None
) -> None:
    changes = {"methods": ["standard", "resample"], "thresholds": "mikula2024"}
    spec = write_spec(tmp_path, bert, train=changes)
    done = CliRunner().invoke(app, ["train", "qa", str(spec), "--run-dir", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "2 of 2 (2 trained now)" in done.output
    assert "12" in next(line for line in done.output.splitlines() if line.startswith("steps"))
    assert not (tmp_path / "run" / "qa_predictions").exists()
    with pytest.raises(BiasevalError, match="is trained, and nothing is measured yet; biaseval run goes on with it"):
        rows(tmp_path / "run", "from trained_models")
    before = weights(tmp_path / "run", "bert")
    run_spec(load(spec), str(tmp_path / "run"), page=False)
    found = weights(tmp_path / "run", "bert")
    assert all(torch.equal(value, found[key]) for key, value in before.items())
    [segment] = rows(tmp_path / "run", "from qa_segments")
    assert (segment["source"], segment["judged_by"], segment["biased_segment"]) == ("published", None, "lower")
    summary = dict(train_qa(load(spec), str(tmp_path / "run")).lines)
    assert summary == {"readers": "2 of 2 (0 trained now)", "steps": "12"}


def test_what_is_lost_is_made_again_and_weights_only_if_something_needs_them(
    finished: tuple[Path, Path], tmp_path: Path, here: None
) -> None:
    spec, run_dir = finished
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy)
    folders = {name: row["path"] for name, row in trained(copy).items()}
    row_files = {name: f"trained_models/part-{row['number']:05d}.parquet" for name, row in trained(copy).items()}
    logits = {
        pq.read_table(path)["guide"][0].as_py(): f"qa_guide_logits/{path.name}"
        for path in sorted((copy / "qa_guide_logits").iterdir())
    }
    assert set(logits) == {"bert", "bert+bias_model"}

    def made_again(*lost: str) -> set[str]:
        """Lose some files, and return what a resumed run writes of what is trained and answered."""
        for name in lost:
            shutil.rmtree(copy / name) if (copy / name).is_dir() else (copy / name).unlink()
        before = written(copy)
        run_spec(load(spec), str(copy), page=False)
        assert run_status(str(copy)).is_complete
        return {name for name, time in written(copy).items() if time != before.get(name)}

    shutil.rmtree(copy / "models")
    assert run_status(str(copy)).is_complete
    assert made_again() == set()
    assert not run_status(str(copy)).under_way
    of_bias_model = {name for name in written(run_dir) if name.startswith(f"{folders['bert+bias_model']}/")}
    assert made_again(logits["bert+bias_model"]) == {
        *of_bias_model, row_files["bert+bias_model"], logits["bert+bias_model"],
    }  # fmt: skip
    of_resample = {name for name in written(run_dir) if name.startswith(f"{folders['bert+resample']}/")}
    assert made_again(row_files["bert+resample"]) == {*of_resample, row_files["bert+resample"]}
    for name in ("bert+bias_model", "bert+resample"):
        found = weights(copy, name)
        assert all(torch.equal(found[key], value) for key, value in weights(run_dir, name).items())
    [segments] = (f"qa_segments/{path.name}" for path in (copy / "qa_segments").iterdir())
    assert made_again(segments) == {segments}
    assert rows(copy, "from qa_segments order by all") == rows(run_dir, "from qa_segments order by all")
    assert rows(copy, "from qa_debiasing order by all") == rows(run_dir, "from qa_debiasing order by all")


# Logits of a file


def test_bias_may_come_from_a_file_and_trains_the_same(
    finished: tuple[Path, Path], bert: Path, tmp_path: Path, here: None
) -> None:
    _, run_dir = finished
    file = logits_file(tmp_path / "bias.parquet", run_dir)
    changes = {"methods": ["standard", "product_of_experts"], "bias_model": {"predictions": str(file)}}
    spec = write_spec(tmp_path, bert, train=changes)
    train_qa(load(spec), str(tmp_path / "run"))
    found = weights(tmp_path / "run", "bert+product_of_experts")
    for key, value in weights(run_dir, "bert+product_of_experts").items():
        torch.testing.assert_close(found[key], value)


def test_logits_of_a_file_must_be_those_of_all_windows(
    finished: tuple[Path, Path], bert: Path, tmp_path: Path, here: None
) -> None:
    _, run_dir = finished

    def spec_of(file: Path) -> Path:
        changes = {"methods": ["standard", "product_of_experts"], "bias_model": {"predictions": str(file)}}
        return write_spec(tmp_path, bert, train=changes)

    def started(change: Callable[[list[float]], Any], kind: pa.DataType) -> Callable[[pa.Table], pa.Table]:
        """Return what changes the logits of starts."""
        return lambda table: table.set_column(
            2, "start_logits", pa.array([change(own) for own in table["start_logits"].to_pylist()], kind)
        )

    names, logits = pa.array(["planted-00001", "planted-00007"]), pa.list_(pa.float32())
    changes: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
        "a": (lambda table: table.filter(pc.invert(pc.is_in(table["example_id"], names))),
            "has no logits of 2 of 48 training questions for ans_pos (first: planted-00001)"),
        "b": (started(lambda own: own[:-1], logits), "give one for each"),
        "c": (started(lambda own: [float("nan")] * len(own), logits), "is not finite"),
        "d": (lambda table: table.filter(pc.less(table["window"], 1)),
            "(first: window 1 of question planted-00001); add them"),
        "e": (started(lambda own: 1.0, pa.float64()), "has no such column start_logits"),
    }  # fmt: skip
    for name, (change, said) in changes.items():
        file = logits_file(tmp_path / f"{name}.parquet", run_dir, change)
        assert said in refused(spec_of(file), tmp_path / name)
    (tmp_path / "f.parquet").write_text("no Parquet")
    assert "is no Parquet file" in refused(spec_of(tmp_path / "f.parquet"), tmp_path / "f")


# Other settings


def test_settings_of_a_study_cannot_change_behind_it(finished: tuple[Path, Path], tmp_path: Path, here: None) -> None:
    spec, run_dir = finished
    own = load(spec)
    strength = {"planted": {"shortcut": "ans_pos", "strength": 0.7, "questions": 48}}
    other = yaml.safe_load(spec.read_text())
    other["train"]["data"]["biased"] = strength
    other["train"]["learned_mixin"]["bias_scale"] = 0.5
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(other))
    with pytest.raises(InputError) as caught:
        run_spec(load(tmp_path / "spec.yaml"), str(run_dir))
    assert "train.data.biased.planted.strength: the run has 0.6, the spec 0.7" in str(caught.value)
    assert "train.learned_mixin.bias_scale: the run has 0.2, the spec 0.5" in str(caught.value)
    cheaper = own.model_copy(update={"train": own.train.model_copy(update={"checkpoint_steps": 4})})
    with claimed_run(cheaper, str(run_dir)):
        pass
    with pytest.raises(InputError, match=r"train\.workers"):
        run_spec(replace_train(own, workers=2, accumulation=2, batch_size=4), str(run_dir))


def replace_train(spec: QaBiasSpec, **changes: Any) -> QaBiasSpec:
    return spec.model_copy(update={"train": spec.train.model_copy(update=changes)})
