"""Whole searches that train readers: what is shared, who is stopped, and kills."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from biaseval.demo import READER_PATH
from biaseval.runs import describe, run_spec, run_status
from biaseval.spec import QaBiasSpec, load_spec
from biaseval.store import Run
from tests.inprocess import in_this_process
from tests.processes import killed_in_the_end, wait_until
from tests.searches import searched, write_file
from tests.smallstudy import generated, trained
from tests.smallstudy import write_spec as write_study
from tests.test_search_pipeline import copy_of, rows, stamps, trials

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


SCALE, PENALTY = "train.learned_mixin.bias_scale", "train.learned_mixin.entropy_penalty"
N_STEPS = 12
SEED = 9
"""Draws small and large penalties by turns at first."""


def write_study_search(folder: Path, **changes: Any) -> Path:
    """Write a search that trains one reader a trial, from one that can read; a large penalty makes it forget that."""
    write_study(
        folder,
        READER_PATH,
        datasets={"in_distribution": {"plain": generated(60, 0.0)}},
        heuristics=["ans_pos"],
        thresholds={"ans_pos": 0},
        train={
            "methods": ["standard", "learned_mixin"], "learned_mixin": {"max_steps": N_STEPS}, "learning_rate": 1e-2,
            "evaluation_steps": 3,
        },
    )  # fmt: skip
    content = {
        "spec": "spec.yaml", "search": {SCALE: {"uniform": [0.1, 1.0]}, PENALTY: {"choice": [0.03, 1000.0]}},
        "objective": {"sql": "select f1 from qa_by_dataset where model = 'bert+learned_mixin'", "maximize": True},
        "trials": 4, "batch": 2, "stop_early": {"grace_steps": 3, "reduction": 2}, "seed": SEED, **changes,
    }  # fmt: skip
    return write_file(folder / "search.yaml", searched(**content))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a search of a study that trains readers."""
    folder = tmp_path_factory.mktemp("study")
    spec = write_study_search(folder)
    with in_this_process():
        run_spec(load_spec(spec), str(folder / "run"))
    return spec, folder / "run"


def test_what_trials_share_is_trained_once(study: tuple[Path, Path]) -> None:
    run_dir = study[1]
    assert list(trained(run_dir / "shared")) == ["bert", "bert+bias_model"]
    shared = run_dir / "shared" / "trained_models" / "part-00000.parquet"
    for number in range(4):
        own = run_dir / "trials" / f"{number:05d}"
        assert shared.samefile(own / "trained_models" / "part-00000.parquet")
    [found] = rows(run_dir, "select shared_steps, steps from search_best")
    # Six steps of the standard reader and six of the bias model, once.
    assert found["shared_steps"] == 6 + 6
    assert found["steps"] == sum(row["steps"] for row in trials(run_dir))
    assert trials(run_dir)[0]["steps"] == N_STEPS


def test_readers_that_fall_behind_earlier_ones_are_stopped(study: tuple[Path, Path]) -> None:
    run_dir = study[1]
    at_three = {
        row["trial"]: row["f1"] for row in rows(run_dir, "select trial, f1 from trial_evaluations where n_steps = 3")
    }
    found = trials(run_dir)
    assert [row["state"] for row in found[:2]] == ["done", "done"]  # there is nothing to compare them with
    cutoff = (at_three[0] + at_three[1]) / 2
    assert at_three[3] < cutoff <= at_three[2]
    assert [row["state"] for row in found[2:]] == ["done", "stopped"]
    stopped = found[3]
    assert (stopped["steps"], stopped["objectives"], stopped["evaluation"]) == (3, None, None)
    asked = f"F1 {at_three[3]:.4f} on validation, and the search asks for {cutoff:.4f}"
    assert stopped["problem"].endswith(f"stopped early after 3 steps: {asked}")
    [best] = rows(run_dir, "select n_done, n_stopped, n_failed from search_best")
    assert best == {"n_done": 3, "n_stopped": 1, "n_failed": 0}
    # A reader that was stopped answers nothing.
    answers = [set(Run.open(str(run_dir / "trials" / n)).read_table("qa_predictions")["model"].to_pylist())
               for n in ("00002", "00003")]  # fmt: skip
    assert answers == [{"bert", "bert+learned_mixin"}, {"bert"}]


def test_a_plan_says_what_training_a_search_costs(study: tuple[Path, Path]) -> None:
    lines = dict(describe(load_spec(study[0])).lines)
    # Of four trials the first two train twelve steps each, and the others three at least.
    assert lines["trained once, for all"] == "2 readers, 12 steps"
    assert lines["trained in each trial"] == "1 readers, 12 steps"
    assert lines["steps of the search"] == "60"
    assert lines["steps, if all that may be are stopped first"] == "42"


def test_a_search_that_is_killed_goes_on_to_the_trials_of_an_undisturbed_one(
    study: tuple[Path, Path], tmp_path: Path
) -> None:
    """The second batch is begun anew, and killed in its second trial; the sampler hears again of those that ended."""
    run_dir = copy_of(study[1], tmp_path)
    before, times = trials(run_dir), stamps(run_dir)
    for number in (2, 3):
        (run_dir / "trials" / f"part-{number:05d}.parquet").unlink()
        shutil.rmtree(run_dir / "trials" / f"{number:05d}")
    (run_dir / "report.html").unlink()
    third = run_dir / "trials" / "part-00002.parquet"

    def is_time() -> bool:
        return third.exists() and any((run_dir / "trials" / "00003").glob("training/part-*.parquet"))

    code = "from biaseval.cli import main; from tests.inprocess import in_this_process as here\nwith here(): main()"
    with killed_in_the_end(code, "tune", str(study[0]), "--run-dir", str(run_dir)) as process:
        wait_until(is_time, process)
    assert stamps(run_dir).keys() == {*times, third.name} - {"part-00003.parquet"}
    times[third.name] = third.stat().st_mtime_ns
    assert not run_status(str(run_dir)).is_complete
    with in_this_process():
        run_spec(load_spec(study[0]), str(run_dir))
    assert trials(run_dir) == before
    after = stamps(run_dir)
    assert {name for name in after if after[name] == times[name]} == {
        f"part-0000{number}.parquet" for number in range(3)
    }
    assert run_status(str(run_dir)).is_complete
    assert isinstance(load_spec(run_dir / "best.yaml"), QaBiasSpec)
    assert all(row["seconds"] > 0 for row in rows(run_dir, "from trials"))
