"""Packages that only some specs need: a missing one stops the run before planning, with the command to install it."""

from collections.abc import Iterator
from importlib.util import find_spec

from biaseval.errors import how_to_install, refuse
from biaseval.pipelines.kind import AnyKind, Need
from biaseval.spec import AnySpec

TRAINING = ("train", ("peft", "deepspeed"))
"""The extra, and its packages."""

_ADAPTERS = ("train", ("peft",))


def refuse_missing_extras(kind: AnyKind, spec: AnySpec) -> None:
    """Make sure that the packages are installed that a spec needs beside those of every installation.

    Raises:
        InputError: some are not; the message names the extra that has them.
    """
    missing: dict[str, list[str]] = {}
    for need in needs_of(kind, spec):
        if lacking := [name for name in need.packages if not _is_installed(name)]:
            named = " and ".join(filter(None, (", ".join(lacking[:-1]), lacking[-1])))
            line = f"{need.why} {named}, which {'are' if len(lacking) > 1 else 'is'} not installed"
            missing.setdefault(need.extra, []).append(line)
    problems = [f"{'; '.join(lines)}; {how_to_install(extra)}" for extra, lines in missing.items()]
    refuse(problems)


def needs_of(kind: AnyKind, spec: AnySpec) -> Iterator[Need]:
    """Yield what a spec needs: its kind, its trainings, its adapters."""
    yield from kind.needs(spec)
    for section in ("lora", "train"):
        if getattr(spec, section, None) is not None:
            yield Need(f"{section} needs", *TRAINING)
    for place, model in spec.models_used().items():
        if getattr(model, "adapter", None) is not None:
            yield Need(f"{'.'.join(place)}.adapter needs", *_ADAPTERS)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
