"""Damaged inputs end in one message: those that once ended in a traceback, and some new ones for each reader."""

import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.doctor.cluster_file import cluster_file
from biaseval.errors import BiasevalError, InputError
from biaseval.label_bias.splits import read_splits
from tests.validation.fuzz import COMMANDS, DIGITS, _alarm, fuzz, surfaces

ONCE = [
    ("specs", b"kind: label_bias\nname: a\nmodel: {path: " + b"a" * 300 + b"}\ntasks: {path: .}\n"),
    ("specs", b"kind: instruct\nname: a\nmodel: {path: m}\ndata: {path: a}\ntraining: {learning_rate: .inf}\n"),
    ("specs", f"kind: majority_bias\nname: a\nmodel: {{path: m}}\ndata: {{max_test: {10**30}}}\n".encode()),
    ("specs", b"kind: instruct\nname: a\nmodel: {path: m}\ndata: {path: a}\ntraining: {learning_rate: inf}\n"),
    ("specs", b'kind: label_bias\nname: a\nmodel: {path: m, revision: "\\ud800"}\ntasks: {path: .}\n'),
    ("specs", f"kind: label_bias\nseed: {DIGITS}\n".encode()),
    ("task files", b'{"Categories": ["a"], "Instances": [{"id": "1", "id": "2"}]'),
    ("lease", b'{"id": "a", "host": "b", "pid": 1, "command": "c", "since": "d", "process": [], "interval_s": 1, '
     b'"expires_s": 5, "last_beat": "e"}'),
    ("lease", b'{"id": "a", "host": "b", "pid": 1, "command": "c", "since": "d", "process": "x", "interval_s": 1, '
     b'"expires_s": 1e308, "last_beat": "e"}'),
    *(("plan.json", content) for content in (b"{}", b"null", b"[1]", b'{"parts": 3}', b'{"n_parts": 3}')),
    ("SQL", b"select '\xed\xa0\x80'"), ("SQL", b"\xea"), ("SQL", b"describe" + DIGITS.encode()),
    *(("commands", name.encode()) for name in sorted(COMMANDS)), ("commands", b"tasks\ncheck\n" + b"[" * 900),
    ("commands", b"plan\nspec.yaml\n--set\nmodel.path=my model!\n--json"),
]  # fmt: skip
"""Surfaces, and inputs that once ended in a traceback there, or were taken in silence."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = signal.signal(signal.SIGALRM, _alarm)
    yield tmp_path_factory.mktemp("fuzz")
    signal.signal(signal.SIGALRM, before)


def test_a_cluster_file_that_mounts_no_path_is_a_finding(folder: Path) -> None:
    text = (Path(__file__).parents[2] / "cluster.yaml").read_text()
    (folder / "cluster.yaml").write_text(
        re.sub(r"(?m)^file_mounts:.*\n(?:  .*\n)*", "", text)
        + f"file_mounts: {{/a: {{b: c}}, /b: ~no/x, /c: {'n' * 300}}}\n"
    )
    assert sum("file_mounts" in finding.found for finding in cluster_file(folder / "cluster.yaml")) == 3


@pytest.mark.parametrize("name", ["QA data", "conversations", "templates", "table of scores", "task files"])
def test_readers_list_a_few_problems_and_the_number_of_others(name: str, folder: Path) -> None:
    surface, row = surfaces()[name], {"id": 1, "context": "a", "question": 2, "answers": 3, "messages": 4}
    path = folder / (surface.name if "." in surface.name else "rows.jsonl")
    rows = [*range(300)] if name == "conversations" else [row] * 300
    text = {
        "task files": json.dumps({"Categories": ["Text Classification"], "Definition": ["a"], "Instances": rows}),
        "templates": "task,template\n" + ",\n" * 300,
        "table of scores": "task,input,label,logprob,gold\n" + ",,,,\n" * 300,
    }  # fmt: skip
    path.write_text(text.get(name, "\n".join(map(json.dumps, rows))))
    with pytest.raises(InputError) as raised:
        surface.read(path)
    assert len(raised.value.problems) <= 12, raised.value.problems[:12]


_NOT_UTF8 = [None, pa.array([0, 1], pa.int32()).buffers()[1], pa.py_buffer(b"\xbe")]


@pytest.mark.parametrize(
    "bad", [{"task": pa.Array.from_buffers(pa.string(), 1, _NOT_UTF8)}, {"task": [["a"]]}, {"position": [None]}]
)
def test_splits_of_other_values_are_refused(bad: dict[str, Any], folder: Path) -> None:
    path = folder / "splits.parquet"
    pq.write_table(pa.table({"task": ["t"], "instance_id": ["a"], "role": ["main"], "position": [0]} | bad), path)
    with pytest.raises(BiasevalError, match="is no splits table"):
        read_splits(str(path))


@pytest.mark.parametrize(("name", "data"), ONCE)
def test_what_ended_in_a_traceback_once_is_refused(name: str, data: bytes, folder: Path) -> None:
    surface = surfaces()[name]
    path = folder / surface.name
    path.write_bytes(data)
    if name in {"lease", "commands"}:  # a damaged lease is nobody's: it is watched, and taken over
        surface.read(path)
        return
    with pytest.raises(BiasevalError):
        surface.read(path)


@pytest.mark.parametrize("name", sorted(surfaces()))
def test_damaged_inputs_end_in_a_result_or_a_message(name: str, folder: Path) -> None:
    found: dict[str, dict[str, Any]] = {}
    counts = fuzz(surfaces()[name], 10 if name == "commands" else 60, 5, folder, found)
    assert found == {}
    assert sum(counts.values()) > 0
