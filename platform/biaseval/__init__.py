"""Measure label bias, majority-label bias and prediction bias of language models.

`run` executes a spec, and `open` reads finished runs. Both import their dependencies at the first call.
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


def open(*runs: str | Path | Sequence[str | Path], files: Sequence[str | Path] = (), unsafe: bool = False) -> Results:
    """Open finished runs for queries: ``biaseval.open("runs/demo").df("label_bias_by_model")``.

    With several runs, ``biaseval.open("runs/a", "runs/b")`` or a list, every table has the column ``run``.

    Args:
        runs: run directories, or folders of runs, local or ``s3://``.
        files: local files or folders that queries may read beside the runs.
        unsafe: whether queries may read any file, and write.

    Raises:
        InputError: a directory holds no run, or a run of an unknown kind.
        BiasevalError: a run is not finished.
    """
    from biaseval.environment import runs_in
    from biaseval.results import Results

    named = [run for each in runs for run in ([each] if isinstance(each, str | Path) else each)]
    return Results([own for run in named for own in runs_in(str(run))], files, unsafe=unsafe)


def run(
    spec: str | Path | Mapping[str, Any], run_dir: str | Path | None = None, *, page: bool = True, **overrides: Any
) -> Results:
    """Run a spec of one model as ``biaseval run`` does, and return its run. The same call resumes a killed run.

    Args:
        spec: a YAML file, or its content as a mapping, whose relative paths start from the working directory.
        run_dir: a local path or ``s3://`` URI; by default ``runs/NAME`` with the spec's name.
        page: whether to write the report, its figures, its summary and ``results.duckdb``.
        overrides: new values for keys of the spec: ``seed=7``, ``**{"tasks.max_eval": 100}``.

    Raises:
        InputError: the spec has mistakes (one message lists all), or other input is bad.
        BiasevalError: a stage failed; complete parts stay.
    """
    import copy

    from biaseval.json_values import plain
    from biaseval.parsing import yaml_flow
    from biaseval.runs.commands import run_spec
    from biaseval.spec import load_spec, spec_of

    changed = [f"{key}={yaml_flow(plain(value))}" for key, value in overrides.items()]
    if isinstance(spec, Mapping):
        loaded = spec_of(copy.deepcopy(dict(spec)), "spec", Path.cwd(), changed)
    else:
        loaded = load_spec(spec, changed)
    return open(run_spec(loaded, str(run_dir or f"runs/{loaded.name}"), page=page).uri)
