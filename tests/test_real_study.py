"""A study on real questions in its smallest form: what a tiny random encoder learns of them is no finding."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.runs import run_spec, run_status
from biaseval.spec import load_spec
from biaseval.store import Run
from biaseval.training.checkpoints import newest_checkpoint
from tests.inprocess import in_this_process
from tests.pages import page_of
from tests.realstudy import write_study

pytestmark = pytest.mark.timeout(900)

N_MEASURED = 240
_METHODS = ("resample", "learned_mixin", "confidence_regularization", "product_of_experts")


@pytest.mark.slow
def test_a_study_on_real_questions_goes_from_texts_to_a_report(tmp_path: Path, shared: Path) -> None:
    data = shared / "data" / "qa"
    with gzip.open(data / "squad_dev.jsonl.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()[:: 10570 // N_MEASURED][:N_MEASURED]
    (tmp_path / "dev.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    others = (data / "naturalquestions_dev.jsonl").read_text(encoding="utf-8").splitlines()[:60]
    (tmp_path / "nq.jsonl").write_text("".join(f"{line}\n" for line in others), encoding="utf-8")
    path = write_study(tmp_path, shared, n_questions=300)
    with in_this_process():
        run = run_spec(load_spec(path), str(tmp_path / "run"))
    found = query([run.uri], "select model, n_rows, exact_match from qa_by_dataset where dataset = 'squad'").to_pylist()
    by_model = {row["model"]: row for row in found}
    assert len(by_model) == 2 + 1 + 2 * 2
    people = query([run.uri], "select distinct dataset from qa_predictions where model = 'people'").to_pylist()
    assert people == [{"dataset": "squad"}]
    plan = json.loads(run.read_text("plan.json"))
    left_out = "people: naturalquestions lists no answer twice: alternatives, not several people's; left out"
    assert left_out in plan["notes"]
    assert all(row["n_rows"] == N_MEASURED for name, row in by_model.items() if name != "people")
    assert 0.7 < by_model["people"]["exact_match"] < 1
    segments = query([run.uri], "select bias, n_lower + n_higher + n_undefined as n from qa_segments").to_pylist()
    assert {row["bias"]: row["n"] for row in segments} == {"word_dist": 300, "ans_len": 300}
    [windows] = query([run.uri], "from qa_training_windows").to_pylist()
    assert windows["n_questions"] == 300 < windows["n_windows"]
    assert windows["n_without"] > 0
    assert f" tiny squad 300 {windows['n_windows']:,} {windows['n_without']:,} " in page_of(run).text


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif("BIASEVAL_STUDIES" not in os.environ, reason="takes about half an hour; set BIASEVAL_STUDIES=1")
def test_the_whole_study_ends_although_it_is_killed(tmp_path: Path, shared: Path) -> None:
    """Ten thousand questions, every method, two biases, two data sets; killed while it trains, and gone on with."""
    for name in ("squad_dev.jsonl.gz", "naturalquestions_dev.jsonl"):
        shutil.copy(shared / "data" / "qa" / name, tmp_path)
    with gzip.open(tmp_path / "squad_dev.jsonl.gz", "rb") as packed:
        (tmp_path / "dev.jsonl").write_bytes(packed.read())
    (tmp_path / "naturalquestions_dev.jsonl").rename(tmp_path / "nq.jsonl")
    steps = {"max_steps": 300}
    path = write_study(
        tmp_path,
        shared,
        n_questions=10_000,
        width=128,
        methods=["standard", *_METHODS],
        bias_model={"learning_rate": 1e-3, **steps},
        evaluation_steps=60,
        evaluation_questions=500,
        checkpoint_steps=75,
        **steps,
        **dict.fromkeys(_METHODS[1:], steps),
    )
    command = [sys.executable, "-m", "biaseval", "run", str(path), "--run-dir", str(tmp_path / "run")]
    run = Run.open(str(tmp_path / "run"))
    with subprocess.Popen(command, start_new_session=True) as process:
        while process.poll() is None and newest_checkpoint(run, "checkpoints/00000") is None:
            time.sleep(1)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
    checkpoint = newest_checkpoint(run, "checkpoints/00000")
    assert checkpoint is not None
    assert not run_status(run.uri).is_complete
    done = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    assert f"resuming: tiny: {checkpoint.n_steps} steps are made" in done.stderr
    assert run_status(run.uri).is_complete
    readers = query([run.uri], "select problem from trained_models").to_pylist()
    assert len(readers) == 1 + 2 + 2 * len(_METHODS)
    assert all(row["problem"] is None for row in readers)
    measured = query([run.uri], "select model, dataset, n_rows, n_missing from qa_by_dataset").to_pylist()
    assert len(measured) == 2 * (1 + 1 + 2 * len(_METHODS)) + 1
    assert {row["n_missing"] for row in measured if row["model"] != "people"} == {0}
    [better] = query([run.uri], _BETTER).to_pylist()
    assert better["f1"] - 3 * better["error"] > 0
    assert "tiny+learned_mixin(ans_len)" in run.read_text("report.html")


_BETTER = """
with
answers as (
    select article, standard.f1 - untrained.f1 as better
    from qa_predictions as standard
    inner join qa_predictions as untrained using (dataset, example_id)
    inner join qa_articles using (dataset, example_id)
    where standard.model = 'tiny' and untrained.model = 'untrained' and dataset = 'squad'
),
articles as (
    select sum(better - (select avg(better) from answers)) as moved
    from answers
    group by article
)
select
    (select avg(better) from answers) as f1,
    sqrt(sum(power(moved, 2)) * count(*) / (count(*) - 1)) / (select count(*) from answers) as error
from articles
"""
"""How much more F1 the standard reader has than an untrained one, with its error over articles."""
