"""What is said of a query that had no row because of its texts."""

from __future__ import annotations

import pytest

from biaseval.analysis.unmatched_literals import vain_literals
from tests.commands import call
from tests.compare.runs import label_plan, make


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make(label_plan({"task1": "11110000"}), tmp_path_factory.mktemp("runs") / "a")


PURPOSES = "no row has purpose = {}; it has bias_score, main"


@pytest.mark.parametrize(
    ("sql", "sentences"),
    [
        ("from prompts where purpose = 'mian'", [PURPOSES.format("'mian'")]),
        ("from prompts p where p.PURPOSE='mian' or purpose = 'mian'", [PURPOSES.format("'mian'")]),
        ("from prompts where purpose in ('mian', 'main', 'it''s')", [PURPOSES.format("'mian' or 'it's'")]),
        ("from prompts where purpose = 'main' and gold = 'z'", ["no row has gold = 'z'; it has a, b"]),
        ("from prompts where purpose = 'main' and row < 0", []),
        ("from prompts where purpose not in ('mian') and row < 0", []),
        ("from prompts where lower(purpose) = 'mian' and row <> 1", []),
        ("select 1 where 'purpose' = 'mian'", []),
    ],
)
def test_texts_that_no_row_has_are_named_with_those_that_there_are(run: str, sql: str, sentences: list[str]) -> None:
    assert vain_literals([run], sql) == sentences


def test_the_command_says_so_on_standard_error_where_there_is_no_row(
    run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = call(capsys, monkeypatch, "sql", run, "from prompts where purpose = 'mian'", "--format", "json")
    assert (wrong.code, wrong.out) == (0, "[]\n")
    assert wrong.err == "note: no row has purpose = 'mian'; it has bias_score, main\n"
    right = call(capsys, monkeypatch, "sql", run, "select count(*) as n from prompts where purpose = 'main'")
    assert (right.code, right.err) == (0, "")


@pytest.mark.parametrize("what", ["avg(rsd)", "count(*)", "max(accuracy), count(*)"])
def test_an_aggregate_of_no_row_names_the_texts_too(
    what: str, run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages write CC, and SQL cc."""
    asked = call(capsys, monkeypatch, "sql", run, f"select {what} from label_bias_by_task where method = 'NONE'")
    assert asked.code == 0
    assert "note: no row has method = 'NONE'; it has none" in asked.err
    right = call(capsys, monkeypatch, "sql", run, f"select {what} from label_bias_by_task where method = 'none'")
    assert right.err == ""
