"""Gates: `biaseval check`, its language, its exit codes and its files."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.fs as pafs
import pytest

from biaseval.analysis import query
from biaseval.analysis.gates import check_run
from biaseval.errors import InputError
from biaseval.store import Run
from tests.commands import Command
from tests.compare.runs import HITS, label_plan, make


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return two label-bias runs over the same seven tasks, the second of which is right more often."""
    folder = tmp_path_factory.mktemp("runs")
    plans = [label_plan({task: hits[side] for task, hits in HITS.items()}, n_demos=(0, 2)) for side in (0, 1)]
    return [make(plan, folder / name) for plan, name in zip(plans, ("first", "other"), strict=True)]


def test_a_gate_holds_where_every_selected_row_meets_it(runs: list[str]) -> None:
    least, most = query([runs[0]], "select min(rsd), max(rsd) from label_bias_by_model").to_pylist()[0].values()
    checked = check_run(runs[0], [f"rsd <= {most!r}", f"rsd < {most!r}", "accuracy > 0 where n_demos = 2"])
    assert ([gate.holds for gate in checked.gates], checked.holds) == ([True, False, True], False)
    assert checked.gates[0].ranges == {"rsd": [least, most]}
    assert [(gate.mart, gate.n_rows) for gate in checked.gates] == [("label_bias_by_model", n) for n in (2, 2, 1)]
    assert [row["rsd"] for row in checked.gates[1].failed] == [most] * checked.gates[1].n_failed
    # A row that falls says which it is and what it has; a value that is null falls, and says so.
    null = "label_bias_by_task.rsd_floor > nullif(n_rows, n_rows)"
    low, unknown = check_run(runs[0], ["label_bias_by_task.accuracy > 0.9 where task = 'task4'", null]).gates
    assert low.failed == [{"task": "task4", "n_demos": n, "accuracy": 0.25} for n in (0, 2)]
    assert (unknown.holds, unknown.n_failed, unknown.n_null) == (False, unknown.n_rows, unknown.n_rows)


def test_conditions_are_sql(runs: list[str]) -> None:
    held = [
        "accuracy >= majority_accuracy or is_below_majority", "rsd between 0 and 10",
        "abs(label_bias_by_task.rsd) < 99", "method in ('none', 'where')",
        "RSD < 99 WHERE method = 'none' and (select count(*) from tasks where task <> 'where') = 7",
        "rsd <= 10 * (select max(t.rsd) from label_bias_by_task as t)",
        "n_tasks = 7 where method = 'none' -- of the suite", "accuracy > 0 where model <> 'größer, where'",
    ]  # fmt: skip
    checked = check_run(runs[0], held)
    assert checked.holds
    assert [gate.mart for gate in checked.gates if gate.mart != "label_bias_by_model"] == ["label_bias_by_task"]


def test_a_ready_made_gate_says_where_too_few_rows_tell(tmp_path: Path, command: Command) -> None:
    """Four rows, all right: that may be luck."""
    run = make(label_plan({"few": "1111"}, golds="aabb"), tmp_path / "few")
    for preset in ("unbiased", "better-than-constant"):
        [gate] = check_run(run, [], presets=[preset]).gates
        assert (gate.holds, gate.n_rows, gate.n_unshown) == (True, 1, 1)
    printed = command("check", run, "--preset", "unbiased", "--junit", str(tmp_path / "gates.xml"))
    assert (printed.code, "too few rows to tell in 1" in " ".join(printed.out.split())) == (0, True)
    assert "<system-out>too few rows to tell in 1</system-out>" in (tmp_path / "gates.xml").read_text()


WRONG = {
    "rds < 0.5": "label_bias_by_model has no column rds; did you mean rsd?",
    "rsd < 0.5 where metod = 'none'": "label_bias_by_model has no column metod; did you mean method?",
    "recall_p > 0": "label_bias_by_model has no column recall_p; format_labels, label_bias_by_label has:",
    "label_bias_by_tsk.rsd < 1": "there is no label_bias_by_tsk; did you mean label_bias_by_task?",
    "rsd < 0.5 where method = 'dcc'": "label_bias_by_model has no such row; method is one of none",
    "rsd": "is a value and no condition; compare it, as in accuracy > 0.5",
    "rsd <": "cannot be evaluated: syntax error",
    "": "is no condition; write one such as accuracy > 0.5",
    "rsd[method = 'none'] < 1": "cannot be evaluated: ",
    "rsd < 1; select 1": 'cannot be evaluated: syntax error at or near ";"',
    "label_bias_by_task.rsd < label_bias_by_model.rsd": (
        "is over label_bias_by_task and label_bias_by_model; a condition is over the rows of one"
    ),
}


def test_all_mistakes_come_in_one_message_that_says_what_there_is(runs: list[str]) -> None:
    with pytest.raises(InputError) as raised:
        check_run(runs[0], [*WRONG, "rsd < 99"])
    assert len(raised.value.problems) == len(WRONG)
    for problem, (expression, expected) in zip(raised.value.problems, WRONG.items(), strict=True):
        assert problem.startswith(f"{expression!r}: {expected}")
        assert len(problem.splitlines()) == 1


def test_an_expression_can_neither_write_nor_read_outside_the_run(runs: list[str], tmp_path: Path) -> None:
    secret, written = tmp_path / "secret.csv", tmp_path / "written.csv"
    secret.write_text("a\n1\n")
    evil = [
        f"(select count(*) from read_csv('{secret}')) = 1", f"(select count(*) from '{secret}') = 1",
        f"(select count(*) from read_text('{runs[1]}/spec.yaml')) = 1", f"rsd < 1; copy (select 1) to '{written}'",
        f"rsd < 1) from tasks; copy (select 1) to '{written}'; select (1",
        "rsd < 1) from tasks; set enable_external_access = true; select (1", f"(copy (select 1) to '{written}') = 1",
        f"(select count(*) from read_csv('{secret}')) = 1 where rsd < 99",
        f"rsd < 99 where (select count(*) from read_csv('{secret}')) = 1",
    ]  # fmt: skip
    with pytest.raises(InputError) as raised:
        check_run(runs[0], evil)
    assert len(raised.value.problems) == len(evil)
    with pytest.raises(InputError) as raised:
        check_run(runs[1], [*evil, "accuracy > 0 and rsd < 0", "label_bias_by_model.rsd > 0"], against=runs[0])
    *refused, several, other = raised.value.problems
    assert len(refused) == len(evil)
    assert several.endswith("is about accuracy and rsd; a difference is of one metric, give a condition for each")
    assert other.endswith("there is no label_bias_by_model; there is differences")
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_gates_of_a_run_in_a_bucket_reach_nothing_else(runs: list[str], object_store: str, tmp_path: Path) -> None:
    store = Run.open(f"{object_store}/gates/run")
    pafs.copy_files(runs[0], store.root, destination_filesystem=store.fs)
    assert check_run(store.uri, ["rsd < 99", "(select count(*) from prompts) > 0"]).holds
    Run.open(f"{object_store}/gates").write_text("other.csv", "a\n1\n")
    (tmp_path / "local.csv").write_text("a\n1\n")
    outside = (f"{object_store}/gates/other.csv", str(tmp_path / "local.csv"))
    with pytest.raises(InputError) as raised:
        check_run(store.uri, [f"(select count(*) from read_csv('{file}')) = 1" for file in outside])
    assert len(raised.value.problems) == 2


def test_against_another_run_gates_are_about_differences(runs: list[str]) -> None:
    first, other = (sum(hits[side].count("1") / len(hits[side]) for hits in HITS.values()) for side in (0, 1))
    difference = (other - first) / len(HITS)
    checked = check_run(
        runs[1],
        [
            f"accuracy between {difference - 1e-9} and {difference + 1e-9}",
            "accuracy_low > 0 and accuracy_low < accuracy and accuracy < accuracy_high",
            "accuracy_low < verdict_low where n_demos = 2", "accuracy_verdict = 'higher' and accuracy_p < 0.05",
            "verdict <> 'lower' where metric in ('accuracy', 'macro_f1')",
        ],
        against=runs[0],
    )  # fmt: skip
    assert [gate.holds for gate in checked.gates] == [True, True, False, True, True]
    assert [gate.n_rows for gate in checked.gates] == [2, 2, 1, 2, 4]
    [row] = checked.gates[2].failed
    assert row == {"n_demos": 2, "accuracy_low": row["verdict_low"], "verdict_low": row["accuracy_low"]}


def test_the_command_exits_with_3_where_a_gate_falls(runs: list[str], tmp_path: Path, command: Command) -> None:
    held, fallen = "rsd < 99 where model <> '<\x01&\"'", "accuracy > 2 or false"
    found = command("check", runs[0], held, fallen, "--junit", str(tmp_path / "out" / "gates.xml"))
    assert (found.code, found.err) == (3, "")
    assert "FAILED" in found.out
    assert "n_demos 0, accuracy 0." in found.out
    suites = ElementTree.parse(tmp_path / "out" / "gates.xml").getroot()
    [suite] = suites
    assert (suites.tag, suite.tag) == ("testsuites", "testsuite")
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("2", "1")
    passed, failed = suite
    assert (passed.attrib["name"], len(passed)) == (held.replace("\x01", "\N{REPLACEMENT CHARACTER}"), 0)
    [failure] = failed
    assert (failed.attrib["name"], failure.attrib["message"]) == (fallen, "not met by 2 of 2 rows")
    assert len((failure.text or "").splitlines()) == 2
    as_json = command("check", runs[0], held, "accuracy > 2", "--json")
    content = json.loads(as_json.out)
    assert (as_json.code, content["holds"], [gate["holds"] for gate in content["gates"]]) == (3, False, [True, False])
    assert [command("check", runs[0], *own).code for own in ([held], ["acuracy > 1"], [])] == [0, 2, 2]
