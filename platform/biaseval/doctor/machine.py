"""Torch and the GPUs, memory and disks of this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

from biaseval.doctor.finding import Finding, State
from biaseval.execute.machine import n_cores

GIB = 2**30
_LITTLE_MEMORY_GIB = 4.0
_LITTLE_DISK_GIB = 10.0
_NO_DISK_GIB = 1.0
_LITTLE_SHARED_GIB = 1.0
_MOST_FULL = 0.95
"""Share of a disk above which Ray no longer spills objects to it."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as torch sees it."""

    name: str
    memory_gib: float
    free_gib: float


def accelerators() -> Iterator[Finding]:
    """Say which torch this is, and whether it reaches the GPUs of the machine."""
    import torch

    gpus = []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(number)
        gpus.append(Gpu(torch.cuda.get_device_name(number), total / GIB, free / GIB))
    has_quantization = find_spec("bitsandbytes") is not None
    yield from judge_torch(torch.__version__, torch.version.cuda, n_nvidia_devices(), gpus, has_quantization)


def n_nvidia_devices(devices: Path = Path("/dev")) -> int:
    """Return how many NVIDIA GPUs the driver of this machine shows to this process."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in devices.glob("nvidia*"))


def judge_torch(
    version: str, cuda: str | None, n_devices: int, gpus: Sequence[Gpu], has_quantization: bool
) -> Iterator[Finding]:
    """Yield what is to say of torch and the GPUs.

    Args:
        version: of torch.
        cuda: that it was built with; None: for CPUs alone.
        n_devices: NVIDIA GPUs that the driver shows.
        gpus: that torch reaches.
        has_quantization: bitsandbytes is installed.
    """
    facts = {"torch": version, "cuda": cuda, "n_gpus": len(gpus), "n_devices": n_devices}
    build = f"{version}, {'built for CPUs alone' if cuda is None else f'built with CUDA {cuda}'}"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus:
        yield Finding("torch", State.ok, f"{build}, {len(gpus)} GPUs", facts=facts)
    elif n_devices and cuda is None:
        remedy = "install a build with CUDA; https://pytorch.org/get-started/locally/ has the line"
        yield Finding("torch", State.problem, f"{build}, and this machine has {n_devices} NVIDIA GPUs", remedy, facts)
    elif n_devices and hidden is not None:
        found = f"{build}; CUDA_VISIBLE_DEVICES={hidden!r} hides the GPUs, {n_devices} of them"
        yield Finding("torch", State.warning, found, "unset CUDA_VISIBLE_DEVICES, if that is not meant", facts)
    elif n_devices:
        remedy = "run nvidia-smi: the driver must be as new as this CUDA; or install a torch for an older one"
        yield Finding("torch", State.problem, f"{build}, and it reaches none of {n_devices} GPUs", remedy, facts)
    else:
        yield Finding("torch", State.ok, f"{build}; no GPU here, models run on {n_cores()} cores", facts=facts)
    for number, gpu in enumerate(gpus):
        found = f"{gpu.name}, {gpu.free_gib:.1f} of {gpu.memory_gib:.1f} GiB free"
        if gpu.free_gib < gpu.memory_gib / 2:
            remedy = "end what else uses it (nvidia-smi names it), or choose another with CUDA_VISIBLE_DEVICES"
            yield Finding(f"gpu {number}", State.warning, found, remedy, asdict(gpu))
        else:
            yield Finding(f"gpu {number}", State.ok, found, facts=asdict(gpu))
    if gpus and not has_quantization:
        found = "bitsandbytes is not installed: no 8-bit or 4-bit models"
        yield Finding("quantization", State.warning, found, "pip install 'bitsandbytes>=0.46.1', if you want such")


def memory() -> Iterator[Finding]:
    """Say how much memory this process may still take."""
    available = available_gib()
    if available is None:
        return
    found, facts = f"{available:.1f} GiB available, {n_cores()} cores", {"available_gib": round(available, 2)}
    if available < _LITTLE_MEMORY_GIB:
        remedy = "end other programs, or give the container more; every actor holds a model of its own"
        yield Finding("memory", State.warning, found, remedy, facts)
    else:
        yield Finding("memory", State.ok, found, facts=facts)


def available_gib(meminfo: Path = Path("/proc/meminfo"), groups: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return how much memory is left on this machine or in this container, whichever is less; None: nobody says."""
    found = []
    if meminfo.is_file():
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024)
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        if (groups / limit).is_file() and (text := (groups / limit).read_text().strip()).isdigit():
            found.append(int(text) - int((groups / used).read_text()))
    return max(0, min(found)) / GIB if found else None


def disks() -> Iterator[Finding]:
    """Say how much is free where runs, Ray and models put files."""
    places: dict[int, tuple[str, Path]] = {}
    for use, path in (
        ("what is below this folder", Path.cwd()),
        ("Ray's files", Path(temporary_folder())),
        ("models of the hub", Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()),
    ):
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        device = there.stat().st_dev
        places[device] = (f"{places[device][0]}, {use}" if device in places else use, there)
    for uses, path in places.values():
        usage = shutil.disk_usage(path)
        yield judge_disk(uses, usage.total / GIB, usage.free / GIB)
    shared = Path("/dev/shm")
    if shared.is_dir() and (free := shutil.disk_usage(shared).free / GIB) < _LITTLE_SHARED_GIB:
        remedy = "give the container more (docker run --shm-size=8g): Ray keeps objects there, else on a disk"
        yield Finding("shared memory", State.warning, f"{free:.1f} GiB free in /dev/shm", remedy, {"free_gib": free})


def judge_disk(uses: str, total_gib: float, free_gib: float) -> Finding:
    """Return what is to say of a disk that is used for this."""
    found, facts = (
        f"{free_gib:,.1f} GiB free for {uses}",
        {"free_gib": round(free_gib, 2), "total_gib": round(total_gib, 2)},
    )
    if free_gib < _NO_DISK_GIB:
        return Finding("disk", State.problem, found, "free some, or work elsewhere: nothing can be written", facts)
    if free_gib < min(_LITTLE_DISK_GIB, total_gib / 2) or free_gib < (1 - _MOST_FULL) * total_gib:
        remedy = "free some: models need it, and Ray spills nothing to a disk that is more than 95 % full"
        return Finding("disk", State.warning, found, remedy, facts)
    return Finding("disk", State.ok, found, facts=facts)


def temporary_folder() -> str:
    """Return where Ray puts its files, without having it do so."""
    return os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
