"""The command line as a user meets it: help, exit codes, messages, formats."""

import csv
import io
import json
import math
import re
import shlex
import signal
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow.parquet as pq
import pytest
import typer

from biaseval import cli
from biaseval.cli.printing import print_json
from biaseval.errors import BiasevalError, InputError
from biaseval.runs import run_status
from biaseval.spec import MIN_INSTANCES, load_spec
from biaseval.store import Run
from tests.commands import Command
from tests.taskfiles import write_task
from tests.test_pipelines import digests, write_spec
from tests.tinymodels import make_llama, make_tokenizer

CONTRACT = (
    *("run", "plan", "score", "init", "doctor", "analyse", "check", "status", "report", "compare", "sql"),
    *("tasks check", "data check", "train lora", "train instruct", "train qa", "tune", "figures", "demo"),
    *("import lm-eval", "import table", "export lm-eval"),
)
"""Every command that users are promised."""

GROUPS: list[list[str]] = [[], ["tasks"], ["data"], ["train"], ["import"], ["export"]]
"""What stands before a command."""

HEAVY = {
    "torch", "transformers", "ray", "peft", "deepspeed", "optuna", "spacy", "nltk", "sklearn", "vl_convert", "pandas",
}  # fmt: skip


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
def test_each_command_has_help_with_an_example(name: str, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = command(*name.split(), "--help")
    assert shown.code == 0
    assert f"Example: biaseval {name}" in shown.out
    command = _commands()[name]
    example = shlex.split(command.help.rpartition("Example: ")[2])
    command.make_context(name, example[1 + len(name.split()) :])  # refuses what the command does not take


def test_the_help_of_all_lists_what_works_and_nothing_else(monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = "\n".join(command(*group, "--help").out for group in GROUPS)
    listed = {line.split()[1] for line in shown.splitlines() if line.startswith("│") and line[2:3].isalpha()}
    assert listed == {word for name in _commands() for word in name.split()}
    assert f"{MIN_INSTANCES}, as in the paper" in command("tasks", "check", "--help").out
    assert command("--version").out.startswith("biaseval 0.")


@pytest.mark.parametrize(("typed", "meant"), [
    ("rnu spec.yaml", "'run'"), ("taks check tasks", "'tasks'"), ("tasks chek tasks", "'check'"),
    ("sql runs/demo query --formt csv", "--format"), ("train lora spec.yaml --rundir runs/lora", "--run-dir"),
    ("run", "Missing argument"), ("nonsense", "No such command"), ("sql one", "give a run directory and a query"),
])  # fmt: skip
def test_typos_get_what_may_be_meant(typed: str, meant: str, monkeypatch: pytest.MonkeyPatch, command: Command) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    found = command(*typed.split())
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
    inner = {"shares": [0.5, None, None], "path": "a"}
    assert json.loads(capsys.readouterr().out) == {"inner": inner, "by_name": {"none": None}, "total": 3}


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


@pytest.mark.parametrize(
    ("what", "expected"), [("no weights", "model"), ("no EOS", "EOS"), ("short window", "the model's window has 40")]
)
def test_a_model_that_cannot_score_is_refused_first(what: str, expected: str, tmp_path: Path, command: Command) -> None:
    model = make_llama(tmp_path / "model", **({"window": 40} if what == "short window" else {}))
    if what == "no weights":
        (model / "model.safetensors").unlink()
    elif what == "no EOS":
        tokenizer = make_tokenizer()
        tokenizer.eos_token = None
        tokenizer.save_pretrained(model)
    found = command("run", str(write_spec(tmp_path, model)), "--run-dir", str(tmp_path / "run"))
    assert (found.code, found.out) == (2, "")
    assert expected in found.err
    assert "Traceback" not in found.err
    assert not list((tmp_path).glob("run/label_scores/*"))


def test_bad_input_is_one_message_and_exit_code_2(tmp_path: Path, tiny_llama: Path, command: Command) -> None:
    spec = write_spec(tmp_path, tiny_llama)
    (tmp_path / "file").write_text("x")
    before, absent, foreign = digests(tmp_path), str(tmp_path / "absent"), str(tmp_path / "tasks")
    score = ("score", "--model", str(tiny_llama), "--prompts", str(spec), "--out", str(tmp_path / "o"))
    cases = {
        ("run", f"{absent}.yaml"): "absent.yaml: cannot be read",
        ("run", str(spec), "--set", "sed=3"): "sed: unknown key; did you mean seed?",
        ("run", str(spec), "--set", "tasks.max_eval=many"): "tasks.max_eval: input should be a valid integer",
        ("run", str(spec), "--set", "model.path=./nowhere"): "nowhere",
        ("run", str(spec), "--run-dir", str(tmp_path / "file" / "run")): "cannot be written",
        ("run", str(spec), "--run-dir", str(tmp_path / "file")): "cannot be written",
        ("run", str(spec), "--run-dir", foreign): "is not empty and not a run directory",
        ("plan", str(spec), "--set", "tasks.path=absent"): "no such folder of task files",
        ("status", absent): "holds no planned run", ("status", "run\0"): "is no path",
        ("plan", "~nosuchuser/run"): "is no path",
        ("sql", "run", "select '\ud800'"): "arguments: \"select '\\ud800'\" holds bytes that are not UTF-8; write",
        ("demo", "--run-dir", foreign): "is not empty and not a run directory",
        ("tasks", "check", absent): "no such folder of task files", score: "spec.yaml: is no JSON",
    }  # fmt: skip
    for arguments, expected in cases.items():
        found = command(*arguments)
        assert (found.code, found.out) == (2, ""), arguments
        assert expected in found.err
        assert found.err.startswith("error: ")
    assert digests(tmp_path) == before


def test_checking_tasks_lists_all_and_exits_with_2_if_a_file_is_bad(tmp_path: Path, command: Command) -> None:
    write_task(tmp_path, "task1_good_classification")
    found = command("tasks", "check", str(tmp_path))
    assert (found.code, found.out) == (0, "1 usable, 0 left out, 0 bad\n")
    write_task(tmp_path, "task2_small_classification", n_instances=99)
    write_task(tmp_path, "task3_bad_classification", changes={"Definition": [""]})
    found = command("tasks", "check", str(tmp_path))
    assert found.code == 2
    assert "left out  task2_small_classification: has 99 instances" in found.out
    assert "bad       task3_bad_classification: Definition: is empty" in found.out
    assert found.out.endswith("1 usable, 1 left out, 1 bad\n")


def test_a_plan_says_what_would_run_and_writes_nothing(tmp_path: Path, tiny_llama: Path, command: Command) -> None:
    spec = write_spec(tmp_path, tiny_llama)
    before = digests(tmp_path)

    def shown(*options: str) -> dict[str, str]:
        found = command("plan", str(spec), *options)
        assert found.code == 0
        return dict(line.split("  ", 1) for line in found.out.splitlines() if not line.startswith("note"))

    plan = shown()
    assert plan["with fewer demonstrations"].split()[0] == "0"
    # Three settings of two tasks: 40 main, 32 BiasScore, 3 cc and 20 dc rows, and two looc rows where k is 2.
    assert plan["tasks"].strip() == "2"
    n_prompts = 2 * (3 * (40 + 32 + 3 + 20) + 2 * 2)
    assert int(plan["prompts"].replace(",", "")) == n_prompts
    assert "GPU-hours at 100 TFLOP/s" in plan
    as_json = json.loads(command("plan", str(spec), "--json").out)
    assert (as_json["kind"], as_json["name"], as_json["training"]) == ("label_bias", "tiny", None)
    assert (as_json["plan"]["n_prompts"], as_json["plan"]["model"]["family"]) == (n_prompts, "llama")
    cut = shown("--set", "prompt.max_tokens=12", "--set", "prompt.demo_sets=1")
    assert cut["cut at their end"].split()[0] == cut["prompts"].strip()
    # All of the setting with two demonstrations, of both tasks.
    assert cut["with fewer demonstrations"].split()[0] == str(2 * (40 + 32 + 3 + 20 + 2))
    assert digests(tmp_path) == before


@pytest.mark.parametrize(("arguments", "work", "raised"), [
    (("analyse", "run", "--set", "seed=1"), "biaseval.runs.commands.reanalyse_run", SystemExit(1)),
    (("report", "run"), "biaseval.runs.commands.report_run", BiasevalError("interrupted by the stop")),
    (("import", "table", "scores.csv", "--run-dir", "run"), "biaseval.runs.commands.import_scores", RuntimeError("no")),
])  # fmt: skip
def test_a_stop_while_metrics_are_computed_says_so_and_ends_with_143(
    arguments: tuple[str, ...], work: str, raised: BaseException, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: object, **named: object) -> None:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "the signal would end the process"
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            raise raised from None  # what it interrupts may end in another way

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(work, stop)
    found = command(*arguments)
    assert signal.getsignal(signal.SIGTERM) == before
    first, *more = found.err.splitlines()
    assert (found.code, first) == (143, "stopped; complete parts are kept, run the same command again to resume")
    assert [str(raised) in line for line in more] == [True] * (not isinstance(raised, SystemExit))


def test_a_plan_of_a_run_that_has_begun_says_its_rate(
    tmp_path: Path, tiny_llama: Path, here: None, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    spec, run_dir = write_spec(tmp_path, tiny_llama, calibration=[], prompt={"n_demos": [0]}), str(tmp_path / "run")
    options = ("--run-dir", run_dir)
    assert "rate so far" not in command("plan", str(spec), *options).out
    assert command("run", str(spec), *options).code == 0
    run = Run.open(run_dir)
    tokens = [part["tokens"] for part in run.read_json("plan.json")["parts"]]
    environment = run.read_json("environment.json")
    assert environment["scorer"]["tokens"] == sum(tokens)
    # As if half of all had taken an hour, and one part were missing.
    environment["scorer"] |= {"tokens": sum(tokens) / 2, "elapsed_s": 3600}
    run.write_json("environment.json", environment)
    run.delete("label_scores/part-00001.parquet")
    found = json.loads(command("plan", str(spec), *options, "--json").out)["measured"]
    assert found["tokens_per_s"] == pytest.approx(sum(tokens) / 7200)
    assert (found["hours"], found["hours_left"]) == pytest.approx((2, 2 * tokens[1] / sum(tokens)))
    assert found["device"] == "cpu"
    shown = command("plan", str(spec), *options).out
    assert f"by its rate so far         2 hours of one actor on cpu, {found['hours_left']:.3g} of them left (" in shown
    assert "rate so far" not in command("plan", str(spec), *options, "--set", "seed=7").out
    # What lies damaged at the place that nobody named is nobody's record; named, it is a mistake.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    run.write_text("plan.json", "{")
    Path(run_dir).rename(tmp_path / "runs" / load_spec(spec).name)
    assert command("plan", str(spec)).code == 0
    assert command("plan", str(spec), "--run-dir", f"runs/{load_spec(spec).name}").code != 0


@pytest.mark.slow
def test_a_run_can_be_asked_in_every_format(tmp_path: Path, tiny_llama: Path, here: None, command: Command) -> None:
    spec = write_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}, calibration=["cc"])
    run_dir = str(tmp_path / "run")
    done = command("run", str(spec), "--run-dir", run_dir)
    assert done.code == 0, done.err
    assert done.out.endswith(f"report: {run_dir}/report.html\n")
    assert "rows scored" in done.err

    def asked(sql: str, form: str) -> str:
        return command("sql", run_dir, sql, "--format", form).out

    query = "select task, method, n_rows from label_bias_by_task order by all"
    rows = json.loads(asked(query, "json"))
    assert len(rows) == 4
    assert rows[0] == {"task": "task9501_two_classification", "method": "cc", "n_rows": 40}
    assert [row["method"] for row in csv.DictReader(io.StringIO(asked(query, "csv")))] == ["cc", "none"] * 2
    sums = "select sum(n_rows) as n, 'nan'::double as x, 0.5 as half, [1.5] as l from label_bias_by_task"
    assert json.loads(asked(sums, "json")) == [{"n": 160, "x": None, "half": 0.5, "l": [1.5]}]
    brackets = command("sql", run_dir, "select '[mask] [/s] :smile:' as \"[b]\"").out
    assert "[mask] [/s] :smile:" in brackets
    assert "[b]" in brackets
    assert "task9502_three_detection" in command("sql", run_dir, query).out
    parquet, imported = _started("sql", run_dir, query, "--format", "parquet")
    assert not imported & {*HEAVY, "jinja2", "scipy", "fsspec", "biaseval.spec"}
    assert pq.read_table(io.BytesIO(parquet)).to_pylist() == rows
    wrong = command("sql", run_dir, "from nonsense")
    assert (wrong.code, "nonsense" in wrong.err) == (2, True)
    assert command("report", run_dir).code == 0
    assert "complete" in command("status", run_dir).out
    status = json.loads(command("status", run_dir, "--json").out)
    assert status == asdict(run_status(run_dir))
    assert (status["driver"], status["pace"]) == (None, None)
    [scoring] = status["stages"]
    assert (scoring["size_done"], scoring["size"], status["has_report"]) == (150, 150, True)
    again = command("run", str(spec), "--run-dir", run_dir, "--json")
    assert "all 150 rows are scored already" in again.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert json.loads(again.out) == {"run": run_dir, "report": f"{run_dir}/report.html", "summary": summary}
    recorded = json.loads((tmp_path / "run" / "environment.json").read_text())["model"]["digest"]
    assert summary["models"] == [{"name": "tiny", "digest": recorded}]


@pytest.mark.parametrize(("error", "code", "said"), [
    (ValueError("x" * 9000), 1, "error: ValueError: x{20}.*; biaseval did not expect this: check its input"),
    (RuntimeError("INTERRUPT Error: Query interrupted"), 130, "interrupted; run the same command again"),
    (MemoryError("malloc of size 9 failed"), 1, "error: there is not enough memory; free some, take a larger"),
    (InputError(f"{'x' * 9000}; mend it\nnext"), 2, "error: x{20}.* … .*x; mend it\nnext"),
])  # fmt: skip
def test_no_error_ends_in_a_traceback_or_in_pages_of_text(
    error: Exception, code: int, said: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("biaseval.cli.commands.app", Mock(side_effect=error))
    found = command("status", "run")
    told = found.err.replace("\n", "") if code == 1 else found.err
    assert (found.code, bool(re.match(said, told)), len(told) < 5000) == (code, True, True), found.err
    if isinstance(error, ValueError):
        [log] = re.findall(r"(/\S+\.log) has the traceback", told)
        assert "Traceback" in Path(log).read_text()
        Path(log).unlink()


def test_an_interrupt_of_the_first_imports_ends_without_a_traceback() -> None:
    program = """
import os, signal, sys, biaseval.__main__; signal.signal(2, signal.default_int_handler)
class Interrupting:
    def find_spec(self, name, *_):
        if name == "biaseval.cli":
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Interrupting()); biaseval.__main__.start()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (-2, b"")
