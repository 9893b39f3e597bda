"""The main path through the stages of a run, whatever they make; here they write small files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import ray

from biaseval.errors import BiasevalError
from biaseval.execute.cluster import Cluster
from biaseval.pipelines.kind import AnyKind
from biaseval.pipelines.labels.label_bias import LABEL_BIAS
from biaseval.pipelines.run import make_missing
from biaseval.spec import ExecutionSpec
from biaseval.store import Run
from biaseval.units import Done, Unit, missing_units

ADAPTERS = [
    Unit(0, 1, ("adapters/a/config.json",), products=("scores/0", "scores/1")),
    Unit(1, 1, ("adapters/b/config.json",), products=("scores/2",)),
]
SCORES = [Unit(number, 10, (f"scores/{number}",)) for number in range(3)]


@dataclass
class WritingStage:
    """Writes its own name into the files of its units."""

    noun: str
    units: Sequence[Unit]
    gives_up: frozenset[int] = frozenset()
    forgets: frozenset[int] = frozenset()
    verb: str = "written"
    made: list[int] = field(default_factory=list)

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        for unit in missing:
            self.made.append(unit.number)
            if unit.number in self.forgets:
                continue
            if unit.number not in self.gives_up:
                for name in unit.files:
                    run.write_text(name, f"new {self.noun}")
            yield Done(unit, facts={"is_complete": unit.number not in self.gives_up, "n_steps": 2, "loss": 0.0})


def make(run: Run, *stages: WritingStage, kind: AnyKind | None = LABEL_BIAS) -> list[int]:
    """Return the numbers of what was made or given up."""
    done = make_missing(run, stages, ExecutionSpec(), kind)
    return [one.unit.number for one in done]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run.open(str(tmp_path / "run"))
    run.create()
    return run


def test_stages_are_made_in_order_and_once_without_a_cluster_that_none_asks_for(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray, "init", lambda **options: pytest.fail("nothing needs Ray"))
    adapters, scores = WritingStage("adapters", ADAPTERS), WritingStage("rows", SCORES)
    assert make(run, adapters, scores) == [0, 1, 0, 1, 2]
    assert make(run, adapters, scores) == []
    said = capsys.readouterr().err
    assert "all 2 adapters are written already" in said
    assert "all 30 rows are written already" in said
    run.delete("scores/1")
    assert make(run, adapters, scores) == [1]
    assert "resuming: 20 of 30 rows are written" in capsys.readouterr().err


def test_what_came_of_a_lost_unit_does_not_stay_beside_what_comes_of_its_successor(run: Run) -> None:
    """Of one adapter a score is missing, so it is made anew, and all its scores; nothing needs the other."""
    for unit in SCORES:
        run.write_text(unit.files[0], "old")
    run.delete("scores/1")
    adapters, scores = WritingStage("adapters", ADAPTERS), WritingStage("rows", SCORES)
    assert make(run, adapters, scores) == [0, 0, 1]
    assert [run.read_text(unit.files[0]) for unit in SCORES] == ["new rows", "new rows", "old"]
    assert not run.has("adapters/b/config.json")
    # For itself, a stage is made whole.
    assert make(run, adapters, kind=None) == [1]


def test_what_is_given_up_ends_a_whole_run_before_the_next_stage(run: Run) -> None:
    units = [Unit(unit.number, 1, unit.files, {"adapter": f"t/k{unit.number}.s0"}) for unit in ADAPTERS]
    adapters, scores = WritingStage("adapters", units, gives_up=frozenset({1})), WritingStage("rows", SCORES)
    with pytest.raises(BiasevalError, match=r"1 adapters stopped .*t/k1.s0 \(step 1, loss 0"):
        make(run, adapters, scores)
    assert (adapters.made, scores.made) == ([0, 1], [])
    assert make(run, adapters, kind=None) == [1]


@dataclass
class HoldingStage(WritingStage):
    """Holds something while it is made."""

    is_held: bool = False

    def make(self, run: Run, missing: Sequence[Unit], cluster: Cluster) -> Iterator[Done]:
        self.is_held = True
        try:
            yield from super().make(run, missing, cluster)
        finally:
            self.is_held = False


def test_a_stage_that_is_left_holds_nothing_though_somebody_keeps_the_error(run: Run) -> None:
    def lost() -> None:
        if run.has(SCORES[0].files[0]):  # what writes it asks before
            raise BiasevalError("another process took it over")

    stage = HoldingStage("rows", SCORES)
    with pytest.raises(BiasevalError, match="took it over") as kept:
        make(replace(run, guard=lost), stage)
    assert kept.value.__traceback__ is not None
    assert (stage.made, stage.is_held) == ([0], False)


def test_nothing_is_left_out_silently(run: Run) -> None:
    scores = WritingStage("rows", SCORES, forgets=frozenset({2}))
    with pytest.raises(BiasevalError, match=r"1 of 3 parts missing or damaged \(first: scores/2\); run the same"):
        make(run, scores)
    assert missing_units(run, SCORES) == [SCORES[2]]
