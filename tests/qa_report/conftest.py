"""The run whose page is read."""

import json

import pytest

from biaseval.runs import write_report
from biaseval.store import Run
from tests.qa_report.runs import make_run
from tests.specs import write_plan


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "qa")
    notes = [f"note {number}: <approximate> entities" for number in range(8)]
    write_plan(run, notes=notes, models=[{"name": "strong", "n_questions": 260, "n_parameters": 1234567}])
    text = {"entities and subjects": {"name": "spaCy en_core_web_sm 3.8.0", "is_approximate": False}}
    run.write_text("environment.json", json.dumps({"versions": {"biaseval": "0.1.0"}, "text": text}))
    write_report(run.uri)
    return run
