"""Damaged files, values and command lines: each must end in a result or in one message.

    python -m tests.validation.fuzz --inputs 1000000 --out FILE [--seed 1] [--only spec,json]

Hypothesis damages valid files of the fixtures, the examples and the demo, and every reader of the program reads the
result. Whole commands and SQL run in this process, too. What counts as a failure: an error that is no `BiasevalError`,
a reader that takes longer than ten seconds, and a spec that is taken although it holds a number that is not finite, or
that differs when it is written and read back. Each failure is counted by its place in the source, with the smallest
input that Hypothesis found. A second start of the same command goes on after the last batch in FILE.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import biaseval
from biaseval.analysis import queries
from biaseval.cli import main
from biaseval.doctor.cluster_file import cluster_file
from biaseval.environment import read_environment
from biaseval.errors import BiasevalError
from biaseval.label_bias.splits import read_splits
from biaseval.label_bias.suites import read_task_table
from biaseval.label_bias.templates import read_templates
from biaseval.lease.record import Lease
from biaseval.outputs.lm_eval import read_samples
from biaseval.outputs.table import read_table
from biaseval.parsing import yaml_text, yaml_value
from biaseval.pipelines.directory import read_plan, read_spec
from biaseval.prompting.task_files import read_task
from biaseval.qa_bias.data import read_questions
from biaseval.qa_bias.predictions import read_predictions
from biaseval.records import Records
from biaseval.runs.status import run_status
from biaseval.spec import load_specs, stored_spec
from biaseval.spec.instruct import ConversationsSpec
from biaseval.store import Run
from biaseval.training.conversations import read_conversations
from tests.older_runs import FIXTURES, copy_older_run

ROOT = Path(__file__).parents[2]
DEMO = Path(biaseval.__file__).resolve().parent / "demo"
BATCH, LONGEST_S, LONGEST_MESSAGE = 500, 10, 4000
DIGITS = "9" * 5000

FRAGMENTS = [
    *("\x00", "\ud800", "\ufeff", "\u2028", "\r", "\n", '"', "'", "\\", ",", ":", "{", "}", "[", "]", "&a ", "*a"),
    *("null", "true", "[]", "{}", '""', "-1", "0", "1e400", "-.inf", ".nan", "NaN", "Infinity", "1e-400", DIGITS),
    *("2001-99-99", "!!int zz", "!!timestamp zz", "!!python/object:os.system {}", "0x" + "f" * 99, "a" * 300, "é", "𝔘"),
    *("~nosuchuser/x", "/dev/null", "s3://", "gs://a/b", "s3://K:S@b/k", "../..", "=1+1", "<script>", "%s", " " * 80),
    *("[" * 900, '{"a":' * 900, "\x1f\x8b", "\ufffe"),
]
"""What is put in place of a piece of a file."""

ODD = [
    None,
    True,
    0,
    -1,
    0.5,
    math.inf,
    math.nan,
    10**30,
    10**310,
    "",
    " ",
    "\x00",
    "\ud800",
    "x" * 300,
    "~nosuchuser/x",
]
VALUES = st.recursive(
    st.sampled_from(ODD) | st.text(max_size=4) | st.integers() | st.floats(),
    lambda own: st.lists(own, max_size=3) | st.dictionaries(st.text(max_size=3), own, max_size=3),
    max_leaves=5,
)
"""What is put in place of a value."""


class MishapError(Exception):
    """Something that no user should meet, but is no error of Python."""


def _expect(holds: bool, said: str) -> None:
    if not holds:
        raise MishapError(said)


@dataclass(frozen=True)
class Surface:
    """Something that takes files or words of a user."""

    files: list[bytes]
    read: Callable[[Path], object]
    name: str = "input"
    """Of the file that is written."""
    share: int = 1
    """Of 200 inputs."""


def _bytes(*patterns: str, of: Path = ROOT, most: int = 20_000) -> list[bytes]:
    files = [path.read_bytes()[:most] for pattern in patterns for path in sorted(of.glob(pattern))]
    return [one.replace(b"@DEMO@", bytes(DEMO)).replace(b"@ROOT@", b"/tmp") for one in files]


@cache
def _run(folder: Path) -> Path:
    """Return a finished run in a folder, with sealed files as today's version writes them, and inputs beside it."""
    signal.setitimer(signal.ITIMER_REAL, 0)  # it takes longer than an input may
    _, run = copy_older_run("label_bias", folder / "older")
    run = run.rename(folder / "run")
    _command("report", str(run))
    for sealed in ("environment.json", "plan.json"):
        Run.open(str(run)).write_sealed(sealed, json.loads((run / sealed).read_bytes()))
    for source, name in INPUTS.items():
        shutil.copy(ROOT / source, folder / name)
    (folder / "scores.csv").write_bytes(SCORES)
    return run


def _in_run(name: str) -> Callable[[Path], object]:
    """Return what reads a run directory in which one file is the damaged one."""

    def read(path: Path) -> object:
        own = _run(path.parent) / name
        whole = own.read_bytes() if own.exists() else None
        own.write_bytes(path.read_bytes())
        try:
            run = Run.open(str(own.parent))
            with contextlib.redirect_stderr(io.StringIO()):
                return run_status(run.uri), read_environment(run), read_spec(run), read_plan(run)
        finally:
            own.unlink() if whole is None else own.write_bytes(whole)

    return read


def _sealed(path: Path) -> list[bytes]:
    """Return a JSON file as today's version writes it: with a digest of itself, which older versions did not know."""
    with tempfile.TemporaryDirectory() as folder:
        Run.open(folder).write_sealed(path.name, json.loads(path.read_bytes()))
        return [(Path(folder) / path.name).read_bytes()]


def _spec(path: Path) -> object:
    """Read a spec, which holds finite numbers and is the same when it is written and read back."""
    specs = load_specs(path)
    for spec in specs.values():
        content = spec.model_dump(mode="json")
        _expect(all(math.isfinite(one) for one in _numbers(spec.model_dump())), "a number that is not finite is taken")
        _expect(stored_spec(content, "again") == spec, "a spec is another when it is read back")
    return specs


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from _numbers(one)
    elif isinstance(value, float):
        yield value


def _command(*arguments: str) -> None:
    """Run a command; its messages go nowhere unless it fails in a way that no user should meet."""
    said = io.StringIO()
    sys.argv = ["biaseval", *arguments]
    printed = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")  # CSV goes to the bytes below
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        try:
            main()
        except SystemExit as ended:
            _expect(ended.code in {None, 0, 1, 2, 3}, f"exit code {ended.code}")
    told = said.getvalue()
    _expect("did not expect this" not in told, " ".join(told.split())[-400:])
    _expect(max(map(len, told.split("\n"))) <= LONGEST_MESSAGE, "a line of a message is too long")


def _words(path: Path) -> None:
    """Run the command whose arguments are the lines of a file, beside a run and inputs; none of them makes a run."""
    _run(path.parent)
    arguments = path.read_bytes().decode(errors="surrogateescape").replace("\x00", "").split("\n")
    if arguments[0] in COMMANDS:
        with contextlib.chdir(path.parent):
            _command(*(one for one in arguments if "--watch" not in one))


COMMANDS = {"status", "sql", "check", "plan", "init", "tasks", "data", "import", "export"}
INPUTS = {
    "examples/reviews.csv": "rows.csv", "examples/reviews.yaml": "spec.yaml",
    "platform/biaseval/demo/task_files/task9101_canteen_satisfaction_classification.json": "tasks.json",
}  # fmt: skip

QUERIES = [
    *("select * from label_scores", "from prompts", "select task, input_text from prompts where n_demos = 0"),
    *(
        "select label, avg(n_label_tokens) as a from label_scores group by label order by a desc limit 3",
        "describe splits",
    ),
]


CHATS = [
    b'{"instruction": "a", "response": "b"}\n',
    b'[{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}]',
    b'{"message_id": "1", "parent_id": null, "role": "prompter", "text": "a", "lang": "en"}\n'
    b'{"message_id": "2", "parent_id": "1", "role": "assistant", "text": "b", "lang": "en", "rank": 0}\n',
]
PREDICTIONS = [b'{"1": "a", "2": "b"}', b'{"id": "1", "prediction_text": "a"}\n{"id": "2", "prediction_text": "b"}\n']
TASKS = b"Name,Summary,Category,Domain,Input Language,Output Language\ntask1_a,b,Classification,c,English,English\n"
SCORES = b"task,input,label,logprob,gold\na,x,yes,-1.5,yes\na,x,no,-2.5,yes\n"


def surfaces() -> dict[str, Surface]:
    """Return each surface by its name, with the valid files that are damaged."""
    older, lm_eval = "tests/fixtures/older_runs", ROOT / "tests/fixtures/lm_eval"
    specs = _bytes("examples/*.yaml", f"{older}/*/spec.yaml", "platform/biaseval/demo/*.yaml")
    given = "tests/fixtures/lm_eval_tasks"
    tables = _bytes("examples/*.csv", f"{given}/*.csv", f"{given}/*.jsonl", "examples/*.jsonl")
    questions = _bytes(f"{older}/qa_bias/*.jsonl", f"{older}/qa_bias/given.json")
    results = next((lm_eval / "zero").glob("results_*.json"))
    run = FIXTURES / "label_bias" / "run"
    splits = [next(run.glob("splits/*.parquet")).read_bytes()]
    day = results.stem.removeprefix("results")

    def samples(path: Path) -> object:
        shutil.copy(results, path.parent / results.name)
        return read_samples([path])

    def rows(path: Path) -> object:
        return list(Records(str(path)))

    def predictions(path: Path) -> object:
        return read_predictions(str(path), ["1", "2"], on_missing="drop")

    every: list[tuple[str, int, list[bytes], Callable[[Path], object], str]] = [
        ("specs", 44, specs, _spec, "spec.yaml"),
        ("task files", 20, _bytes("task_files/*.json", of=DEMO, most=10**6), read_task, "task1_a_classification.json"),
        ("tables of rows", 30, tables, rows, "rows.csv"),
        ("QA data", 20, questions, lambda path: read_questions(str(path), name="a"), "questions.json"),
        ("predictions", 10, PREDICTIONS, predictions, "predictions.json"),
        ("conversations", 16, [*_bytes(f"{older}/instruct/chat.jsonl"), *CHATS], _chat, "chat.jsonl"),
        ("templates", 8, _bytes("templates.csv", of=DEMO), lambda path: read_templates(str(path)), "templates.csv"),
        ("table of tasks", 6, [TASKS], lambda path: read_task_table(str(path)), "tasks.csv"),
        ("splits", 4, splits, lambda path: read_splits(str(path)), "splits.parquet"),
        ("Parquet rows", 4, splits, rows, "rows.parquet"),
        ("gzip rows", 4, [gzip.compress(one, mtime=0) for one in tables[:2]], rows, "rows.jsonl.gz"),
        ("samples of lm-eval", 10, _bytes("*/samples_[lgrum]*.jsonl", of=lm_eval), samples, f"samples_list{day}.jsonl"),
        ("table of scores", 4, [SCORES], lambda path: read_table([path]), "scores.csv"),
        ("lease", 1, [Lease.of_this_process(1, 5).data()], _in_run("lease.json"), "damaged.json"),
        ("plan.json", 1, _sealed(run / "plan.json"), _in_run("plan.json"), "damaged.json"),
        ("environment.json", 1, _sealed(run / "environment.json"), _in_run("environment.json"), "damaged.json"),
        ("spec.yaml of a run", 1, _bytes("spec.yaml", of=run), _in_run("spec.yaml"), "damaged.yaml"),
        ("cluster file", 6, _bytes("cluster.yaml"), lambda path: list(cluster_file(path)), "cluster.yaml"),
        ("SQL", 5, [one.encode() for one in QUERIES], _sql, "query.sql"),
        ("commands", 5, [one.encode() for one in _COMMAND_LINES], _words, "words"),
    ]
    return {name: Surface(files, read, file, share) for name, share, files, read, file in every}


def _chat(path: Path) -> object:
    return read_conversations(ConversationsSpec(path=str(path)))


_COMMAND_LINES = [
    "status\nrun\n--json",
    "sql\nrun\nfrom label_scores\n--format\ncsv\n--limit\n3",
    "sql\nrun\nselect 1",
    "tasks\ncheck\ntasks.json",
    "check\nrun\naccuracy > 0.5",
    "init\nrows.csv\n--out\nnew.yaml",
    "plan\nspec.yaml\n--set\nmodel.path=x\n--json",
    "data\ncheck\nspec.yaml",
    "import\ntable\nscores.csv\n--out\nrun2",
    "export\nlm-eval\nrun\n--out\nx",
]


def _sql(path: Path) -> object:
    """Ask a finished run, through one connection for all queries; the answer is not kept."""
    connection = _connection(path.parent)
    sql = path.read_bytes().decode(errors="surrogateescape")
    try:
        return connection.sql(queries.only_read(connection, sql)).to_arrow_table().num_rows
    except duckdb.Error as error:
        raise BiasevalError(queries.message_of(error)) from error


@cache
def _connection(folder: Path) -> Any:
    where = str(_run(folder))
    connection = queries.open_runs([where], " ".join(QUERIES))
    queries.confine(connection, [Run.open(where)])
    return connection


@st.composite
def damaged(draw: st.DrawFn, files: list[bytes]) -> bytes:
    """Draw a file in which one to four pieces are another, or a JSON or YAML file with another value at some place."""
    data = draw(st.sampled_from(files))
    if draw(st.booleans()):
        with contextlib.suppress(ValueError):
            value = json.loads(data)
            return json.dumps(_altered(draw, value)).encode()
        with contextlib.suppress(ValueError, UnicodeDecodeError):
            value = yaml_value(data.decode())
            if isinstance(value, dict):
                return yaml_text(_altered(draw, value)).encode()
    for _ in range(draw(st.integers(1, 4))):
        start, length = draw(st.integers(0, len(data))), draw(st.sampled_from([0, 0, 1, 2, 8, 64, 100_000]))
        piece = draw(
            st.sampled_from(FRAGMENTS).map(lambda one: one.encode(errors="surrogatepass")) | st.binary(max_size=4)
        )
        data = data[:start] + piece + data[start + length :]
    return data


def _altered(draw: st.DrawFn, value: Any) -> Any:
    """Return a value with another one at a random place."""
    if isinstance(value, dict | list) and value and draw(st.integers(0, 4)):
        keys = sorted(value) if isinstance(value, dict) else range(len(value))
        key = draw(st.sampled_from(list(keys)))
        changed: Any = dict(value) if isinstance(value, dict) else list(value)
        changed[key] = _altered(draw, value[key])
        return changed
    return draw(VALUES)


class _Slow(BaseException):
    """A reader took too long."""


def _alarm(*_: object) -> None:
    raise _Slow


def _place(error: BaseException) -> str:
    """Return the last line of the program that an error went through, and its class."""
    frames = [
        one for one in traceback.extract_tb(error.__traceback__) if "/biaseval/" in one.filename
    ] or traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    detail = f": {error}" if isinstance(error, MishapError) else ""
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}{detail[:300]}"


def fuzz(surface: Surface, n_inputs: int, number: int, folder: Path, found: dict[str, dict[str, Any]]) -> Counter[str]:
    """Give damaged inputs to a surface, add its failures to ``found`` by place, and count how each input ended."""
    counts: Counter[str] = Counter()

    def ends(data: bytes) -> None:
        path = folder / surface.name
        path.write_bytes(data)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
        try:
            surface.read(path)
            counts["taken"] += 1
        except BiasevalError as error:
            counts["refused"] += 1
            if len(str(error)) > LONGEST_MESSAGE * 5:
                raise MishapError("a message is too long") from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    @seed(number)
    @settings(
        max_examples=n_inputs,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(damaged(surface.files))
    def each(data: bytes) -> None:
        try:
            ends(data)
        except Exception as error:
            place = _place(error)
            if place not in found:
                found[place] = {"n": 0, "smallest": repr(data[-300:]), "error": str(error)[:300]}
            kept = found[place]
            kept["n"] += 1
            if len(data) < kept.get("size", 10**9):
                kept |= {"size": len(data), "smallest": repr(data[:300])}
            counts["failed"] += 1
        except _Slow:
            found.setdefault("slow", {"n": 0, "smallest": repr(data[:300])})["n"] += 1
            counts["slow"] += 1

    each()
    return counts


def run() -> None:
    """Fuzz batch by batch, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    signal.signal(signal.SIGALRM, _alarm)
    every = {name: one for name, one in surfaces().items() if not asked.only or name in asked.only.split(",")}
    total = sum(one.share for one in every.values())
    state: dict[str, Any] = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    if state.setdefault("seed", asked.seed) != asked.seed:
        parser.error(f"{asked.out} is of seed {state['seed']}; name another file for seed {asked.seed}")
    for name, surface in every.items():
        own = state.setdefault(name, {"n": 0, "seconds": 0.0, "counts": {}, "found": {}})
        wanted = asked.inputs * surface.share // total
        with tempfile.TemporaryDirectory() as folder:
            while own["n"] < wanted:
                begun, size = time.monotonic(), min(BATCH, wanted - own["n"])
                counts = fuzz(surface, size, asked.seed * 1_000_003 + own["n"], Path(folder), own["found"])
                own["counts"] = dict(Counter(own["counts"]) + counts)
                own["n"], own["seconds"] = own["n"] + size, own["seconds"] + time.monotonic() - begun
                written = asked.out.with_suffix(".part")
                written.write_text(json.dumps(state, indent=1))
                os.replace(written, asked.out)
        print(f"{name}: {own['n']:,} inputs, {own['counts']}, {own['seconds']:.0f} s", flush=True)
        for place, kept in own["found"].items():
            print(f"  {kept['n']:,} x {place}: {kept.get('error', '')[:120]!r}; {kept['smallest'][:160]}", flush=True)


if __name__ == "__main__":
    run()
