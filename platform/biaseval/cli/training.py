"""Commands that train adapters and models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from biaseval.cli.arguments import JsonOption, RunDirOption, SetOption, SpecArgument, TrainingArgument, load, resumable
from biaseval.cli.printing import print_json, print_lines, say_made

if TYPE_CHECKING:
    from biaseval.pipelines.kind import Trained


def train_lora(
    spec: SpecArgument, run_dir: RunDirOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Train one LoRA adapter for each context of a run, as the section lora of its spec says.

    Contexts are (task, number of demonstrations, set) of label bias, (setting, seed, instruction) of majority bias.

    Adapters go to RUN/adapters in PEFT's layout, their steps to the table training. The same command resumes: it
    trains only missing adapters. `biaseval run` on the same directory scores with them.

    Example: biaseval train lora jobs/specs/mistral-7b.yaml --run-dir runs/lora --set lora.preset=reif2024
    """
    _train("train_lora", spec, run_dir, overrides, as_json=as_json)


def train_instruct(
    spec: TrainingArgument, run_dir: RunDirOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Tune a model on conversations (OASST1, Alpaca, Dolly, chat messages): all its parameters, or a LoRA adapter.

    The result is RUN/model, for the key model.path, or RUN/adapter, for model.adapter. Its steps are in the table
    training. The same command resumes after the last checkpoint.

    Example: biaseval train instruct jobs/specs/papers/p2-oasst.yaml --run-dir runs/oasst --set training.workers=4
    """
    _train("train_instruct", spec, run_dir, overrides, as_json=as_json)


def train_qa(
    spec: SpecArgument, run_dir: RunDirOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Train the readers of a QA-bias run, as the section train of its spec says: standard ones, and against shortcuts.

    Models go to RUN/models in Hugging Face's layout. The tables trained_models, training and evaluations describe
    them, their steps and their evaluations. The same command resumes each reader after its last checkpoint.
    `biaseval run` on the same directory then measures them.

    Example: biaseval train qa jobs/specs/papers/p3-debiasing.yaml --run-dir runs/debiasing --set train.seeds=[1,2,3]
    """
    _train("train_qa", spec, run_dir, overrides, as_json=as_json)


def _train(name: str, spec: Path, run_dir: str | None, overrides: Sequence[str] | None, *, as_json: bool) -> None:
    from biaseval.runs import commands

    for uri, loaded in load(spec, overrides, run_dir).items():
        with resumable(spec):
            trained: Trained = getattr(commands, name)(loaded, uri)
        made = {trained.folder: f"{trained.uri}/{trained.folder}"}
        if as_json:
            print_json({"run": trained.uri, **made, "training": dict(trained.lines)})
        else:
            print_lines(trained.lines)
            say_made(made, as_json=False)
        trained.refuse_given_up()
