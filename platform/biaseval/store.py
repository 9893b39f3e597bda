"""Run directories: tables as folders of atomic Parquet parts, and the list of missing parts.

A file is complete when its final name exists. On a local disk biaseval writes a temporary name, which never ends in
``.parquet``, and renames it. On an object store one PUT creates the file. `biaseval.digests` detects later changes;
``plan.json``, ``environment.json`` and ``spec.yaml`` also end in their own digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from biaseval.cache import local_path, object_store
from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.parsing import ParseError, json_value, yaml_value

_PART = re.compile(r"part-(\d{5,})\.parquet")
_SMALLEST_PART = 12
"""Bytes of the shortest possible Parquet file: magic numbers and the length of the footer."""
UNRECORDED = "failed_parts"
"""The table that commands write again while a run goes on, so that it has no digest."""
_TEMPORARY_MARK = ".incomplete-"
_LOCK = ".lock"
_PROBE = ".writable"

PAUSES_S = (1.0, 4.0, 12.0, 30.0)
"""Seconds between attempts to write to an object store; each attempt includes several by Arrow."""

_NO_BUCKET = ("NO_SUCH_BUCKET", "NoSuchBucket")
"""The error names of Arrow and boto3 for a bucket that does not exist."""

_REFUSALS = (*_NO_BUCKET, "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH")
"""The error names for answers of a store that a retry does not change."""

FIRST = "environment.json"
"""The first file of a run: a folder with this file is a run."""

DIGESTS = "digests.json"
"""The file of a run that holds a digest of every finished file (`biaseval.digests`)."""

ASIDE = "aside"
"""The folder of a run for files that differ from the recorded digest, or that it does not know."""

_OWN_DIGEST = "own_sha256"
"""The last key of a JSON file that holds a digest of itself, and the last line of such a YAML file, after a ``#``."""

LOGS, _LOG, _LOG_BEFORE = "logs", r"logs/[\dTZ-]+-[0-9a-f]{4}\.log", "run.log"
"""The folder of a run with the output of each start of a command, in a file each; older versions had one file."""

LEASE = "lease.json"
"""The file of a run that says which process works on it (`biaseval.lease`)."""


def part_name(number: int) -> str:
    """Return the file name of part ``number`` (0-based)."""
    return f"part-{number:05d}.parquet"


def part_number(name: str) -> int | None:
    """Return the number of the part that ``table/part-NNNNN.parquet`` is; None: it is no part."""
    file = name.rpartition("/")[2]
    match = _PART.fullmatch(file)
    number = None if match is None else int(match.group(1))
    return number if number is not None and file == part_name(number) else None


def sha256_of(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def parquet_bytes(rows: pa.Table) -> bytes:
    """Return rows as a Parquet file (zstd, a checksum in each page); the same rows give the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue().to_pybytes())


def temporary_name(name: str) -> str:
    """Return a unique temporary name, which no file of a run has."""
    return f"{name}{_TEMPORARY_MARK}{uuid.uuid4().hex[:12]}"


def absolute_uri(uri: str) -> str:
    """Return ``uri`` itself for an object store, the absolute path for a local directory."""
    return uri if "://" in uri else str(local_path(uri))


def write_file(uri: str, text: str) -> str:
    """Write UTF-8 to a local or ``s3://`` file that is in no run, in one step, and return its absolute URI.

    Raises:
        BiasevalError: it cannot be written.
    """
    folder, _, name = absolute_uri(uri).rpartition("/")
    Run.open(folder or "/").write_text(name, text)
    return absolute_uri(uri)


class Digest(NamedTuple):
    """What a finished file is."""

    size: int
    """Bytes."""
    sha256: str
    time_ns: int | None = None
    """When it was written, by the clock of the disk or store; None: nobody looked since."""


@dataclass
class Ledger:
    """What a process knows of the finished files of a run."""

    files: dict[str, Digest | None] = field(default_factory=dict)
    """Files of the run, by name; None: nobody has read it yet."""
    known: Mapping[str, Digest] | None = None
    """What `DIGESTS` held; None: there is none, or nobody has read it."""
    is_whole: bool = False
    """Whether a part that is not among ``files`` is not of the run."""
    damaged: frozenset[str] = frozenset()
    """Files that differ from the recorded digest: they count as missing."""
    lost: frozenset[str] = frozenset()
    """Files that were there once, or could not be read."""


@dataclass(frozen=True)
class Run:
    """A run directory, on a local disk or an object store.

    Cheap to make and to send to workers by its ``uri``; holds no open file.
    """

    uri: str
    """What the user gave, made absolute: a path or ``s3://bucket/prefix``."""
    fs: pafs.FileSystem
    root: str
    """The run's path inside ``fs``."""
    guard: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Called before anything is written or deleted; raises where this process may not any more."""
    ledger: Ledger = field(default_factory=Ledger, repr=False, compare=False)
    """The record of the files that this process writes."""
    keeps: bool = field(default=False, repr=False, compare=False)
    """Whether the Parquet files that are there stay: they are a plan's, which is made again."""

    @classmethod
    def open(cls, uri: str) -> Run:
        """Return the run at ``uri``, which need not exist yet.

        Raises:
            InputError: the URI's scheme is unknown or its bucket cannot be reached.
        """
        uri = absolute_uri(uri)
        try:
            if "://" in uri:
                fs, root = object_store(uri)
            else:
                fs, root = pafs.LocalFileSystem(), uri
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(f"{uri}: cannot open this run directory: {error}; use a local path or s3://") from error
        return cls(uri=uri, fs=fs, root=root.rstrip("/"))

    @property
    def is_sealed(self) -> bool:
        """Whether files of the run say themselves whether they are whole; those of older versions do not."""
        return self.has(DIGESTS) or (self.has(FIRST) and _OWN_DIGEST.encode() in self.read_bytes(FIRST))

    @property
    def is_local(self) -> bool:
        """Whether the run lies on a local disk."""
        return isinstance(self.fs, pafs.LocalFileSystem)

    def path(self, name: str) -> str:
        """Return the path of ``name`` inside ``fs``; ``name`` cannot leave the run directory."""
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise InputError(f"{name}: names inside a run directory cannot be absolute or contain '..'")
        return f"{self.root}/{relative}"

    def has(self, name: str) -> bool:
        """Return whether the file or folder ``name`` exists, undamaged; Raises: as `names`."""
        if name in self.ledger.damaged:
            return False
        with self.reached():
            return bool(self.fs.get_file_info(self.path(name)).type != pafs.FileType.NotFound)

    def names(self) -> list[str]:
        """Return the names of the files and folders directly in the run; empty if it does not exist.

        Raises:
            TransientError: the disk or store does not answer, or refuses.
        """
        with self.reached():
            if self.fs.get_file_info(self.root).type != pafs.FileType.Directory:
                return []
            return sorted(info.base_name for info in self.fs.get_file_info(pafs.FileSelector(self.root)))

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Turn what a disk or store raises in the block, but for files that are not there, into a TransientError."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise TransientError(
                f"{self.uri}: cannot be read ({_reason(error)}); check the path, rights and credentials, and try again"
            ) from error

    def create(self) -> None:
        """Make the run directory and prove that it can be written; Raises InputError: it cannot be made or written."""
        try:
            if self.is_local:
                os.makedirs(self.root, exist_ok=True)
            self.write_bytes(_PROBE, b"")
            self.fs.delete_file(self.path(_PROBE))
        except (OSError, pa.ArrowException, BiasevalError) as error:
            raise InputError(
                f"{self.uri}: the run directory cannot be written ({_reason(error)}); choose another with --run-dir"
            ) from error

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write ``data`` to ``name`` in one step: a reader sees all of it or nothing.

        Raises:
            TransientError: the disk is full, the store does not answer, or another process took the run over.
            InputError: a repeated plan differs from the stored plan.
        """
        self.guard()
        if self.keeps and name.endswith(".parquet") and self._is_there(name, data):
            self.ledger.files[name] = None
            return
        path = self.path(name)
        try:
            if self.is_local:
                os.makedirs(self._own_folder(name), exist_ok=True)
                temporary = temporary_name(path)
                try:
                    with open(temporary, "wb") as file:
                        file.write(data)
                        file.flush()
                        os.fsync(file.fileno())
                    os.replace(temporary, path)
                except BaseException:
                    Path(temporary).unlink(missing_ok=True)
                    raise
            else:
                self._put_patiently(path, data)
        except OSError as error:
            raise TransientError(
                f"{self.uri}/{name}: cannot be written ({_reason(error)}); "
                "mend this and run the same command again: complete parts are kept"
            ) from error

        self.ledger.files[name] = Digest(len(data), sha256_of(data))

    def _is_there(self, name: str, data: bytes) -> bool:
        """Return whether a file of a plan need not be written again.

        Raises:
            InputError: it is there, or once was, with other rows.
        """
        known, is_there = (self.ledger.known or {}).get(name), bool(self.listed(name))
        is_same = known is None if not is_there else _same_rows(self.read_bytes(name), data)
        if not (is_same or (known is not None and known.sha256 == sha256_of(data))):
            raise InputError(
                f"{self.uri}/{name}: planning again gives other rows than those that the run was made with; restore "
                "the files that are missing, or choose another directory (nothing was changed)"
            )
        return is_there

    def _put_patiently(self, path: str, data: bytes) -> None:
        """Write to an object store, and try again for most of a minute where it does not answer."""
        for pause_s in (*PAUSES_S, None):
            try:
                _out_of_reach(lambda: self._put(path, data))
                return
            except OSError as error:
                if pause_s is None or isinstance(error, FileNotFoundError) or is_refusal(error):
                    raise
            time.sleep(pause_s)
            self.guard()

    def _put(self, path: str, data: bytes) -> None:
        with self.fs.open_output_stream(path) as stream:
            stream.write(data)

    def write_text(self, name: str, text: str) -> None:
        """Write ``text`` as UTF-8 to ``name`` in one step."""
        self.write_bytes(name, text.encode())

    def write_json(self, name: str, content: object) -> None:
        """Write ``content`` as indented JSON to ``name`` in one step."""
        self.write_text(name, json.dumps(content, indent=1, ensure_ascii=False, sort_keys=False) + "\n")

    def write_sealed(self, name: str, content: Mapping[str, Any]) -> None:
        """Write ``content`` as JSON that ends in a digest of itself, which `read_json` compares."""
        self.write_json(name, {**content, _OWN_DIGEST: sha256_of(json.dumps(content).encode())})

    def write_sealed_yaml(self, name: str, text: str) -> None:
        """Write YAML that ends in a digest of itself, as a comment, which `read_yaml` compares."""
        self.write_text(name, f"{text}# {_OWN_DIGEST}: {sha256_of(text.encode())}\n")

    def read_bytes(self, name: str) -> bytes:
        """Return the content of ``name``; Raises: as `names`, and FileNotFoundError."""
        with self.reached(), self.fs.open_input_stream(self.path(name)) as stream:
            return bytes(stream.read())

    def sha256(self, name: str) -> str:
        """Return the SHA-256 of the file ``name``, of which little is in memory at a time; Raises: as `read_bytes`."""
        with self.reached(), self.fs.open_input_stream(self.path(name), buffer_size=1 << 20) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def read_text(self, name: str) -> str:
        """Return the content of ``name``, which is UTF-8."""
        return self.read_bytes(name).decode()

    def read_json(self, name: str) -> Any:
        """Return the content of the JSON file ``name``, without the digest that it may end in.

        Raises:
            InputError: it is damaged.
        """
        try:
            content = json_value(self.read_bytes(name))
        except ParseError as error:
            raise self._damaged(name, str(error)) from error
        if isinstance(content, dict) and _OWN_DIGEST in content:
            digest = content.pop(_OWN_DIGEST)
            if digest != sha256_of(json.dumps(content).encode()):
                raise self._damaged(name, "its bytes differ from those written")
        elif (
            name == "plan.json"
            and isinstance(content, dict)
            and not (isinstance(content.get("parts"), list) or {"n_trials", "n_rows"} & content.keys())
        ):
            raise self._damaged(name, "its end is missing")
        return content

    def read_yaml(self, name: str, *, is_sealed: bool = False) -> Any:
        """Return the content of the YAML file ``name``; with ``is_sealed`` it must end in a digest of itself.

        Raises:
            InputError: it is damaged, or differs from a digest of itself that is there.
        """
        try:
            text = self.read_text(name)
            content = yaml_value(text)
        except ValueError as error:
            raise self._damaged(name, str(error)) from error
        body, mark, digest = text.rpartition(f"# {_OWN_DIGEST}: ")
        if (is_sealed and not mark) or (mark and digest != f"{sha256_of(body.encode())}\n"):
            raise self._damaged(name, "its bytes differ from those written" if mark else "its end is missing")
        return content

    def _damaged(self, name: str, reason: str) -> InputError:
        reason = " ".join(reason.split())
        return InputError(f"{self.uri}/{name}: is damaged ({reason}); restore it, or start the run again elsewhere")

    def write_part(self, table: str, number: int, rows: pa.Table) -> None:
        """Write part ``number`` of ``table`` in one step."""
        self.write_table(f"{table}/{part_name(number)}", rows)

    def write_table(self, name: str, rows: pa.Table) -> None:
        """Write ``rows`` as the Parquet file ``name`` (zstd) in one step."""
        self.write_bytes(name, parquet_bytes(rows))

    def read_part(self, table: str, number: int) -> pa.Table:
        """Return part ``number`` of ``table``."""
        with self.fs.open_input_file(self.path(f"{table}/{part_name(number)}")) as file:
            return pq.read_table(file)

    def part_columns(self, table: str, number: int) -> list[str]:
        """Return the names of the columns of part ``number`` of ``table``, without reading its rows."""
        with self.fs.open_input_file(self.path(f"{table}/{part_name(number)}")) as file:
            return list(pq.read_schema(file).names)

    def read_table(self, table: str) -> pa.Table:
        """Return all parts of ``table``, in the order of their numbers; Raises BiasevalError: the table has no part."""
        numbers = sorted(self.parts(table))
        if not numbers:
            raise BiasevalError(f"{self.uri}: the table {table} has no part; run the same command again")
        return pa.concat_tables([self.read_part(table, number) for number in numbers])

    def parts(self, table: str) -> set[int]:
        """Return the numbers of the complete parts of ``table``."""
        numbers = {name: part_number(name) for name in self.listed(table, in_folders=False)}
        is_own = self.ledger.files.__contains__ if self.ledger.is_whole and table != UNRECORDED else lambda _: True
        return {number for name, number in numbers.items() if number is not None and is_own(name)}

    def files(self, name: str) -> set[str]:
        """Return the names of the complete files below the folder ``name``, or the name itself if it is a file.

        Empty files, damaged files and files ``.parquet`` that are too short are not complete.
        """
        return set(self.listed(name))

    def listed(self, name: str, *, in_folders: bool = True) -> dict[str, tuple[int, int]]:
        """Return size and time of each of `files`: bytes, and nanoseconds since 1970 by the clock of disk or store.

        Without ``in_folders`` files in folders of the folder are left out.

        Raises:
            TransientError: as `names`.
        """
        path = self.path(name)
        with self.reached():
            infos = [self.fs.get_file_info(path)]
            if infos[0].type != pafs.FileType.File:
                infos = self.fs.get_file_info(pafs.FileSelector(path, allow_not_found=True, recursive=in_folders))
        listed = {
            f"{name}{info.path.removeprefix(path)}": (info.size, info.mtime_ns)
            for info in infos
            if info.type == pafs.FileType.File
            and info.size >= (_SMALLEST_PART if info.extension == "parquet" else 1)
            and _TEMPORARY_MARK not in info.base_name
        }
        return {file: seen for file, seen in listed.items() if file not in self.ledger.damaged}

    @contextmanager
    def local_folder(self, name: str) -> Iterator[str]:
        """Yield the path of a folder on the local disk: itself, or a copy of it while the block lasts."""
        if self.is_local:
            yield self.path(name)
            return
        with tempfile.TemporaryDirectory(prefix="biaseval-") as copy:
            pafs.copy_files(
                self.path(name), copy, source_filesystem=self.fs, destination_filesystem=pafs.LocalFileSystem()
            )
            yield copy

    def _own_folder(self, name: str) -> str:
        folder = os.path.dirname(self.path(name))
        if self.is_local and os.path.realpath(folder) != os.path.normpath(folder):
            raise InputError(f"{self.uri}/{name}: lies behind a link, which no write follows; copy the files here")
        return folder

    def delete(self, name: str) -> None:
        """Delete the table or file ``name``; nothing happens if it does not exist."""
        self.guard()
        self._own_folder(name)
        kind = self.fs.get_file_info(self.path(name)).type
        if kind == pafs.FileType.Directory:
            self.fs.delete_dir(self.path(name))
        elif kind == pafs.FileType.File:
            self.fs.delete_file(self.path(name))
        for file in [file for file in self.ledger.files if file == name or file.startswith(f"{name}/")]:
            del self.ledger.files[file]

    def set_aside(self, name: str) -> None:
        """Move a file out of the way, into the folder `ASIDE`, where the same one may be already."""
        self.guard()
        self._own_folder(name)
        place = f"{ASIDE}/{name}.{self.sha256(name)[:8]}"
        if self.is_local:
            os.makedirs(self._own_folder(place), exist_ok=True)
        self.fs.move(self.path(name), self.path(place))
        self.ledger.files.pop(name, None)

    def leftovers(self) -> set[str]:
        """Return the names directly in the run that a killed process may leave and that say nothing."""
        names, own = set(self.names()), {_LOCK, _PROBE, LEASE, _LOG_BEFORE}
        if LOGS in names and all(re.fullmatch(_LOG, name) for name in self.files(LOGS)):
            own.add(LOGS)
        return {name for name in names if name in own or _TEMPORARY_MARK in name}

    def sweep(self) -> None:
        """Delete what a killed process left under temporary names (local disks only)."""
        if self.is_local and os.path.isdir(self.root):
            own_folders = (path for path in Path(self.root).iterdir() if path.is_dir() and not path.is_symlink())
            for folder in (Path(self.root), *own_folders):
                for path in folder.glob(f"*{_TEMPORARY_MARK}*"):
                    path.unlink(missing_ok=True)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes of this machine out of the run; the lock goes with the process, however it ends.

        An object store has no lock; there the lease keeps others out, of other machines, too (`biaseval.lease`).

        Raises:
            TransientError: another process holds it.
            InputError: the run cannot be written.
        """
        if not self.is_local:
            yield
            return
        lock = FileLock(self.path(_LOCK), timeout=0)
        try:
            lock.acquire()
        except Timeout as error:
            raise TransientError(
                f"{self.uri}: another process is working on this run; wait for it, or choose another directory"
            ) from error
        except OSError as error:
            raise InputError(
                f"{self.uri}: cannot be written ({_reason(error)}); check its rights, or copy the run"
            ) from error
        try:
            yield
        finally:
            lock.release()


def is_refusal(error: BaseException) -> bool:
    """Return whether a store will answer the same next time: it lets nobody in, or the bucket does not exist."""
    return any(name in str(error) for name in _REFUSALS)


def lacks_bucket(error: BaseException) -> bool:
    """Return whether a store said that the bucket does not exist."""
    return any(name in str(error) for name in _NO_BUCKET)


def _same_rows(old: bytes, new: bytes) -> bool:
    """Return whether two Parquet files have the same rows; newer versions may write more columns."""
    try:
        before, after = (pq.read_table(pa.BufferReader(data)) for data in (old, new))
        return bool(before.equals(after.select(before.column_names)))
    except (pa.ArrowException, OSError, KeyError):
        return False


def _out_of_reach(write: Callable[[], None]) -> None:
    """Write in a thread of its own, which no signal reaches; raise what ``write`` raised.

    A worker that is asked to end, or Ctrl-C, raises an exception wherever Python is. Inside Arrow's stream to an object
    store, the exception would publish an incomplete file under the final name: closing a stream completes the upload.
    """
    failures: list[BaseException] = []

    def work() -> None:
        try:
            write()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="biaseval-write")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def _reason(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, BiasevalError) and error.__cause__ else error
    if lacks_bucket(cause):
        return "its bucket does not exist; make it, or mend its name"
    return getattr(cause, "strerror", None) or str(cause)
