"""What the trials of a search share: work that comes out the same whatever value the searched keys have."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from biaseval.pipelines.kind import Stage
from biaseval.pipelines.qa.trained_models import BIAS_MODEL, readers_of
from biaseval.spec import ADDRESSING, GUIDED, QaTrainSpec, SearchSpec
from biaseval.store import Run
from biaseval.tables import tables_of
from biaseval.units import Unit

Varies = Callable[[Unit, str], bool]
"""Says whether a file of a unit comes out otherwise where searched keys have other values."""

_READERS = ("standard", BIAS_MODEL, *ADDRESSING)

_BY_KEY: dict[str, tuple[str, ...]] = {
    "thresholds": (),
    "bootstrap": (),
    "train.learned_mixin": ("learned_mixin",),
    "train.confidence_regularization": ("confidence_regularization",),
    "train.product_of_experts": ("product_of_experts",),
    # Other keys of it change which readers there are.
    **{f"train.bias_model.{key}": (BIAS_MODEL, *GUIDED) for key in ("init", "learning_rate", "max_steps")},
    "train.thresholds": (BIAS_MODEL, *ADDRESSING),
    **{
        f"train.{key}": _READERS
        for key in (
            *("best", "learning_rate", "epochs", "max_steps", "batch_size", "accumulation", "weight_decay", "warmup"),
            *("max_grad_norm", "precision", "evaluation_steps", "patience", "evaluation_questions", "group_by_length"),
        )
    },
}
"""Keys of a QA spec to the methods whose readers they change; other keys change all readers."""


def varies(search: SearchSpec) -> Varies:
    """Return which units trials cannot share."""
    spec, keys = search.spec, list(search.search)
    if search.is_arithmetic:
        return lambda _, file: False
    if spec.train is not None:
        return _readers_vary(spec.train, keys)
    has_adapters = getattr(spec, "lora", None) is not None  # else the plan has other parts
    moves_rows = "lora.n_demos" in keys or "lora.demo_sets" in keys or (spec.held_out and "lora.n_examples" in keys)
    if has_adapters and not moves_rows and all(key.startswith(("scoring.", "calibration.", "lora.")) for key in keys):
        is_adapted = any(key.startswith("lora.") for key in keys)
        return lambda _, file: is_adapted and file.startswith("adapte")  # adapters, and outputs with them
    return _everything


def own_readers(search: SearchSpec, keys: Collection[str], *, with_bias_models: bool = False) -> list[str]:
    """Return the readers that each trial trains itself where it has other values of these keys."""
    if search.spec.train is None:
        return []
    methods = methods_of(keys)
    readers = [own for own in readers_of(search.spec.train) if own.method in methods]
    return [own.name for own in readers if own.is_measured or with_bias_models]


def methods_of(keys: Collection[str]) -> set[str]:
    """Return the methods whose readers keys of a QA spec change."""
    found = (_methods(key) for key in keys)
    return {method for methods in found for method in (_READERS if methods is None else methods)}


def _methods(key: str) -> Sequence[str] | None:
    """Return the methods of a key; None: it changes all readers, and maybe which there are."""
    return next((own for name, own in _BY_KEY.items() if key == name or key.startswith(f"{name}.")), None)


def _everything(unit: Unit, file: str) -> bool:
    return True


def _readers_vary(train: QaTrainSpec, keys: Sequence[str]) -> Varies:
    if any(_methods(key) is None for key in keys):
        return _everything
    methods = methods_of(keys)
    names = {own.name for own in readers_of(train) if own.method in methods}
    has_guides = any(key.startswith("train.bias_model.") for key in keys)
    splits = any(key.startswith("train.thresholds") for key in keys)

    def vary(unit: Unit, file: str) -> bool:
        work = unit.work
        if "guide" in work:
            return work["guide"] in names or (has_guides and work["source"] != "reader")
        if "judge" in work:
            return splits or work["judge"] in names
        return work.get("model") in names

    return vary


class Shared:
    """What trials share of a stage."""

    def __init__(self, stage: Stage, vary: Varies) -> None:
        self.verb, self.noun, self.make = stage.verb, stage.noun, stage.make
        self._stage, self._vary = stage, vary

    @property
    def units(self) -> list[Unit]:
        """Those that do not vary, or the part of their files that does not."""
        kept = [
            replace(unit, files=tuple(file for file in unit.files if not self._vary(unit, file)))
            for unit in self._stage.units
        ]
        return [unit for unit in kept if unit.files]


def shared_stages(stages: Iterable[Stage], vary: Varies) -> Iterator[Shared]:
    """Yield of each stage what trials share, where they share something; the next is asked for when it is made."""
    for stage in stages:
        own = Shared(stage, vary)
        if own.units:
            yield own


def made_files(run: Run, kind: str) -> set[str]:
    """Return the complete parts of a run's tables."""
    return {name for table in tables_of(kind) for name in run.files(table) if name.endswith(".parquet")}


def take(run: Run, names: Collection[str], into: Run) -> None:
    """Have files of a run in another, as they are; those that it has already stay.

    On a local disk they are the same file under two names: no run changes one in place.
    """
    folders = {name.partition("/")[0] for name in names}
    there = {name for folder in folders for name in into.files(folder)}
    for name in sorted(set(names) - there):
        if run.is_local and into.is_local:
            os.makedirs(os.path.dirname(into.path(name)), exist_ok=True)
            try:
                os.link(run.path(name), into.path(name))
                into.ledger.files[name] = run.ledger.files.get(name)
                continue
            except OSError:  # another file system, or one without links
                pass
        into.write_bytes(name, run.read_bytes(name))
