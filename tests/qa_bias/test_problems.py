"""What is wrong with the inputs of a QA-bias run comes in one message."""

from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.runs import describe
from biaseval.spec import load_spec


def test_question_files_and_models_that_cannot_be_read_are_said_together(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "spec.yaml").write_text(f"""
kind: qa_bias
name: x
models: [{{name: one, path: {tmp_path}/no-model}}]
datasets: {{in_distribution: {{squad: {tmp_path}/broken.json}}, out_of_distribution: {{other: {tmp_path}/absent.json}}}}
heuristics: [word_dist]
""")
    with pytest.raises(InputError) as raised:
        describe(load_spec(tmp_path / "spec.yaml"))
    assert [problem.split(": ")[0] for problem in raised.value.problems] == [
        f"{tmp_path}/broken.json",
        f"{tmp_path}/absent.json",
        "one",
    ]
