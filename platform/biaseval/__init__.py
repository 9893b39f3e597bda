"""Measure label bias, majority-label bias and prediction bias of language models.

`run` makes a run and `open` asks finished ones. Both import what they need when they are called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biaseval.results import Results

__all__ = ["open", "run"]


def __dir__() -> list[str]:
    return __all__


def open(*runs: str | Path | Sequence[str | Path]) -> Results:
    """Return finished runs, to be asked: ``biaseval.open("runs/demo").df("label_bias_by_model")``.

    Of several, ``biaseval.open("runs/a", "runs/b")`` or a list of them, every table has the column ``run``.

    Args:
        runs: run directories, local or ``s3://``.

    Raises:
        InputError: there is no run, or of a kind that there is not.
        BiasevalError: a run is not finished.
    """
    from biaseval.results import Results

    return Results([run for each in runs for run in ([each] if isinstance(each, str | Path) else each)])


def run(spec: str | Path | Mapping[str, Any], run_dir: str | Path | None = None, **overrides: Any) -> Results:
    """Run a spec, as ``biaseval run`` does, and return the run, to be asked. The same call resumes.

    Args:
        spec: a YAML file, or what it would hold; relative paths in that are relative to the working directory.
        run_dir: local or ``s3://``; if left out, ``runs/NAME`` with the spec's name.
        overrides: keys of the spec to other values: ``seed=7``, ``**{"tasks.max_eval": 100}``.

    Raises:
        InputError: the spec has mistakes, which are all in one message, or other bad input.
        BiasevalError: something failed; what is complete stays.
    """
    import copy

    from biaseval.json_values import plain
    from biaseval.parsing import yaml_flow
    from biaseval.runs import run_spec
    from biaseval.spec import load_spec, spec_of

    changed = [f"{key}={yaml_flow(plain(value))}" for key, value in overrides.items()]
    if isinstance(spec, Mapping):
        loaded = spec_of(copy.deepcopy(dict(spec)), "spec", Path.cwd(), changed)
    else:
        loaded = load_spec(spec, changed)
    return open(run_spec(loaded, str(run_dir or f"runs/{loaded.name}")).uri)
