"""Packages that only some specs need: what is not installed is said before anything is planned, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from biaseval.errors import InputError
from biaseval.qa_bias.heuristics import resources_of
from biaseval.spec import AnySpec, InstructSpec, QaBiasSpec, SearchSpec

_TRAIN = ("train", ("peft", "deepspeed"))
_ADAPTERS = ("train", ("peft",))
_QA = {"text": "nltk", "tfidf": "sklearn", "annotator": "spacy"}
"""What each resource of heuristics is made of."""


def refuse_missing_extras(spec: AnySpec) -> None:
    """Make sure that the packages are installed that a spec needs beside those of every installation.

    Raises:
        InputError: some are not; the message names the extra that has them.
    """
    missing: dict[str, list[str]] = {}
    for why, extra, packages in _needed(spec):
        if lacking := [name for name in packages if not _is_installed(name)]:
            line = f"{why} needs {' and '.join(lacking)}, which {'are' if len(lacking) > 1 else 'is'} not installed"
            missing.setdefault(extra, []).append(line)
    problems = [f"{'; '.join(lines)}: pip install 'biaseval[{extra}]'" for extra, lines in missing.items()]
    if problems:
        raise InputError.of(problems)


def _needed(spec: AnySpec) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield what needs packages, their extra, and the packages."""
    if isinstance(spec, SearchSpec):
        yield from _needed(spec.spec)
        return
    if isinstance(spec, InstructSpec):
        yield "kind: instruct", *_TRAIN
    for section in ("lora", "train"):
        if getattr(spec, section, None) is not None:
            yield section, *_TRAIN
    for place, model in spec.models_used().items():
        if getattr(model, "adapter", None) is not None:
            yield f"{'.'.join(place)}.adapter", *_ADAPTERS
    if isinstance(spec, QaBiasSpec):
        resources = resources_of(spec.heuristics)
        packages = [name for resource, name in _QA.items() if resource in resources]
        if spec.text.spacy is None and "spacy" in packages:  # rules of our own stand in for it
            packages.remove("spacy")
        yield "heuristics", "qa", tuple(packages)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        return False
