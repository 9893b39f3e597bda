"""The weights of a spec's models: a plan does without them, a run begins with all of them or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from biaseval.cache import is_remote
from biaseval.errors import Problems
from biaseval.pipelines.kind import AnyKind, Inputs
from biaseval.spec import AnySpec


def read_with_weights(kind: AnyKind, spec: AnySpec) -> Inputs:
    """Return what planning a run starts from, whose models have their weights; remote ones are fetched.

    Raises:
        InputError: bad input; the message has all of it.
    """
    from biaseval.models import check_weights

    problems = Problems()
    for path in _loaded(spec):
        with problems.noted():
            check_weights(path)
    with problems.noted():
        inputs: Inputs = kind.read(spec)
    problems.refuse()
    return inputs


def weights_notes(spec: AnySpec) -> list[str]:
    """Return what a plan says of weights that a run will need and that are not there; remote ones are not looked at."""
    from biaseval.models import check_weights

    problems = Problems()
    for path in _loaded(spec):
        if not is_remote(path):
            with problems.noted():
                check_weights(path)
    return [f"note: a run begins when the weights are there: {problem}" for problem in problems.found]


def _loaded(spec: AnySpec) -> Iterator[str]:
    """Yield the path of each model whose weights are read, once."""
    paths = {
        section.path: None for section in spec.models_used().values() if getattr(section, "init", None) != "random"
    }
    yield from (path for path in paths if path is not None)
