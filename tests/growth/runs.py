"""What is asked of runs that grow."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from biaseval.analysis import query
from biaseval.spec import LabelBiasSpec
from biaseval.store import Run
from tests.alike import assert_alike
from tests.label_bias.test_own_data import spec_of
from tests.test_pipelines import digests

SpecOf = Callable[..., LabelBiasSpec]
"""Numbers of demonstrations, and sections, to a spec."""

BY_TASK = "from label_bias_by_task order by all"

TABLES = ("prompts", "contexts", "splits", "tasks", "label_scores", "settings", "qa_examples", "qa_attributes")


def kept(run: Run) -> dict[str, str]:
    """Return the digests of what is planned and made."""
    return {name: digest for name, digest in digests(Path(run.uri)).items() if name.startswith(TABLES)}


def rows(run: Run, question: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query([run.uri], question).to_pylist()
    return found


def own_spec(folder: Path, model: Path, *, prompt: dict[str, Any], **changes: Any) -> LabelBiasSpec:
    base = {"model": {"path": str(model)}, "data": {"test": str(folder / "test.csv")}}
    return spec_of(folder, **base, prompt={"demo_sets": 1, **prompt}, **changes)


def assert_same_answers(run: Run, other: Run, *questions: str) -> None:
    for question in questions:
        assert_alike(rows(run, question), rows(other, question))
