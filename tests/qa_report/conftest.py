"""The run whose page is read."""

from __future__ import annotations

import json

import pytest

from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.runs import write_report
from biaseval.store import Run
from tests.qa_report.runs import make_run
from tests.specs import write_plan


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "qa")
    notes = [f"note {number}: <approximate> entities" for number in range(8)]
    write_plan(run, notes=notes, models=[{"name": "strong", "n_questions": 260, "n_parameters": 1234567}])
    environment = {
        "versions": {"biaseval": "0.1.0"},
        "hardware": {"cpu": "some", "n_cores": 2},
        "models": {"strong": {"digest": "ab" * 32, "model": {"files": {"config.json": "cd" * 32}}}},
        "inputs": {"datasets.squad": "ef" * 32},
        "text": {
            "sentences and words": {"name": "Punkt with parameters by hand", "is_approximate": True},
            "entities and subjects": {"name": "spaCy en_core_web_sm 3.8.0", "is_approximate": False},
        },
    }
    run.write_text("environment.json", json.dumps(environment))
    write_report(run.uri)
    return run


@pytest.fixture(scope="session")
def findings(run: Run) -> QaFindings:
    return read_qa_findings(run)
