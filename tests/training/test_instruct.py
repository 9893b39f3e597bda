"""Instruction tuning on a real Ray: planned, made, killed and gone on with."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
import yaml
from pyarrow.fs import LocalFileSystem, copy_files
from safetensors.torch import load_file

from biaseval.analysis import query
from biaseval.cli import app
from biaseval.errors import InputError
from biaseval.models import ModelSource, load_tokenizer
from biaseval.pipelines.kind import Trained
from biaseval.runs import describe, run_spec, run_status, train_instruct
from biaseval.runs.commands import claimed_run
from biaseval.scoring import LabelScorer
from biaseval.spec import InstructSpec, load_spec
from biaseval.store import Run
from biaseval.tables import CONVERSATIONS, TRAINING
from biaseval.training.conversations import read_conversations
from biaseval.training.loop import training_steps
from biaseval.training.objectives import Conversations
from biaseval.training.preparation import load_base, prepared
from biaseval.training.recipe import tuning_recipe
from biaseval.training.rows import MODEL_CONFIG
from biaseval.training.templates import EncodedConversation, encode_conversations
from tests.inprocess import in_this_process
from tests.processes import killed_in_the_end, wait_until
from tests.taskfiles import WORDS
from tests.training.interruptions import MARKER
from tests.training.trainingtexts import CPU

TRAINING_SECTION = {
    "learning_rate": 2e-3, "epochs": 6, "accumulation": 4, "precision": "float32", "gradient_checkpointing": False,
    "checkpoint_steps": 4,
}  # fmt: skip
LORA = {"r": 4, "alpha": 8}
N_STEPS = 24


def write_spec(folder: Path, model: Path, lora: dict[str, Any] | None = None, **training: Any) -> Path:
    folder.mkdir(exist_ok=True)
    rows = []
    for number in range(18):
        said = [f"{WORDS[(number + place) % len(WORDS)]} {WORDS[(3 * number) % len(WORDS)]}" for place in range(4)]
        turns = said[: 2 if number % 3 else 4]
        roles = ("user", "assistant") * 2
        rows.append({"messages": [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]})
    (folder / "chat.jsonl").write_text("\n".join(map(json.dumps, rows)))
    content = {
        "kind": "instruct", "name": "tiny", "model": {"path": str(model)},
        "data": {"path": "chat.jsonl", "held_out": 0.1}, "max_tokens": 128, "lora": lora,
        "training": {**TRAINING_SECTION, **training},
    }  # fmt: skip
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def load(path: Path, *overrides: str) -> InstructSpec:
    return load_spec(path, overrides)


def conversations(spec: InstructSpec, run_dir: Path, role: str) -> list[EncodedConversation]:
    """Return those of a run in tokens, made anew from the file; the run says which are held out."""
    found = read_conversations(spec.data)
    encoded = encode_conversations(
        load_tokenizer(ModelSource(spec.model.path)), found.kept, spec.template, spec.max_tokens
    )
    roles = Run.open(str(run_dir)).read_table("conversations")["role"].to_pylist()
    return [one for own, (_, one) in zip(roles, encoded.kept, strict=True) if own == role]


def undisturbed(spec: InstructSpec, run_dir: Path) -> tuple[dict[str, torch.Tensor], list[float]]:
    """Train without Ray, checkpoints or DeepSpeed; return weights and losses."""
    spec = spec.model_copy(update={"training": spec.training.model_copy(update={"workers": 1, "zero": None})})
    recipe, objective = tuning_recipe(spec), Conversations(conversations(spec, run_dir, "train"), spec.max_tokens)
    base = load_base(recipe, CPU)
    with prepared(base, recipe, objective) as ready:
        losses = [one.loss for one in training_steps(ready.optimization, objective, recipe, base.share)]
    return {name: parameter.detach() for name, parameter in ready.trained.items()}, losses


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float) -> None:
    assert found.keys() == expected.keys()
    assert max((found[name] - value).abs().max().item() for name, value in expected.items()) < tolerance


def losses(run_dir: Path) -> list[float]:
    rows = Run.open(str(run_dir)).read_table("training").to_pylist()
    assert [row["step"] for row in rows] == list(range(N_STEPS))
    return [row["loss"] for row in rows]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, object_store: str) -> tuple[InstructSpec, str]:
    """Return the spec and the directory, in a bucket, of a tuning that was killed when six steps were made."""
    folder = tmp_path_factory.mktemp("killed")
    path, run_dir, marker = write_spec(folder, tiny_llama), f"{object_store}/runs/killed", folder / "marker"
    with claimed_run(load(path), run_dir):
        pass
    code = "from tests.training.interruptions import waiting_command; waiting_command()"
    command = ("train", "instruct", str(path), "--run-dir", run_dir)
    with killed_in_the_end(code, *command, **{MARKER: str(marker)}) as process:
        wait_until(marker.exists, process)
    return load(path), run_dir


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_command_leaves_a_checkpoint_and_is_not_done(killed: tuple[InstructSpec, str]) -> None:
    _, run_dir = killed
    run = Run.open(run_dir)
    assert {name.split("/")[1] for name in run.files("checkpoints")} == {"step-00000004"}
    assert run.files(".train/progress") == {".train/progress/00000.json"}
    status = run_status(run_dir)
    assert (status.kind, status.size, status.is_complete) == ("instruct", N_STEPS, False)
    assert 4 <= status.size_done <= 6


@pytest.fixture(scope="module")
def ended(
    killed: tuple[InstructSpec, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[InstructSpec, Path, Trained]:
    """Return the same, gone on with to its end, and copied from its bucket."""
    spec, run_dir = killed
    with in_this_process(), contextlib.redirect_stderr(io.StringIO()) as said:
        summary = train_instruct(spec, run_dir)
    assert f"resuming: 4 of {N_STEPS} steps are made" in said.getvalue()
    run, copy = Run.open(run_dir), tmp_path_factory.mktemp("ended") / "run"
    copy_files(run.root, str(copy), source_filesystem=run.fs, destination_filesystem=LocalFileSystem())
    return spec, copy, summary


@pytest.mark.ray
@pytest.mark.slow
def test_the_same_command_ends_it_as_if_nothing_were(
    ended: tuple[InstructSpec, Path, Trained], tiny_llama: Path
) -> None:
    """All parameters, the same as without Ray; and the result is a model."""
    spec, run_dir, summary = ended
    lines = dict(summary.lines)
    assert (summary.folder, lines["steps"]) == ("model", f"{N_STEPS} ({N_STEPS - 4} made now)")
    expected, expected_losses = undisturbed(spec, run_dir)
    found = load_file(run_dir / "model" / "model.safetensors")
    assert_same(found, expected, 1e-6)
    assert losses(run_dir) == pytest.approx(expected_losses, rel=1e-6)
    first_loss, last_loss = map(float, lines["loss, first to last step"].split(" to "))
    assert last_loss < 0.9 * first_loss
    assert len(lines["held-out loss, by epoch"].split(", ")) == 6

    run = Run.open(str(run_dir))
    rows = run.read_table("training")
    assert rows.schema == TRAINING.schema
    assert rows["adapter"].null_count == N_STEPS
    assert run.parts("training") == {0}
    stored = run.read_table("conversations")
    assert stored.schema == CONVERSATIONS.schema
    assert stored["role"].to_pylist().count("held_out") == 2
    # No checkpoint, nothing of Ray Train's, no word of progress.
    assert sorted(path.name for path in run_dir.iterdir() if path.name != ".lock") == [
        *("conversations", "digests.json", "environment.json", "logs", "model", "plan.json", "spec.yaml"),
        "training",
    ]
    [sitting] = json.loads((run_dir / "environment.json").read_text())["training"]
    assert list(sitting) == ["first_step", "n_steps", "workers", "zero", "packing", "seconds", "step_seconds"]
    assert list(sitting.values())[:5] == [4, N_STEPS, 1, None, True]
    status = run_status(str(run_dir))
    assert (status.kind, status.size_done, status.size, status.is_complete) == ("instruct", N_STEPS, N_STEPS, True)
    assert query([run_dir], "select count(*) as n from training").to_pylist() == [{"n": N_STEPS}]

    # Scored by model.path, the answers that it was trained on are likelier than before.
    one = stored.to_pylist()[0]
    question, answer = one["turns"][0]["text"], one["turns"][1]["text"]
    prompts = pa.table({"prompt_id": ["p"], "text": [f"User: {question}\n\nAssistant:"], "labels": [[answer]]})
    before, after = (
        sum(LabelScorer.load(str(model)).score(prompts)["token_logprobs"][0].as_py())
        for model in (tiny_llama, run_dir / "model")
    )
    assert after > before


@pytest.mark.ray
@pytest.mark.slow
def test_what_is_tuned_is_not_tuned_again_and_never_by_another_spec(
    ended: tuple[InstructSpec, Path, Trained], capsys: pytest.CaptureFixture[str]
) -> None:
    spec, run_dir, _ = ended
    modified = (run_dir / "model" / MODEL_CONFIG).stat().st_mtime_ns
    again = dict(train_instruct(spec, str(run_dir)).lines)
    assert again["steps"] == f"{N_STEPS} (0 made now)"
    assert len(again["held-out loss, by epoch"].split(", ")) == 6
    assert (run_dir / "model" / MODEL_CONFIG).stat().st_mtime_ns == modified
    assert f"all {N_STEPS} steps are made already" in capsys.readouterr().err
    chat = Path(spec.data.path)
    with pytest.raises(InputError, match=r"belongs to another spec.*\n.*training.epochs: the run has 6, the spec 7"):
        train_instruct(load(chat.parent / "spec.yaml", "training.epochs=7"), str(run_dir))
    kept = chat.read_bytes()
    chat.write_text('{"instruction": "a", "output": "b"}')
    with pytest.raises(InputError, match=r"data.path: the file changed since"):
        train_instruct(spec, str(run_dir))
    chat.write_bytes(kept)


def test_planning_says_what_tuning_reads_and_costs(tmp_path: Path, tiny_llama: Path) -> None:
    path = write_spec(tmp_path, tiny_llama)
    described = describe(load(path))
    plan, cost = described.facts, described.training
    tokenizer = load_tokenizer(ModelSource(str(tiny_llama)))
    kept = encode_conversations(tokenizer, read_conversations(load(path).data).kept, "plain", 128).kept
    lengths = [len(one.token_ids) for _, one in kept]
    assert (plan["n_conversations"], plan["n_held_out"], plan["n_steps"]) == (16, 2, N_STEPS)
    assert plan["n_tokens"] < sum(lengths)
    assert max(lengths) >= plan["longest"] > plan["n_answer_tokens"] / 16
    assert plan["n_rows"] < 16
    assert describe(load(path, "packing=false")).facts["n_rows"] == 16
    assert describe(load(path, "training.max_steps=3")).facts["n_steps"] == 3
    assert describe(load(path, "max_tokens=40")).notes
    assert describe(load(path, "lora.r=4")).training.n_trainable[0] < cost.n_trainable[0]


def test_the_command_line_prints_the_plan(
    tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_spec(tmp_path, tiny_llama)
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}')
    settings = ["--set", "training.zero=3", "--set", "training.deepspeed_config=ds.json"]
    app(["plan", str(path), *settings], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "conversations              16 (2 more held out)" in printed
    assert f"optimizer steps            {N_STEPS}" in printed
    assert "offloaded" in printed
    assert "40B (Falcon)" in printed
    # A family that packed rows would be wrong on is said to be trained without them.
    monkeypatch.setattr("biaseval.training.packing.TESTED_FAMILIES", set())
    app(["plan", str(path)], standalone_mode=False)
    printed = capsys.readouterr().out
    assert "rows of an epoch           16, one conversation each" in printed
    assert "note: rows are not packed: llama is not known to be right on packed rows" in printed


def test_bad_input_is_refused_before_anything_is_written(tmp_path: Path, tiny_llama: Path) -> None:
    path = write_spec(tmp_path, tiny_llama)
    (tmp_path / "ds.json").write_text('{"gradient_clipping": 4}')
    (tmp_path / "nvme.json").write_text('{"zero_optimization": {"offload_optimizer": {"device": "nvme"}}}')
    for overrides, expected in (
        (["max_tokens=4096"], "max_tokens 4096: .* takes 2048 tokens"),
        (["template=chat"], "has no chat template; use template: plain"),
        (["data.held_out=0.99"], "of 18 trees or rows 18 would be held out"),
        (["data.path=none.jsonl"], "none.jsonl: cannot be read"),
        (["lora.targets=[c_attn]"], "lora.targets: c_attn: no such linear layer"),
        (["training.zero=2", "training.deepspeed_config=ds.json"], "contradicts training.max_grad_norm 1.0"),
        (["training.zero=2", "training.deepspeed_config=nvme.json"], "use the device cpu"),
        (["model.adapter=./a"], "model.adapter: tuning begins with a bare model"),
        (["model.quantization=8bit"], "model.quantization: a quantized model is not trained"),
        (["training.learning_rate=null"], "training.learning_rate"),
        (["training.workers=3"], "3 workers cannot share accumulation 4 evenly"),
    ):
        with pytest.raises(InputError, match=expected):
            train_instruct(load(path, *overrides), str(tmp_path / "run"))
        assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="kind: instruct is a training, not a measurement"):
        run_spec(load(path), str(tmp_path / "run"))
