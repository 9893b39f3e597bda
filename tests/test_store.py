import os
import threading
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest

from biaseval.cache import object_store
from biaseval.errors import BiasevalError, InputError
from biaseval.store import Run


def _rows(*values: int) -> pa.Table:
    return pa.table({"value": list(values)})


def test_a_table_is_its_complete_parts_in_order(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path / "run"))
    assert run.parts("scores") == set()
    run.write_part("scores", 10, _rows(3))
    run.write_part("scores", 2, _rows(1, 2))
    (tmp_path / "run" / "scores" / "part-00003.parquet.incomplete-abc").write_bytes(b"half")
    assert run.parts("scores") == {2, 10}
    assert run.read_table("scores")["value"].to_pylist() == [1, 2, 3]
    with pytest.raises(BiasevalError, match="has no part"):
        run.read_table("nothing")
    # An empty file is not complete, whatever its name.
    run.write_text("adapters/a/config.json", "{}")
    run.write_text("adapters/b/config.json", "")
    assert run.files("adapters") == {"adapters/a/config.json"}


def test_temporary_names_do_not_end_in_parquet_and_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.open(str(tmp_path))
    names: list[str] = []
    replace = os.replace

    def spy(source: str, target: str) -> None:
        names.append(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", spy)
    run.write_part("scores", 0, _rows(1))
    assert [name.endswith(".parquet") for name in names] == [False]
    Path(names[0]).write_bytes(b"left by a killed process")
    Run.open(str(tmp_path / "not there")).sweep()
    run.sweep()
    assert [path.name for path in (tmp_path / "scores").iterdir()] == ["part-00000.parquet"]


def test_a_failed_write_leaves_the_old_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run.open(str(tmp_path))
    run.write_text("plan.json", "old")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(BiasevalError, match=r"plan\.json: cannot be written \(No space left on device\)"):
        run.write_text("plan.json", "new")
    assert run.read_text("plan.json") == "old"
    assert run.names() == ["plan.json"]


def test_names_cannot_leave_a_run_directory_and_not_every_folder_can_be_one(tmp_path: Path) -> None:
    for name in ("../outside", "/etc/passwd", "a/../../b"):
        with pytest.raises(InputError, match="cannot be absolute or contain"):
            Run.open(str(tmp_path)).write_text(name, "x")
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        Run.open(str(tmp_path / "file" / "run")).create()


class Refusing(BaseHTTPRequestHandler):
    """A store that lets nobody in."""

    def do_HEAD(self) -> None:  # the names that Python asks for
        self.send_response(403)
        self.end_headers()

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *arguments: Any) -> None:
        pass


def test_a_store_that_lets_nobody_in_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    try:
        run = Run.open("s3://bucket/run")
        looks: list[Callable[[], object]] = [lambda: run.has("plan.json"), run.names, lambda: run.files("scores")]
        for look in [*looks, lambda: run.read_bytes("plan.json")]:
            with pytest.raises(BiasevalError, match=r"^s3://bucket/run: cannot be read \(.*; check the path"):
                look()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("uri", ["hdfs://host/run", "mock://run", "nonsense://run", "hf://owner/name"])
def test_other_stores_are_refused_at_once(uri: str) -> None:
    with pytest.raises(InputError, match=r"^\w+://[\w/]+: cannot open this run directory: \w+:// is not"):
        Run.open(uri)


def test_a_store_of_google_that_does_not_answer_is_given_up_after_a_minute() -> None:
    fs, path = object_store("gs://bucket/run")
    options = fs.__reduce__()[1][0]
    assert (path, options["retry_time_limit"]) == ("bucket/run", timedelta(seconds=60))
