"""A study on real questions in its smallest form: what a tiny random encoder learns of them is no finding."""

import gzip
import json
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.runs import run_spec
from biaseval.spec import load_spec
from tests.inprocess import in_this_process
from tests.pages import page_of
from tests.realstudy import write_study

pytestmark = pytest.mark.timeout(900)

N_MEASURED = 240


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
