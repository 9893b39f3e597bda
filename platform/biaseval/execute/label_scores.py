"""Scores the missing parts of a run on Ray Data: CPU tasks read, tokenise and pack, actors hold the model and score.

While an actor scores a part, tasks prepare the next ones: an actor that waits is an accelerator that waits. An actor
writes each part itself, in one step; what travels back is a line of counts. So a part is complete when its files exist,
one in each table of outputs that the run asks for, whatever dies before or after.

In a run with adapters all prompts of a part have the same one. The actor keeps the base model, scores the part with it,
then puts that adapter in place of the last and scores the part again, from the same tokens.
"""

from __future__ import annotations

import functools
import json
import pickle
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import BiasevalError
from biaseval.execute.cluster import allocate, answer, as_row, connected, device_of, map_parts, quiet_worker
from biaseval.prompting.matching import constrained_choice, match_label
from biaseval.spec import N_NEW_TOKENS, ExecutionSpec, ModelSpec, Prediction
from biaseval.store import Run
from biaseval.tables import ADAPTED, GENERATIONS, LABEL_SCORES
from biaseval.training.rows import ADAPTERS, CONFIG_FILE, WEIGHTS_FILE

if TYPE_CHECKING:
    from biaseval.scoring import LabelScorer, Prepared

BUDGETS = ("token_budget", "cache_budget")
"""What of a scorer's facts says how much memory it may use; smaller is safer."""


@dataclass(frozen=True)
class PartToScore:
    """A planned part whose outputs are missing."""

    part: int
    """Number of the part of ``prompts``, and of the tables of outputs."""
    contexts_part: int
    """Number of the part of ``contexts`` that holds the prompts' contexts."""
    n_prompts: int
    tokens: int
    """Tokens to compute, about."""
    tables: tuple[str, ...]
    """Those of the tables of outputs that lack the part."""
    adapter: str | None = None
    """The folder below ``adapters/`` of the adapter that goes with its prompts; None in a run without adapters."""

    def __post_init__(self) -> None:
        """Never let the base model's outputs pass for an adapted model's."""
        if self.adapter is None and not set(ADAPTED.values()).isdisjoint(self.tables):
            raise BiasevalError(
                f"plan.json: part {self.part} names no adapter; start the run anew in another directory"
            )


@dataclass(frozen=True)
class ScoredPart:
    """What came of one part."""

    part: int
    n_prompts: int
    tokens: int
    facts: dict[str, Any]
    """How the scorer worked: path, attention, dtype, memory budgets, self-test."""
    actor: str
    """Which actor scored it; one that was started again is another."""
    arrived_s: float
    """When the part reached the actor, by the clock of its machine."""
    ended_s: float
    """When the part was written, by the same clock."""
    scoring_s: float
    """How long the actor scored and wrote in between."""


@dataclass(frozen=True)
class _ReadPart:
    """What a CPU task makes of a part for the actors."""

    prepared: Prepared | None
    """Prompts with labels; None where nothing asks for their scores."""
    predicted: pa.Table | None
    """The prompts to predict by generation: ``prompt_id``, ``text``, ``labels``; None where nothing asks for that."""


def score_parts(
    run: Run,
    parts: list[PartToScore],
    model: ModelSpec,
    execution: ExecutionSpec,
    on_scored: Callable[[ScoredPart], None],
    known: Mapping[str, Any] | None = None,
    predict: Sequence[Prediction] = ("likelihood",),
) -> None:
    """Score ``parts`` and write their outputs; ``on_scored`` hears of each as it is complete.

    Args:
        run: the run directory, which every node must reach.
        parts: what to score, in any order.
        model: what to score with.
        execution: actors and their resources.
        on_scored: called in this process.
        known: facts of the scorer that began the run; on the same kind of device, memory budgets are taken from there.
        predict: how predictions are made. What is generated, free or constrained, is so for prompts of the purpose
            ``majority`` only.

    Raises:
        InputError: the model cannot be used, a prompt does not fit, or Ray lacks the resources asked for.
        BiasevalError: scoring failed; complete parts stay.
    """
    if not parts:
        return
    with connected(execution) as is_local:
        allocation = allocate(execution, len(parts), is_local=is_local)
        settings = json.dumps(model.model_dump())
        reading = {"run_uri": run.uri, "model": settings, "predict": tuple(predict)}
        scoring = {
            **reading,
            "known": json.dumps(dict(known or {})),
            "num_gpus": allocation.num_gpus,
            "n_threads": allocation.n_threads,
        }
        rows = [asdict(part) for part in parts]
        for scored in map_parts(rows, _ScoringActor, scoring, allocation, _read_part, reading):
            on_scored(ScoredPart(**scored))


def _read_part(batch: pa.Table, *, run_uri: str, model: str, predict: tuple[Prediction, ...]) -> pa.Table:
    """Read a part's prompts, tokenise and pack them; runs in a CPU task.

    Our own errors travel to the driver as rows: Ray would wrap them, and lose what they are.
    """
    quiet_worker()
    prepared = error = None
    try:
        part = json.loads(batch["part"][0].as_py())
        prepared = pickle.dumps(_prepared_part(part, run_uri, model, predict), protocol=5)
    except BiasevalError as caught:
        error = as_row(caught)
    return pa.table(
        {
            "part": batch["part"],
            "prepared": pa.array([prepared], pa.large_binary()),
            "error": pa.array([error], pa.string()),
        }
    )


def _prepared_part(part: dict[str, Any], run_uri: str, model: str, predict: tuple[Prediction, ...]) -> _ReadPart:
    from biaseval.scoring import prepare

    run = Run.open(run_uri)
    prompts = run.read_part("prompts", part["part"])
    contexts = run.read_part("contexts", part["contexts_part"])
    texts = dict(zip(contexts["context_id"].to_pylist(), contexts["text"].to_pylist(), strict=True))
    heads = pa.array([texts[identifier] for identifier in prompts["context_id"].to_pylist()], pa.string())
    scorable = pa.table(
        {
            "prompt_id": prompts["prompt_id"],
            "text": pc.binary_join_element_wise(heads, prompts["input_text"].combine_chunks(), ""),
            "labels": prompts["labels"],
        }
    )
    tables = set(part["tables"])
    is_scored = not tables.isdisjoint(("label_scores", ADAPTED["label_scores"])) or "constrained" in predict
    is_predicted = not tables.isdisjoint(("generations", ADAPTED["generations"]))
    return _ReadPart(
        prepared=prepare(_tokenizer(model), scorable) if is_scored else None,
        predicted=scorable.filter(pc.equal(prompts["purpose"], "majority")) if is_predicted else None,
    )


@functools.lru_cache(maxsize=1)
def _tokenizer(model: str) -> Any:
    from biaseval.models import load_tokenizer

    spec = ModelSpec(**json.loads(model))
    return load_tokenizer(spec.path, revision=spec.revision, trust_remote_code=spec.trust_remote_code)


class _ScoringActor:
    """Holds the model; scores a part and writes it."""

    def __init__(
        self,
        run_uri: str,
        model: str,
        known: str,
        num_gpus: int,
        n_threads: int | None,
        predict: tuple[Prediction, ...],
    ) -> None:
        import torch

        from biaseval.scoring import LabelScorer

        quiet_worker()
        if n_threads is not None:
            # Ray sets OMP_NUM_THREADS to the actor's logical CPUs, which need not be the cores it may use.
            torch.set_num_threads(n_threads)
        self._name = uuid.uuid4().hex
        self._run = Run.open(run_uri)
        self._predict = predict
        self._adapter: str | None = None
        self._scorer: LabelScorer | None = None
        self._error: str | None = None
        spec = ModelSpec(**json.loads(model))
        budgets = _known_budgets(json.loads(known), num_gpus)
        try:
            self._scorer = LabelScorer.load(
                spec.path,
                revision=spec.revision,
                dtype=spec.dtype,
                device=device_of(num_gpus),
                quantization=spec.quantization,
                adapter=spec.adapter,
                trust_remote_code=spec.trust_remote_code,
                token_budget=budgets.get("token_budget"),
                cache_budget=budgets.get("cache_budget"),
            )
        except BiasevalError as caught:
            # Ray would start the actor again and again; said with the first part instead.
            self._error = as_row(caught)

    def __call__(self, batch: pa.Table) -> pa.Table:
        arrived = time.monotonic()
        error = self._error or batch["error"][0].as_py()
        if error is not None:
            return pa.table({"done": pa.array([None], pa.string()), "error": pa.array([error], pa.string())})
        part = json.loads(batch["part"][0].as_py())
        read = pickle.loads(batch["prepared"][0].as_buffer())
        return answer(lambda: asdict(self._score(part, read, arrived)))

    def _score(self, part: dict[str, Any], read: _ReadPart, arrived: float) -> ScoredPart:
        started = time.monotonic()
        scorer = cast("LabelScorer", self._scorer)  # without one there was an error
        for adapter, names in ((None, {table: table for table in ADAPTED}), (part["adapter"], ADAPTED)):
            asked = {table: name for table, name in names.items() if name in part["tables"]}
            if asked:
                self._use(scorer, adapter)
                for table, rows in _outputs(scorer, read, self._predict, asked):
                    self._run.write_part(asked[table], part["part"], rows)
        ended = time.monotonic()
        return ScoredPart(
            part=part["part"],
            n_prompts=part["n_prompts"],
            tokens=part["tokens"],
            facts=scorer.facts(),
            actor=self._name,
            arrived_s=arrived,
            ended_s=ended,
            scoring_s=ended - started,
        )

    def _use(self, scorer: LabelScorer, adapter: str | None) -> None:
        """Have the model score with an adapter of the run, or with none; one stays in place until another comes."""
        if adapter is not None and adapter != self._adapter:
            folder = f"{ADAPTERS}/{adapter}"
            try:
                config, weights = (self._run.read_bytes(f"{folder}/{name}") for name in (CONFIG_FILE, WEIGHTS_FILE))
            except OSError as error:
                raise BiasevalError(
                    f"{self._run.uri}/{folder}: cannot be read ({error}); delete the folder and run the same command "
                    "again to train the adapter anew"
                ) from error
            scorer.put_adapter(f"{self._run.uri}/{folder}", config, weights)
            self._adapter = adapter
        scorer.use_adapter(adapter is not None)


def _outputs(
    scorer: LabelScorer, read: _ReadPart, predict: tuple[Prediction, ...], tables: Collection[str]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield those of a part's outputs that ``tables`` names, each as it is computed."""
    scores = None
    if read.prepared is not None and ("label_scores" in tables or "constrained" in predict):
        scores = scorer.score_prepared(read.prepared)
    if scores is not None and "label_scores" in tables:
        yield "label_scores", scores.select(LABEL_SCORES.schema.names).cast(LABEL_SCORES.schema)
    if read.predicted is not None and "generations" in tables:
        rows: list[dict[str, object]] = []
        if "generate" in predict:
            rows += _generated(scorer, read.predicted)
        if "constrained" in predict and read.prepared is not None and scores is not None:
            rows += _constrained(read.prepared, scores, read.predicted)
        yield "generations", GENERATIONS.rows(rows)


def _generated(scorer: LabelScorer, predicted: pa.Table) -> Iterator[dict[str, object]]:
    texts = scorer.generate(predicted, N_NEW_TOKENS)["text"].to_pylist() if predicted.num_rows else []
    for prompt_id, text, labels in zip(
        predicted["prompt_id"].to_pylist(), texts, predicted["labels"].to_pylist(), strict=True
    ):
        yield {"prompt_id": prompt_id, "mode": "generate", "text": text, "prediction": match_label(text, labels)}


def _constrained(prepared: Prepared, scores: pa.Table, predicted: pa.Table) -> Iterator[dict[str, object]]:
    """Yield the constrained predictions: what the scores of the labels say that such a decoder would write."""
    scored: dict[str, list[tuple[str, list[int], list[float]]]] = {}
    columns = (scores["prompt_id"], scores["label"], scores["token_logprobs"])
    rows = zip(*(column.to_pylist() for column in columns), prepared.target_tokens(), strict=True)
    for prompt_id, label, logprobs, tokens in rows:
        scored.setdefault(prompt_id, []).append((label, tokens, logprobs))
    for prompt_id in predicted["prompt_id"].to_pylist():
        labels, tokens, logprobs = zip(*scored[prompt_id], strict=True)
        label = labels[constrained_choice(tokens, logprobs)]
        yield {"prompt_id": prompt_id, "mode": "constrained", "text": label, "prediction": label}


def device_kind(device: str) -> str:
    """Return what a device is, without its number, of a scorer's ``device``: ``cpu``, or the name of a GPU."""
    return device.split(": ", 1)[-1]


def _known_budgets(known: dict[str, Any], num_gpus: int) -> dict[str, int]:
    """Return the memory budgets that a run knows for this kind of device: what did not fit once is not tried again."""
    import torch

    kind = torch.cuda.get_device_name() if num_gpus and torch.cuda.is_available() else "cpu"
    if not known or device_kind(known["device"]) != kind:
        return {}
    return {name: known[name] for name in BUDGETS if known.get(name) is not None}
