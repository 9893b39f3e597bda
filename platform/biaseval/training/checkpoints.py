"""Checkpoints of a long training: its trained parameters and Adam's state, as safetensors.

They do not depend on the number of workers or the ZeRO stage. Every tensor is whole and in float32. Workers write
several files side by side, and each holds the tensors of one file at a time. A checkpoint is complete when its JSON
file exists, which is written last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow.fs as pafs
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import load, save

from biaseval.errors import BiasevalError
from biaseval.store import Run, sha256_of
from biaseval.training.loss_scale import LossScale
from biaseval.training.optimization import State, n_elements

if TYPE_CHECKING:
    from biaseval.training.objectives import Share
    from biaseval.training.preparation import Prepared

CHECKPOINTS = "checkpoints"
"""The folder of a run that holds them while it trains: of one training, or a folder in it for each of several."""

_MARKER = "checkpoint.json"
_STEPS = "step-"
_FILE_BYTES = 1 << 30
_STATE_BYTES = 3 * 4
"""Of one element: weight and two moments in float32."""


@dataclass(frozen=True)
class Checkpoint:
    """Where a training can go on."""

    place: str
    """The folder of the run that holds it and its like."""
    n_steps: int
    """The optimizer steps before the checkpoint."""
    n_files: int
    loss_scale: LossScale | None = None
    """Of a training in float16."""
    sha256: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Of its files, by name; older versions wrote none."""

    @property
    def folder(self) -> str:
        """Its folder in the run."""
        return f"{self.place}/{_STEPS}{self.n_steps:08d}"

    def file(self, number: int) -> str:
        """Return the name of one of its files, 0-based."""
        return f"{self.folder}/state-{number:05d}.safetensors"


def place_of(unit: Mapping[str, Any]) -> str:
    """Return the folder of a run for the checkpoints of a unit, of which this is what its worker is told."""
    return str(unit.get("checkpoints", CHECKPOINTS))


def newest_checkpoint(run: Run, place: str = CHECKPOINTS) -> Checkpoint | None:
    """Return the last complete checkpoint in a folder of a run, if there is one."""
    complete = [folder for folder in folders_of(run, place, _STEPS) if run.has(f"{place}/{folder}/{_MARKER}")]
    if not complete:
        return None
    found = run.read_json(f"{place}/{max(complete)}/{_MARKER}")
    scale = LossScale(**found["loss_scale"]) if found.get("loss_scale") else None
    return Checkpoint(place, found["n_steps"], found["n_files"], scale, found.get("sha256", {}))


def keep_only(run: Run, place: str, checkpoint: Checkpoint | None) -> None:
    """Delete all other checkpoints there, those that a killed process began among them."""
    for folder in folders_of(run, place, _STEPS):
        if checkpoint is None or f"{place}/{folder}" != checkpoint.folder:
            # An object store deletes file by file: without its marker first, no half of it looks whole.
            run.delete(f"{place}/{folder}/{_MARKER}")
            run.delete(f"{place}/{folder}")


def write_checkpoint(run: Run, place: str, n_steps: int, prepared: Prepared, share: Share) -> None:
    """Write a checkpoint after ``n_steps`` optimizer steps, and delete the one before; all workers call this at once.

    Raises:
        BiasevalError: the disk is full or the store does not answer; the previous checkpoint stays.
    """
    trained = prepared.trained
    sizes = {name: _STATE_BYTES * n_elements(parameter) for name, parameter in trained.items()}
    files = list(in_files(sizes, _FILE_BYTES))
    checkpoint = Checkpoint(place, n_steps, len(files), prepared.optimization.loss_scale)
    digests: dict[str, str] = {}
    for number, names in enumerate(files):
        own: dict[str, torch.Tensor] = {}
        for name in names:
            state = prepared.optimization.state_of(trained[name])
            if number % share.n_workers == share.rank:
                own |= {f"{key}/{name}": tensor.cpu().contiguous() for key, tensor in state.items()}
        if own:
            data = save(own)
            run.write_bytes(checkpoint.file(number), data)
            digests[checkpoint.file(number)] = sha256_of(data)
    if share.n_workers > 1:
        of_all: list[Any] = [None] * share.n_workers
        dist.all_gather_object(of_all, digests)  # comes back when all have written
        digests = {name: digest for own in of_all for name, digest in own.items()}
    if share.rank == 0:
        whole = replace(checkpoint, sha256=digests)
        run.write_sealed(f"{checkpoint.folder}/{_MARKER}", asdict(whole))
        keep_only(run, place, checkpoint)


def read_states(
    run: Run, checkpoint: Checkpoint, trained: Mapping[str, torch.nn.Parameter]
) -> Iterator[tuple[torch.nn.Parameter, State]]:
    """Yield the state of every trained parameter, one file in memory at a time.

    Raises:
        BiasevalError: a file is damaged, or does not have the parameters of this model.
    """
    left = dict(trained)
    for number in range(checkpoint.n_files):
        name = checkpoint.file(number)
        try:
            data = run.read_bytes(name)
            if sha256_of(data) != checkpoint.sha256.get(name, sha256_of(data)):
                raise SafetensorError("its bytes differ from those written")
            tensors = load(data)
        except (OSError, SafetensorError) as error:
            raise BiasevalError(
                f"{run.uri}/{name}: cannot be read ({error}); delete {run.uri}/{checkpoint.place} and run the same "
                "command again to begin again"
            ) from error
        for parameter_name in dict.fromkeys(key.partition("/")[2] for key in tensors):
            if parameter_name not in left:
                raise BiasevalError(f"{run.uri}/{name}: holds {parameter_name}, which is not trained here")
            state = {
                key.partition("/")[0]: value for key, value in tensors.items() if key.endswith(f"/{parameter_name}")
            }
            yield left.pop(parameter_name), state
    if left:
        raise BiasevalError(f"{run.uri}/{checkpoint.folder}: lacks {len(left)} parameters (first: {min(left)})")


def in_files(sizes: Mapping[str, int], file_bytes: int) -> Iterator[list[str]]:
    """Yield the names that share a file of ``file_bytes``, in order: as many as fit by their sizes, at least one."""
    names: list[str] = []
    for name, size in sizes.items():
        if names and sum(sizes[other] for other in names) + size > file_bytes:
            yield names
            names = []
        names.append(name)
    if names:
        yield names


def folders_of(run: Run, place: str, prefix: str) -> Sequence[str]:
    """Return the names of the folders in a folder of a run that begin like this, in order."""
    infos = run.fs.get_file_info(pafs.FileSelector(run.path(place), allow_not_found=True))
    folders = [info.base_name for info in infos if info.type == pafs.FileType.Directory]
    return sorted(folder for folder in folders if folder.startswith(prefix))
