"""The runs that are disturbed: a tiny one of each kind, with the command that makes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from tests.majority_bias.datafiles import boolq_rows, write_jsonl
from tests.tinymodels import make_llama

RUN = "@RUN@"
"""Stands in a command for the directory of the run."""

_LORA = {"precision": "float32", "r": 2, "epochs": 1, "learning_rate": 5e-3, "gradient_checkpointing": False}


@dataclass(frozen=True)
class Kind:
    """A run that is disturbed."""

    write: Callable[[Path], dict[str, Any]]
    """Writes its inputs into a folder, and returns its spec."""
    command: tuple[str, ...] = ("run",)
    """The arguments of ``biaseval`` before those that every command has."""
    begins_as: str | None = None
    """The kind whose finished run this one begins with, if any."""
    sets: tuple[str, ...] = ()
    """Changes of keys, for a command that takes no spec."""
    on_ray: tuple[str, ...] = ()
    """Changes that have little work run on Ray, too."""

    def arguments(self, folder: Path, *, is_on_ray: bool = False) -> list[str]:
        """Return the arguments of ``biaseval``, in which `RUN` is still the run's directory."""
        place = [RUN] if self.sets else [str(folder / "spec.yaml"), "--run-dir", RUN]
        sets = [*self.sets, *(self.on_ray if is_on_ray else ())]
        return [*self.command, *place, *(word for one in sets for word in ("--set", one))]


def of_tests(name: str) -> Any:
    """Return a helper of other tests by ``module:name``; those of test modules have looser types than this suite."""
    return resolve_name(f"tests.{name}")


def prepare(name: str, folder: Path) -> Path:
    """Write the inputs and the spec of a kind into a folder below ``folder``, once; return that folder."""
    own = folder / name
    if not (own / "spec.yaml").exists():
        own.mkdir(parents=True, exist_ok=True)
        spec = KINDS[name].write(own)
        (own / "spec.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return own


def _labels(folder: Path, n_rows: int = 22, **changes: Any) -> dict[str, Any]:
    model = make_llama(folder / "model")
    data = "label_bias.test_own_data"
    of_tests(f"{data}:write_csv")(folder / "reviews.csv", of_tests(f"{data}:reviews")(n_rows))
    return {
        "kind": "label_bias", "name": "reviews", "model": {"path": str(model)},
        "data": {"train": "reviews.csv", "fields": {"input": "review"}, "label": "mood"},
        "prompt": {"n_demos": [0, 2], "demo_sets": 1}, "calibration": ["cc"], "execution": {"part_rows": 9}, **changes,
    }  # fmt: skip


def _generating(folder: Path) -> dict[str, Any]:
    model = make_llama(folder / "model")
    write_jsonl(folder / "train.jsonl", boolq_rows("train", 6, 6))
    write_jsonl(folder / "test.jsonl", boolq_rows("test", 3, 3))
    return {
        "kind": "majority_bias", "name": "tiny", "model": {"path": str(model)},
        "data": {"train": "train.jsonl", "test": "test.jsonl"}, "prompt": {"preset": "boolq", "n_demos": 2},
        "proportions": [{"True": 0.5, "False": 0.5}, {"True": 1.0, "False": 0.0}], "seeds": [0],
        "predict": ["likelihood", "constrained"], "execution": {"part_rows": 8},
    }  # fmt: skip


def _answers(folder: Path) -> dict[str, Any]:
    bert = of_tests("test_qa_pipeline:make_bert")(folder / "bert")
    question = of_tests("test_qa_pipeline:question")
    for name, n_rows in (("squad", 24), ("other", 8)):
        write_jsonl(folder / f"{name}.jsonl", [question(number, name) for number in range(n_rows)])
    return {
        "kind": "qa_bias", "name": "tiny", "models": [{"name": "bert", "path": str(bert)}],
        "datasets": {"train": "other.jsonl", "in_distribution": {"squad": "squad.jsonl"},
            "out_of_distribution": {"other": "other.jsonl"}},
        "heuristics": ["word_dist", "ans_pos"], "bootstrap": {"trials": 4, "sample": 4},
        "windows": {"max_tokens": 128, "stride": 32}, "execution": {"part_rows": 10},
    }  # fmt: skip


def _planted(questions: int, strength: float) -> dict[str, Any]:
    return {"planted": {"shortcut": "ans_pos", "strength": strength, "questions": questions}}


def _readers(folder: Path) -> dict[str, Any]:
    bert = of_tests("test_qa_pipeline:make_bert")(folder / "bert")
    return {
        "kind": "qa_bias", "name": "study",
        "datasets": {"in_distribution": {"plain": _planted(20, 0.0)},
            "out_of_distribution": {"others": _planted(12, 0.0)}},
        "heuristics": ["ans_pos"], "thresholds": {"ans_pos": 0}, "bootstrap": {"trials": 4, "sample": 2},
        "windows": {"max_tokens": 90, "stride": 24}, "execution": {"part_rows": 99},
        "train": {"bases": [{"name": "bert", "path": str(bert)}], "data": {"biased": _planted(16, 0.6)},
            "validation": {"check": _planted(12, 0.6)}, "methods": ["standard", "resample"], "biases": ["ans_pos"],
            "thresholds": {"ans_pos": 0}, "max_steps": 4, "learning_rate": 1e-3, "batch_size": 4,
            "evaluation_steps": 2, "checkpoint_steps": 1},
    }  # fmt: skip


def _instruct(folder: Path) -> dict[str, Any]:
    model = make_llama(folder / "model")
    chats = [
        {"messages": [{"role": "user", "content": f"river {number}"}, {"role": "assistant", "content": "stone"}]}
        for number in range(10)
    ]
    (folder / "chat.jsonl").write_text("\n".join(map(json.dumps, chats)))
    return {
        "kind": "instruct", "name": "tiny", "model": {"path": str(model)},
        "data": {"path": "chat.jsonl", "held_out": 0.2}, "max_tokens": 64, "lora": {"r": 2, "alpha": 4},
        "training": {"learning_rate": 2e-3, "epochs": 3, "accumulation": 4, "precision": "float32",
            "gradient_checkpointing": False, "checkpoint_steps": 2},
    }  # fmt: skip


def _search(folder: Path, **changes: Any) -> dict[str, Any]:
    spec = _labels(folder, calibration=["cc"], execution={"part_rows": 99})
    spec["prompt"] = {"n_demos": [0], "demo_sets": 1}
    (folder / "searched.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    return {
        "kind": "search", "name": "sets", "spec": "searched.yaml", "trials": 3, "batch": 2, "algorithm": "optuna",
        "search": {"prompt.n_demos": {"choice": [[0], [2], [3]]}},
        "objective": {"sql": "select avg(macro_f1) as f1 from label_bias_by_task", "maximize": True}, **changes,
    }  # fmt: skip


def _strengths(folder: Path) -> dict[str, Any]:
    return _search(folder, search={"calibration.cc.strength": {"uniform": [0.1, 1.0]}}, trials=4)


KINDS = {
    "scoring": Kind(_labels, on_ray=("execution.actors=1",)),
    "generating": Kind(_generating, on_ray=("execution.actors=1",)),
    "answering": Kind(_answers, on_ray=("execution.actors=1",)),
    "measuring": Kind(_labels, ("analyse",), begins_as="scoring", sets=("scoring.normalization=sum",)),
    "lora": Kind(lambda folder: _labels(folder, 80, lora=_LORA, execution={"part_rows": 99})),
    "readers": Kind(_readers),
    "instruct": Kind(_instruct, ("train", "instruct")),
    "search": Kind(_search, ("tune",)),
    "strengths": Kind(_strengths, ("tune",)),
}
