"""The command line as a user meets it: help, exit codes, messages, formats."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from biaseval import cli
from tests.taskfiles import write_task
from tests.test_pipelines import digests, write_spec
from tests.tinymodels import make_llama, make_tokenizer


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    monkeypatch.setattr(sys, "argv", ["biaseval", *arguments])
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0
    captured = capsys.readouterr()
    return Result(code, captured.out, captured.err)


def _commands() -> list[list[str]]:
    root: Any = typer.main.get_command(cli.app)
    names = []
    for name, command in root.commands.items():
        names += [[name, sub] for sub in command.commands] if hasattr(command, "commands") else [[name]]
    return names


def test_the_commands_are_those_of_the_contract() -> None:
    assert {" ".join(names) for names in _commands()} >= {
        *("run", "plan", "score", "status", "sql", "report", "tasks check", "demo")
    }


@pytest.mark.parametrize("names", _commands(), ids=" ".join)
def test_each_help_ends_in_an_example(
    names: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = call(capsys, monkeypatch, *names, "--help")
    assert shown.code == 0
    assert f"Example: biaseval {' '.join(names)}" in shown.out


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(capsys, monkeypatch, "run").code == 2
    assert call(capsys, monkeypatch, "nonsense").code == 2
    assert call(capsys, monkeypatch, "sql", "one").code == 2


def _bad_model(folder: Path, what: str) -> Path:
    model = make_llama(folder / "model")
    if what == "no weights":
        (model / "model.safetensors").unlink()
    elif what == "no tokenizer":
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (model / name).unlink()
    elif what == "no EOS":
        tokenizer = make_tokenizer()
        tokenizer.eos_token = None
        tokenizer.save_pretrained(model)
    elif what == "short window":
        make_llama(model, window=40)
    return model


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("no weights", "model"),
        ("no tokenizer", "tokenizer"),
        ("no EOS", "EOS"),
        ("short window", "the model's window has 40"),
    ],
)
def test_a_model_that_cannot_score_is_refused_before_anything_is_scored(
    what: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, _bad_model(tmp_path, what))
    found = call(capsys, monkeypatch, "run", str(spec), "--run-dir", str(tmp_path / "run"))
    assert found.code == 2
    assert found.out == ""
    assert expected in found.err
    assert "Traceback" not in found.err
    assert not list((tmp_path).glob("run/label_scores/*"))


def test_bad_input_is_one_message_and_exit_code_2(
    tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, tiny_llama)
    (tmp_path / "file").write_text("x")
    before = digests(tmp_path)
    cases = {
        ("run", str(tmp_path / "absent.yaml")): "absent.yaml: cannot be read",
        ("run", str(spec), "--set", "sed=3"): "sed: unknown key; did you mean seed?",
        ("run", str(spec), "--set", "tasks.max_eval=many"): "tasks.max_eval: input should be a valid integer",
        ("run", str(spec), "--set", "model.path=./nowhere"): "nowhere",
        ("run", str(spec), "--run-dir", str(tmp_path / "file" / "run")): "cannot be written",
        ("run", str(spec), "--run-dir", str(tmp_path / "file")): "cannot be written",
        ("run", str(spec), "--run-dir", str(tmp_path / "tasks")): "is not empty and not a run directory",
        ("plan", str(spec), "--set", "tasks.path=absent"): "no such folder of task files",
        ("status", str(tmp_path / "absent")): "holds no planned run",
        ("tasks", "check", str(tmp_path / "absent")): "no such folder of task files",
        (
            "score",
            "--model",
            str(tiny_llama),
            "--prompts",
            str(spec),
            "--out",
            str(tmp_path / "o"),
        ): "spec.yaml: line 1",
    }
    for arguments, expected in cases.items():
        found = call(capsys, monkeypatch, *arguments)
        assert (found.code, found.out) == (2, ""), arguments
        assert expected in found.err
        assert found.err.startswith("error: ")
    assert digests(tmp_path) == before


def test_checking_tasks_lists_all_and_exits_with_2_if_a_file_is_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_task(tmp_path, "task1_good_classification")
    found = call(capsys, monkeypatch, "tasks", "check", str(tmp_path))
    assert (found.code, found.out) == (0, "1 usable, 0 left out, 0 bad\n")
    write_task(tmp_path, "task2_small_classification", n_instances=99)
    write_task(tmp_path, "task3_bad_classification", changes={"Definition": [""]})
    found = call(capsys, monkeypatch, "tasks", "check", str(tmp_path))
    assert found.code == 2
    assert "left out  task2_small_classification: has 99 instances" in found.out
    assert "bad       task3_bad_classification: Definition: is empty" in found.out
    assert found.out.endswith("1 usable, 1 left out, 1 bad\n")


def test_a_plan_says_what_would_run_and_writes_nothing(
    tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, tiny_llama)
    before = digests(tmp_path)
    found = call(capsys, monkeypatch, "plan", str(spec))
    assert found.code == 0
    shown = dict(line.split("  ", 1) for line in found.out.splitlines() if not line.startswith("note"))
    assert shown["with fewer demonstrations"].split()[0] == "0"
    # Three settings of two tasks: 40 main, 32 BiasScore, 3 cc and 20 dc rows, and two looc rows where k is 2.
    assert shown["tasks"].strip() == "2"
    assert int(shown["prompts"].replace(",", "")) == 2 * (3 * (40 + 32 + 3 + 20) + 2 * 2)
    assert "GPU-hours at 100 TFLOP/s" in shown
    assert digests(tmp_path) == before


@pytest.mark.ray
def test_a_run_can_be_asked_in_every_format(
    tmp_path: Path,
    tiny_llama: Path,
    ray_cluster: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = write_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}, calibration=["cc"])
    run_dir = str(tmp_path / "run")
    done = call(capsys, monkeypatch, "run", str(spec), "--run-dir", run_dir)
    assert done.code == 0, done.err
    assert done.out.endswith(f"report: {run_dir}/report.html\n")
    assert "scored" in done.err
    assert "rows" in done.err

    query = "select task, method, n_rows from label_bias_by_task order by all"
    rows = json.loads(call(capsys, monkeypatch, "sql", run_dir, query, "--format", "json").out)
    assert len(rows) == 4
    assert rows[0] == {"task": "task9501_two_classification", "method": "cc", "n_rows": 40}
    as_csv = call(capsys, monkeypatch, "sql", run_dir, query, "--format", "csv").out
    assert [row["method"] for row in csv.DictReader(io.StringIO(as_csv))] == ["cc", "none"] * 2
    sums = "select sum(n_rows) as n, 'nan'::double as x, 0.5 as half, [1.5] as l from label_bias_by_task"
    assert json.loads(call(capsys, monkeypatch, "sql", run_dir, sums, "--format", "json").out) == [
        {"n": 160, "x": None, "half": 0.5, "l": [1.5]}
    ]
    brackets = call(capsys, monkeypatch, "sql", run_dir, "select '[mask] [/s] :smile:' as \"[b]\"").out
    assert "[mask] [/s] :smile:" in brackets
    assert "[b]" in brackets
    table = call(capsys, monkeypatch, "sql", run_dir, query).out
    assert "task9502_three_detection" in table
    command = [sys.executable, "-m", "biaseval.cli", "sql", run_dir, query, "--format", "parquet"]
    parquet = subprocess.run(command, capture_output=True, check=True).stdout
    assert pq.read_table(io.BytesIO(parquet)).to_pylist() == rows
    wrong = call(capsys, monkeypatch, "sql", run_dir, "from nonsense")
    assert wrong.code == 2
    assert "nonsense" in wrong.err
    assert call(capsys, monkeypatch, "report", run_dir).code == 0
    assert "complete" in call(capsys, monkeypatch, "status", run_dir).out
    again = call(capsys, monkeypatch, "run", str(spec), "--run-dir", run_dir)
    assert "all 150 rows are scored already" in again.err


def test_prompts_that_are_cut_are_said_before_they_are_scored(
    tmp_path: Path, tiny_llama: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_spec(tmp_path, tiny_llama, prompt={"n_demos": [0, 2], "demo_sets": 1, "max_tokens": 12})
    found = call(capsys, monkeypatch, "plan", str(spec))
    shown = dict(line.split("  ", 1) for line in found.out.splitlines() if not line.startswith("note"))
    n_prompts = shown["prompts"].strip()
    assert shown["cut at their end"].split()[0] == n_prompts
    # All of the setting with two demonstrations, of both tasks: 40 main, 32 BiasScore, 3 cc, 20 dc, 2 looc rows each.
    assert shown["with fewer demonstrations"].split()[0] == str(2 * (40 + 32 + 3 + 20 + 2))
    assert call(capsys, monkeypatch, "--version").out.startswith("biaseval 0.")
