"""Data as the papers have them: counts of a spec's files, and the job that fetches them."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from biaseval.runs.published_data import PUBLISHED, check_data
from biaseval.spec import load_spec
from tests.commands import Command
from tests.majority_bias.datafiles import boolq_rows, write_jsonl
from tests.processes import ROOT

CONTENT = {"/a/full.csv": b"task,template\n" + b"x,y\n" * 50_000, "/page": b"<html></html>"}


def _states(folder: Path, **content: Any) -> dict[str, tuple[str, str]]:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({"name": "a", **content}))
    return {own.key: (own.state, own.text) for own in check_data(load_spec(path))}


def test_each_file_is_compared_with_the_counts_of_its_paper(shared: Path, tmp_path: Path) -> None:
    qa, superni, majority = (shared / "data" / name for name in ("qa", "superni", "majority"))
    datasets = {
        "train": str(qa / "squad_train.jsonl.gz"),
        "in_distribution": {"squad": str(qa / "squad_dev.jsonl.gz"), "own": str(qa / "squad_addonesent.jsonl")},
        "out_of_distribution": {"adversarialqa": str(qa / "adversarialqa_dev.jsonl"),
            "naturalquestions": str(qa / "naturalquestions_dev.jsonl"), "triviaqa": str(tmp_path / "nothing.json")},
    }  # fmt: skip
    models, model = [{"name": "m", "annotators": True}], {"path": "unused"}
    found = _states(tmp_path, kind="qa_bias", models=models, datasets=datasets)
    assert {key.removeprefix("datasets."): state for key, (state, _) in found.items()} == {
        "train": "differs", "in_distribution.squad": "as published", "in_distribution.own": "no counts",
        "out_of_distribution.adversarialqa": "as published", "out_of_distribution.naturalquestions": "as published",
        "out_of_distribution.triviaqa": "missing",
    }  # fmt: skip
    assert found["datasets.train"][1].startswith("8,099 questions of SQuAD v1.1")
    assert found["datasets.train"][1].endswith("; published are 87,599 questions")
    trivia = found["datasets.out_of_distribution.triviaqa"][1]
    assert "nothing.json: cannot be read" in trivia
    assert "comes from triviaqa_dev_formatted.json of https://github.com/MIR-MU/isbiased" in trivia
    assert trivia.endswith("licence: Apache 2.0")
    tasks = {
        "path": str(superni / "tasks"), "suite": "reif2024",
        "table": str(superni / "task_info.csv"), "templates": str(superni / "templates.csv"),
    }  # fmt: skip
    found = _states(tmp_path, kind="label_bias", model=model, tasks=tasks)
    assert {key: state for key, (state, _) in found.items()} == {
        "tasks.path": "differs", "tasks.table": "as published", "tasks.templates": "as published",
    }  # fmt: skip
    sizes = [len(json.loads(path.read_text())["Instances"]) - 96 for path in (superni / "tasks").glob("*.json")]
    n_rows = sum(min(size, 1000) for size in sizes)
    assert found["tasks.path"][1].startswith(f"{len(sizes)} tasks, {n_rows:,} evaluation rows of Super-Natural")
    assert found["tasks.path"][1].endswith("; published are 279 tasks, 264,176 evaluation rows")
    covid = {"train": str(majority / "covid5g_labels" / "g5_labeled.csv")}
    prompt = {"preset": "covid5g", "n_demos": 28}
    found = _states(tmp_path, kind="majority_bias", model=model, data=covid, prompt=prompt, proportions="ternary_15")
    assert found["data.train"] == ("as published", "2,400 rows of COVID-5G (Micallef et al. 2020)")


def test_the_command_says_what_is_missing_and_where_it_comes_from(tmp_path: Path, command: Command) -> None:
    content = {
        "kind": "majority_bias", "name": "a", "proportions": "binary_11",
        "models": [{"name": "one", "path": "unused"}, {"name": "two", "path": "unused"}],
        "data": {"train": "train.jsonl", "test": "test.jsonl"}, "prompt": {"preset": "boolq", "n_demos": 4},
    }  # fmt: skip
    spec = tmp_path / "spec.yaml"
    spec.write_text(yaml.safe_dump(content))
    write_jsonl(tmp_path / "test.jsonl", boolq_rows("cat", 2000, 1270))
    missing = command("data", "check", str(spec))
    assert missing.code == 2
    first, second = missing.out.splitlines()
    assert first.startswith(f"missing                    data.train: {tmp_path}/train.jsonl: cannot be read")
    assert "BoolQ (Clark et al. 2019) comes from google/boolq on Hugging Face" in first
    assert first.endswith("licence: CC BY-SA 3.0")
    assert second == "as published               data.test: 3,270 rows of BoolQ (Clark et al. 2019)"
    write_jsonl(tmp_path / "train.jsonl", boolq_rows("dog", 2, 3))
    different = command("data", "check", str(spec), "--json")
    assert different.code == 1
    assert [own["state"] for own in json.loads(different.out)] == ["differs", "as published"]


class _Server(BaseHTTPRequestHandler):
    """Serves `CONTENT` with ranges, and breaks off the first answer in the middle."""

    def do_GET(self) -> None:
        body = CONTENT.get(self.path)
        if body is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.server.starts.append(start)  # type: ignore[attr-defined]
        self.send_response(206 if asked else 200)
        self.send_header("Content-Type", "text/html" if self.path == "/page" else "text/csv")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        self.wfile.write(body[start:] if asked else body[: len(body) // 2])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    own = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    own.starts = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=own.serve_forever)
    thread.start()
    yield own
    own.shutdown()
    thread.join()
    own.server_close()


def test_files_are_fetched_in_pieces_and_pages_and_other_lengths_are_refused(
    server: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    from fetch_data import fetch

    base, path = f"http://127.0.0.1:{server.server_port}", tmp_path / "a" / "full.csv"
    with pytest.raises(SystemExit, match="100,007 of 200,014 bytes came; run the same command again to go on"):
        fetch(f"{base}/a/full.csv", path)
    assert not path.exists()
    fetch(f"{base}/a/full.csv", path)
    assert path.read_bytes() == CONTENT["/a/full.csv"]
    assert server.starts == [0, 100_007]  # type: ignore[attr-defined]
    assert [own.name for own in path.parent.iterdir()] == ["full.csv"]
    with pytest.raises(SystemExit, match="is a web page"):
        fetch(f"{base}/page", tmp_path / "page")
    with pytest.raises(SystemExit, match="404"):
        fetch(f"{base}/none", tmp_path / "none")
    (tmp_path / "b.part").write_bytes(CONTENT["/a/full.csv"][:9])
    with pytest.raises(SystemExit, match=r"200,014 of 200,013 bytes came; delete .*b\.part, the file is another"):
        fetch(f"{base}/a/full.csv", tmp_path / "b", 200_013)
    assert sorted(own.name for own in tmp_path.iterdir()) == ["a", "b.part"]


def test_the_job_takes_names_of_published_data_and_a_mirror(
    server: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    [file] = PUBLISHED["templates"]["files"]
    monkeypatch.setitem(CONTENT, urlsplit(file["url"]).path, b"task,template\n")
    base = f"http://127.0.0.1:{server.server_port}"
    job = [sys.executable, "jobs/fetch_data.py", "templates", "--out", str(tmp_path), "--base", base]
    results = [subprocess.run(job, cwd=ROOT, capture_output=True, text=True, check=False) for _ in range(3)]
    assert [result.returncode for result in results] == [1, 0, 0], results[0].stderr
    assert (tmp_path / file["path"]).read_bytes() == b"task,template\n"
    assert len(server.starts) == 2  # type: ignore[attr-defined]


def test_what_can_be_fetched_has_pinned_addresses_and_a_place_of_its_own() -> None:
    files = [file for entry in PUBLISHED.values() for file in entry.get("files", [])]
    assert len({file["path"] for file in files}) == len(files) > 8
    for file in files:
        assert file["url"].startswith("https://")
        assert not {"main", "master", "HEAD"} & set(urlsplit(file["url"]).path.split("/"))
        assert not Path(file["path"]).is_absolute()
