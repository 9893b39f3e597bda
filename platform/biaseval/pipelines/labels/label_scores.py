"""The stage that scores the prompts of a run by a causal LM, with and without its adapters.

All prompts of a part with an adapter have the same one. The worker keeps the base model, scores the part with it, then
puts that adapter in place of the last and scores the part again, from the same tokens. Where adapters come to a
finished run, its parts stay, and each adapter scores its rows of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from biaseval.environment import read_environment
from biaseval.errors import BiasevalError
from biaseval.execute.machine import n_cores, take_share
from biaseval.execute.pace import leave_pace
from biaseval.execute.tasks import Made, Task
from biaseval.models import CONFIG_FILE, WEIGHTS_FILE
from biaseval.pipelines.kind import Plan
from biaseval.pipelines.planning import tokenizer_of
from biaseval.spec import ExecutionSpec, ModelSpec, Prediction
from biaseval.store import Run, part_name
from biaseval.tables import ADAPTED, output_tables, run_outputs
from biaseval.training.rows import ADAPTERS
from biaseval.units import Unit

if TYPE_CHECKING:
    from biaseval.execute.parts import Parts
    from biaseval.execute.resources import Allocation
    from biaseval.scoring.outputs import ReadPart


from biaseval.environment import amend_environment
from biaseval.progress import say
from biaseval.units import Done

BUDGETS = ("token_budget", "cache_budget")
"""What of a scorer's facts says how much memory it may use; smaller is safer."""

_PATHS = (None, "packed", "prefix_cache", "full_text", "one_by_one")  # from the fastest to the slowest


class ScorerRecord:
    """Notes how a run is scored.

    Of several actors the slowest path, the smallest budgets (on one kind of device) and the largest difference count.
    An actor's time goes from the arrival of its first part to the end of its last; ``busy_share`` is the part of all
    actors' time in which they scored.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._scoring_s = 0.0
        self._tokens = 0
        self._spans: dict[str, tuple[float, float]] = {}
        self.facts: dict[str, Any] = read_environment(run).get("scorer", {})

    @property
    def busy_share(self) -> float:
        """The share of their time in which the actors of this process were busy, in [0, 1]."""
        return self._scoring_s / (self._elapsed_s or 1.0)

    @property
    def _elapsed_s(self) -> float:
        return sum(ended - arrived for arrived, ended in self._spans.values())

    def add(self, done: Done) -> None:
        """Count a finished part."""
        first, last = self._spans.get(done.actor, (done.arrived_s, done.ended_s))
        self._spans[done.actor] = (min(first, done.arrived_s), max(last, done.ended_s))
        self._scoring_s += done.busy_s
        self._tokens += done.tokens
        for path, reason in done.facts["paths_left"].items():
            if path not in self.facts.get("paths_left", {}):
                say(f"the scorer's {path} path {reason}; scoring goes on with {done.facts['path']}")
        self._write(_combined(self.facts, done.facts))

    def close(self) -> None:
        """Add this process's times to the record, and print how busy the actors were."""
        if not self._spans:
            return
        scoring_s = self.facts.get("scoring_s", 0.0) + self._scoring_s
        elapsed_s = self.facts.get("elapsed_s", 0.0) + self._elapsed_s
        times = {"scoring_s": scoring_s, "elapsed_s": elapsed_s, "busy_share": scoring_s / elapsed_s}
        rounded = {name: round(value, 3) for name, value in times.items()}
        # Records of older versions have no tokens, so their times would distort the rate.
        has_all = "tokens" in self.facts or "elapsed_s" not in self.facts
        tokens = {"tokens": self.facts.get("tokens", 0) + self._tokens} if has_all else {}
        self._write({**self.facts, **rounded, **tokens})
        say(f"the scorer was busy {self.busy_share:.0%} of the time")

    def _write(self, facts: dict[str, Any]) -> None:
        if facts != self.facts:
            self.facts = facts
            amend_environment(self._run, scorer=facts)


def _combined(known: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a run's scorers so far and of one more."""
    if not known:
        return dict(facts)
    combined = {**known, **facts, "paths_left": known.get("paths_left", {}) | facts["paths_left"]}
    for key in ("path", "path_beyond_window"):
        combined[key] = max(known.get(key), facts[key], key=_PATHS.index)
    found = [each["self_test_difference"] for each in (known, facts)]
    combined["self_test_difference"] = max((each for each in found if each is not None), default=None)
    if device_kind(known["device"]) == device_kind(facts["device"]):
        for name in BUDGETS:
            if known.get(name) is not None and facts.get(name) is not None:
                combined[name] = min(known[name], facts[name])
    return combined


def device_kind(device: str) -> str:
    """Return what a device is, without its number, of a scorer's ``device``: ``cpu``, or a GPU's name and share."""
    return device.split(": ", 1)[-1]


def with_share(device: str, num_gpus: float) -> str:
    """Return a scorer's device with the share of it that an actor has, if not all: memory there is another's, too."""
    return f"{device}, {num_gpus:g} of it" if 0 < num_gpus < 1 else device


def known_budgets(known: Mapping[str, Any], num_gpus: float) -> dict[str, int]:
    """Return the memory budgets that a run's scorers found for the kind of device of an actor with so many GPUs.

    What did not fit once is not tried again.
    """
    import torch

    kind = torch.cuda.get_device_name() if num_gpus and torch.cuda.is_available() else "cpu"
    kind = with_share(kind, num_gpus)
    if not known or device_kind(known["device"]) != kind:
        return {}
    return {name: known[name] for name in BUDGETS if known.get(name) is not None}


_FLOPS_OF_A_CORE = 2e10
"""A second, of little models in float32: about a fifth of a plain matrix product's."""

HOW = ("path", "path_beyond_window", "attention", "dtype", *BUDGETS)
"""What of a scorer's facts a part's file says in its metadata, under the key ``scorer``: numbers may follow from it."""

LIKELIHOOD: tuple[Prediction, ...] = ("likelihood",)


def scoring_stage(
    run: Run, plan: Plan, model: ModelSpec, execution: ExecutionSpec, predict: Sequence[Prediction] = LIKELIHOOD
) -> Parts:
    """Return the stage that writes the outputs of every part of ``prompts``, by the model and any adapters."""
    from biaseval.execute.parts import Parts

    environment = read_environment(run)
    n_parameters = environment.get("model_facts", {}).get("n_parameters")
    return Parts(
        name="scoring", verb="scored", units=scoring_units(plan, predict), execution=execution,
        worker=LabelScoresWorker, prepare=read_part,
        arguments={"model": model, "predict": tuple(predict), "known": environment.get("scorer", {})},
        seconds=_seconds(execution, n_parameters),
        weights_bytes=None if n_parameters is None else int(n_parameters * _width(model)),
        n_passes=(1 + ("adapters" in plan)) * n_passes(predict), recorder=ScorerRecord,
    )  # fmt: skip


def n_passes(predict: Sequence[Prediction]) -> int:
    """Return how often a model reads each prompt: generation reads it again."""
    return ("label_scores" in output_tables(predict)) + ("generate" in predict)


def _width(model: ModelSpec) -> float:
    """Return the bytes of a weight, of those that are many."""
    if model.quantization is not None:
        return {"8bit": 1.0, "4bit": 0.5}[model.quantization]
    return 4.0 if model.dtype == "float32" else 2.0


def _seconds(execution: ExecutionSpec, n_parameters: int | None) -> Callable[[Unit], float] | None:
    """Return a function for the seconds that this process would take for a part; None if the spec names actors."""
    if n_parameters is None or (execution.actors, execution.gpus_per_actor) != ("auto", "auto"):
        return None
    return lambda unit: float(2 * n_parameters * unit.work["tokens"] / (_FLOPS_OF_A_CORE * n_cores()))


def scoring_units(plan: Plan, predict: Sequence[Prediction]) -> list[Unit]:
    """Return a unit for each part of prompts, and for each piece of a part that an extension scores with an adapter."""
    units = []
    for number, part in enumerate([*plan["parts"], *plan.get("adapted_parts", ())]):
        tables = run_outputs(predict, has_adapters="adapter" in part)
        made = [table for table in tables if "prompts_part" not in part or table in ADAPTED.values()]
        files = tuple(f"{table}/{part_name(part['part'])}" for table in made)
        units.append(Unit(number=number, size=part["n_prompts"], files=files, work=part))
    return units


def read_part(run: Run, task: Task, *, model: ModelSpec, predict: Sequence[str], known: Mapping[str, Any]) -> ReadPart:
    """Read a part's prompts, tokenise and pack them; what runs in a CPU task."""
    from biaseval.scoring.outputs import read_part

    prompts = run.read_part("prompts", task.work.get("prompts_part", task.work["part"]))
    return read_part(
        tokenizer_of(model),
        prompts.slice(task.work.get("first_row", 0), task.work["n_prompts"]),
        run.read_part("contexts", task.work["contexts_part"]),
        predict,
        [file.partition("/")[0] for file in task.files],
    )


class LabelScoresWorker:
    """Holds the model; scores a part."""

    def __init__(
        self,
        run: Run,
        allocation: Allocation,
        *,
        model: ModelSpec,
        predict: Sequence[Prediction],
        known: Mapping[str, Any],
    ) -> None:
        from biaseval.models import Loading, ModelSource, load_model, load_tokenizer
        from biaseval.scoring import LabelScorer

        take_share(allocation.n_threads, allocation.num_gpus)
        self._run = run
        self._predict = predict
        self._num_gpus = allocation.num_gpus
        self._adapter: str | None = None
        budgets = known_budgets(known, allocation.num_gpus)
        source = ModelSource.of(model)
        tokenizer = load_tokenizer(source)
        loading = Loading(model.dtype, allocation.device, model.quantization)
        self.scorer = LabelScorer(
            load_model(source, loading),
            tokenizer,
            token_budget=budgets.get("token_budget"),
            cache_budget=budgets.get("cache_budget"),
        )
        if "generate" not in predict:  # continuations take longer than scores
            self.scorer.tell_pace(partial(leave_pace, run))

    def make(self, task: Task, prepared: ReadPart) -> Made:
        """Score a part, by the model and by the adapted model; the scorer's facts are beside it."""
        from biaseval.scoring.outputs import part_outputs

        tables = {}
        missing = dict(file.split("/") for file in task.files)
        for adapter, names in ((None, {table: table for table in ADAPTED}), (task.work.get("adapter"), ADAPTED)):
            if asked := {table: name for table, name in names.items() if name in missing}:
                self._use(adapter)
                for table, rows in part_outputs(self.scorer, prepared, self._predict, asked):
                    how = {name: self.scorer.facts()[name] for name in HOW}
                    noted = rows.replace_schema_metadata({"scorer": json.dumps(how)})
                    tables[f"{asked[table]}/{missing[asked[table]]}"] = noted
        facts = self.scorer.facts()
        return Made(tables, {**facts, "device": with_share(facts["device"], self._num_gpus)})

    def _use(self, adapter: str | None) -> None:
        """Have the model score with an adapter of the run, or with none; one stays in place until another comes."""
        if adapter is not None and adapter != self._adapter:
            folder = f"{ADAPTERS}/{adapter}"
            try:
                config, weights = (self._run.read_bytes(f"{folder}/{name}") for name in (CONFIG_FILE, WEIGHTS_FILE))
            except OSError as error:
                raise BiasevalError(
                    f"{self._run.uri}/{folder}: cannot be read ({error}); delete the folder and run the same command "
                    "again to train the adapter again"
                ) from error
            self.scorer.put_adapter(f"{self._run.uri}/{folder}", config, weights)
            self._adapter = adapter
        self.scorer.use_adapter(adapter is not None)
