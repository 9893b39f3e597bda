"""The command line as a user meets it: help, exit codes, messages, formats."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import typer

from biaseval import cli
from biaseval.cli.arguments import resumable
from biaseval.cli.printing import print_json
from biaseval.runs import run_status
from biaseval.spec import MIN_INSTANCES, load_spec
from biaseval.store import Run
from tests.commands import call
from tests.taskfiles import write_task
from tests.test_pipelines import digests, write_spec
from tests.tinymodels import make_llama, make_tokenizer

CONTRACT = (
    *("run", "plan", "score", "init", "doctor", "analyse", "check", "status", "report", "compare", "sql"),
    *("tasks check", "train lora", "train instruct", "train qa", "tune", "figures", "demo"),
    *("import lm-eval", "import table", "export lm-eval"),
)
"""Every command that users are promised."""

GROUPS: list[list[str]] = [[], ["tasks"], ["train"], ["import"], ["export"]]
"""What stands before a command."""

HEAVY = {
    *("torch", "transformers", "ray", "peft", "deepspeed", "optuna"),
    *("spacy", "nltk", "sklearn", "matplotlib", "pandas"),
}


def _commands() -> dict[str, Any]:
    """Return what the command line lists, by name."""
    root: Any = typer.main.get_command(cli.app)
    found: dict[str, Any] = {}
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        found |= {name: command} if below is None else {f"{name} {sub}": each for sub, each in below.items()}
    return found


def test_the_commands_are_those_of_the_contract() -> None:
    assert set(_commands()) == set(CONTRACT)


@pytest.mark.parametrize("name", CONTRACT)
def test_each_command_of_the_contract_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = call(capsys, monkeypatch, *name.split(), "--help")
    assert shown.code == 0
    assert f"Example: biaseval {name}" in shown.out
    command = _commands()[name]
    example = shlex.split(command.help.rpartition("Example: ")[2])
    command.make_context(name, example[1 + len(name.split()) :])  # refuses what the command does not take


def test_the_help_of_all_lists_what_works_and_nothing_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = "\n".join(call(capsys, monkeypatch, *group, "--help").out for group in GROUPS)
    listed = {line.split()[1] for line in shown.splitlines() if line.startswith("│") and line[2:3].isalpha()}
    assert listed == {word for name in _commands() for word in name.split()}


def test_the_smallest_task_that_help_names_is_that_of_the_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert f"{MIN_INSTANCES}, as in the paper" in call(capsys, monkeypatch, "tasks", "check", "--help").out


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(capsys, monkeypatch, "run").code == 2
    assert call(capsys, monkeypatch, "nonsense").code == 2
    assert call(capsys, monkeypatch, "sql", "one").code == 2
    assert call(capsys, monkeypatch, "import", "samples.jsonl").code == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("rnu spec.yaml", "'run'"),
        ("taks check tasks", "'tasks'"),
        ("tasks chek tasks", "'check'"),
        ("sql runs/demo query --formt csv", "--format"),
        ("train lora spec.yaml --rundir runs/lora", "--run-dir"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_may_be_meant(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = call(capsys, monkeypatch, *typed.split())
    assert (found.code, found.out) == (2, "")
    assert meant in found.err


def test_bash_completes_what_was_begun() -> None:
    expected = {"biaseval tr": "train", "biaseval train in": "instruct", "biaseval sql runs/demo x --form": "--format"}
    asked = [f"PATH={sysconfig.get_path('scripts')}:$PATH", 'eval "$(biaseval --show-completion)"']
    for typed in expected:
        asked += [f"COMP_WORDS=({typed})", f"COMP_CWORD={len(typed.split()) - 1}"]
        # Called by the name that the script gave to the shell.
        asked += ["$(complete -p biaseval | sed -E 's/.*-F ([^ ]+).*/\\1/') biaseval", 'echo "${COMPREPLY[@]}"']
    done = subprocess.run(["bash", "-c", "; ".join(asked)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == list(expected.values())


def test_json_is_one_object_of_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass
    class Inner:
        shares: tuple[float, ...]
        path: Path

    @dataclass
    class Outer:
        inner: Inner
        by_name: dict[str, Inner | None]
        total: Decimal

    print_json(Outer(Inner((0.5, math.nan, math.inf), Path("a")), {"none": None}, Decimal(3)))
    assert json.loads(capsys.readouterr().out) == {
        "inner": {"shares": [0.5, None, None], "path": "a"},
        "by_name": {"none": None},
        "total": 3,
    }


def _started(*arguments: str) -> tuple[bytes, set[str]]:
    """Return what ``python -m biaseval`` prints, and the modules and packages that it imports on the way."""
    command = [sys.executable, "-X", "importtime", "-m", "biaseval", *arguments]
    done = subprocess.run(command, capture_output=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    return done.stdout, modules | {module.split(".")[0] for module in modules}


def test_help_starts_without_what_it_does_not_need() -> None:
    printed, imported = _started("--help")
    assert b"Usage: python -m biaseval" in printed
    assert {"biaseval", "typer"} <= imported
    assert not imported & {*HEAVY, "pydantic", "pyarrow", "duckdb", "numpy", "yaml", "fsspec"}


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
        ("demo", "--run-dir", str(tmp_path / "tasks")): "is not empty and not a run directory",
        ("tasks", "check", str(tmp_path / "absent")): "no such folder of task files",
        (
            "score",
            "--model",
            str(tiny_llama),
            "--prompts",
            str(spec),
            "--out",
            str(tmp_path / "o"),
        ): "spec.yaml: is no JSON",
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
    as_json = json.loads(call(capsys, monkeypatch, "plan", str(spec), "--json").out)
    assert (as_json["kind"], as_json["name"], as_json["training"]) == ("label_bias", "tiny", None)
    assert as_json["plan"]["n_prompts"] == int(shown["prompts"].replace(",", ""))
    assert as_json["plan"]["model"]["family"] == "llama"
    assert digests(tmp_path) == before


def test_a_command_that_is_asked_to_end_says_that_it_can_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)

    @resumable()
    def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with pytest.raises(SystemExit) as stop:
        work()
    assert stop.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().err == "stopped; complete parts are kept, run the same command again to resume\n"
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_plan_of_a_run_that_has_begun_says_its_rate(
    tmp_path: Path,
    tiny_llama: Path,
    here: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec, run_dir = write_spec(tmp_path, tiny_llama, calibration=[], prompt={"n_demos": [0]}), str(tmp_path / "run")
    options = ("--run-dir", run_dir)
    assert "rate so far" not in call(capsys, monkeypatch, "plan", str(spec), *options).out
    assert call(capsys, monkeypatch, "run", str(spec), *options).code == 0
    run = Run.open(run_dir)
    tokens = [part["tokens"] for part in run.read_json("plan.json")["parts"]]
    environment = run.read_json("environment.json")
    assert environment["scorer"]["tokens"] == sum(tokens)
    # As if half of all had taken an hour, and one part were missing.
    environment["scorer"] |= {"tokens": sum(tokens) / 2, "elapsed_s": 3600}
    run.write_json("environment.json", environment)
    run.delete("label_scores/part-00001.parquet")
    found = json.loads(call(capsys, monkeypatch, "plan", str(spec), *options, "--json").out)["measured"]
    assert found["tokens_per_s"] == pytest.approx(sum(tokens) / 7200)
    assert (found["hours"], found["hours_left"]) == pytest.approx((2, 2 * tokens[1] / sum(tokens)))
    assert found["device"] == "cpu"
    shown = call(capsys, monkeypatch, "plan", str(spec), *options).out
    assert f"by its rate so far         2 hours of one actor on cpu, {found['hours_left']:.3g} of them left (" in shown
    assert "rate so far" not in call(capsys, monkeypatch, "plan", str(spec), *options, "--set", "seed=7").out
    # What lies damaged at the place that nobody named is nobody's record; named, it is a mistake.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    run.write_text("plan.json", "{")
    Path(run_dir).rename(tmp_path / "runs" / load_spec(spec).name)
    assert call(capsys, monkeypatch, "plan", str(spec)).code == 0
    assert call(capsys, monkeypatch, "plan", str(spec), "--run-dir", f"runs/{load_spec(spec).name}").code != 0


@pytest.mark.slow
def test_a_run_can_be_asked_in_every_format(
    tmp_path: Path,
    tiny_llama: Path,
    here: None,
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
    parquet, imported = _started("sql", run_dir, query, "--format", "parquet")
    assert not imported & {*HEAVY, "jinja2", "scipy", "fsspec", "biaseval.spec"}
    assert pq.read_table(io.BytesIO(parquet)).to_pylist() == rows
    wrong = call(capsys, monkeypatch, "sql", run_dir, "from nonsense")
    assert wrong.code == 2
    assert "nonsense" in wrong.err
    assert call(capsys, monkeypatch, "report", run_dir).code == 0
    assert "complete" in call(capsys, monkeypatch, "status", run_dir).out
    status = json.loads(call(capsys, monkeypatch, "status", run_dir, "--json").out)
    assert status == asdict(run_status(run_dir))
    assert (status["driver"], status["pace"]) == (None, None)
    [scoring] = status["stages"]
    assert (scoring["size_done"], scoring["size"], status["has_report"]) == (150, 150, True)
    again = call(capsys, monkeypatch, "run", str(spec), "--run-dir", run_dir, "--json")
    assert "all 150 rows are scored already" in again.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert json.loads(again.out) == {"run": run_dir, "report": f"{run_dir}/report.html", "summary": summary}
    [model] = summary["models"]
    recorded = json.loads((tmp_path / "run" / "environment.json").read_text())["model"]["digest"]
    assert model == {"name": "tiny", "digest": recorded}


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
