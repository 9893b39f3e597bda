"""Rows of data files, one at a time: CSV, TSV, JSON, JSON lines, Parquet, and data sets as Hugging Face's library saves
them; plain or gzipped, on a local disk, an object store or (``hf://datasets/OWNER/NAME/FILE``) the hub.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import itertools
import sys
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.ipc as paipc
import pyarrow.parquet as pq

from biaseval.errors import InputError
from biaseval.parsing import ParseError, is_json, json_value
from biaseval.store import absolute_uri

KNOWN_FORMATS = (
    "CSV (.csv), TSV (.tsv), JSON (a list of objects), JSON lines and Parquet are read, plain or gzipped, and folders "
    "of them or of a data set that save_to_disk wrote"
)
_SHOWN_PROBLEMS = 10
_MOST_PROBLEMS = 100
"""With so many bad rows the rest of a file is not read."""
_GZIP, _PARQUET, _BYTE_ORDER_MARK = b"\x1f\x8b", b"PAR1", b"\xef\xbb\xbf"
_ZIP = b"PK\x03\x04"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_TABLES = (".csv", ".tsv")
_SUFFIXES = (*_TABLES, ".json", ".jsonl", ".parquet", ".arrow")
_DELIMITERS = ",;\t"
_BATCH_ROWS = 4096
_HUB = "hf://"

Row = tuple[str, dict[str, Any]]
"""A row with its place in the file, as messages name it: ``line 3``."""


class Records:
    """The rows of a file or folder, read as they are asked for, so that a file of any length takes little memory.

    A CSV's delimiter is the one of comma, semicolon and tab that its first line has most of; a TSV is not quoted (as
    GLUE's are not). Values are texts there, and elsewhere what the file has; class numbers of a Hugging Face data set
    become the names that it has for them, unless ``names_classes`` is false.
    """

    def __init__(self, uri: str, *, names_classes: bool = True) -> None:
        self.uri = uri
        self._names_classes = names_classes
        self.problems: list[str] = []
        """What is wrong, each with its place; known once all rows were asked for. Bad rows are not among the rows."""
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of the bytes of the file (of all files of a folder, in the order of their names) once all rows were read."""
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[Row]:
        """Yield the good rows with their places; what is wrong with others is in ``problems`` behind the last."""
        self.problems, self._digest = [], hashlib.sha256()
        try:
            fs, path = filesystem(self.uri)
            files = list(_files(fs, path))
            for file in files:
                where = "" if file == path else f"{file.removeprefix(path).lstrip('/')}: "
                for place, row in self._rows(fs, file, where):
                    yield f"{where}{place}", row
                if len(self.problems) > _MOST_PROBLEMS:
                    return
        except InputError as error:
            self.problems += error.problems
        except Exception as error:
            is_hub = self.uri.startswith(_HUB)  # whose client has errors of its own
            if not is_hub and not isinstance(error, OSError | pa.ArrowException | ValueError):
                raise
            remedy = "check the path, the network and HF_TOKEN" if is_hub else "check the path"
            self.problems.append(f"cannot be read ({_reason(error)}); {remedy}")

    def _rows(self, fs: pafs.FileSystem, path: str, where: str) -> Iterator[Row]:
        with fs.open_input_stream(path, compression=None) as raw:
            digested = io.BufferedReader(_Digested(raw, self._digest))
            is_packed = digested.peek(2)[:2] == _GZIP
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=digested)) if is_packed else digested
            try:
                head = _peeked(stream, 4)
                name = path.removesuffix(".gz").lower()
                if head == _PARQUET or name.endswith((".arrow", ".parquet")):
                    with pa.BufferReader(stream.read()) if is_packed else fs.open_input_file(path) as content:
                        yield from self._table_rows(content, is_parquet=not name.endswith(".arrow"))
                elif head == _ZIP:
                    raise InputError("is a zip file, as Excel's are; save the table as CSV")
                elif head[:2] in _UTF_16:
                    raise InputError("is UTF-16; save it as UTF-8")
                elif name.endswith(_TABLES):
                    yield from self._lines(stream, where, is_quoted=name.endswith(".csv"))
                else:
                    yield from self._json(stream, where, is_lines=name.endswith(".jsonl"))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.problems.append(f"{where}is no complete gzip file ({error}); fetch it again")
            except InputError as error:
                self.problems += [f"{where}{problem}" for problem in error.problems]
            while digested.read(1 << 20):  # what is behind the rows counts in the digest
                pass

    def _table_rows(self, content: pa.NativeFile, *, is_parquet: bool) -> Iterator[Row]:
        try:
            if is_parquet:
                file = pq.ParquetFile(content)
                schema, batches = file.schema_arrow, file.iter_batches(batch_size=_BATCH_ROWS)
            else:
                reader = paipc.open_stream(content)
                schema, batches = reader.schema, iter(reader)
            if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
                raise InputError(f"has the columns {', '.join(map(repr, twice))} twice; name each once")
            names = (
                {column: own for column, own in class_names(schema).items() if column in schema.names}
                if self._names_classes
                else {}
            )
            number = 0
            for batch in batches:
                for row in batch.to_pylist():
                    for column, of_class in names.items():
                        if isinstance(row[column], int) and 0 <= row[column] < len(of_class):
                            row[column] = of_class[row[column]]
                    yield f"row {number}", row
                    number += 1
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"is no readable Parquet or Arrow file ({error}); fetch it again") from error

    def _lines(self, stream: IO[bytes], where: str, *, is_quoted: bool) -> Iterator[Row]:
        """Yield the rows of a table of lines."""
        lines = _decoded(stream)
        first = next(lines, None)
        if first is None:
            raise InputError(f"is empty; {KNOWN_FORMATS}")
        csv.field_size_limit(sys.maxsize)
        delimiter = max(_DELIMITERS, key=first.count) if is_quoted else "\t"
        reader = csv.reader(
            itertools.chain([first], lines),
            delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE,
            strict=True,
        )
        try:
            header = [name.strip() for name in next(reader)]
            if twice := sorted({name for name in header if header.count(name) > 1}):
                raise InputError(f"line 1: names the columns {', '.join(map(repr, twice))} twice; name each once")
            mark = {",": "commas", ";": "semicolons", "\t": "tabs"}[delimiter]
            for cells in reader:
                place = f"line {reader.line_num}"
                if not any(cells):
                    continue
                if len(cells) == len(header):
                    yield place, dict(zip(header, cells, strict=True))
                elif self._note(
                    f"{where}{place}: has {len(cells)} columns and the header {len(header)}; mend the {mark}"
                    + (", or quote texts that hold one" if is_quoted else "")
                ):
                    return
        except csv.Error as error:
            raise InputError(f"line {reader.line_num}: is no row of a table ({error}); mend its quotes") from error

    def _json(self, stream: IO[bytes], where: str, *, is_lines: bool) -> Iterator[Row]:
        for place, value in json_values("", stream, known_formats=KNOWN_FORMATS, is_lines=is_lines):
            if place:
                entries: Iterable[tuple[str, Any]] = [(place, value)]
            elif isinstance(value, dict) and isinstance(value.get("data"), list):
                entries = ((f"data[{index}]", each) for index, each in enumerate(value["data"]))
            elif isinstance(value, list):
                entries = ((f"[{index}]", each) for index, each in enumerate(value))
            else:
                entries = [("line 1" if is_lines else "the object", value)]
            for entry_place, entry in entries:
                if isinstance(entry, dict):
                    yield entry_place, entry
                elif self._note(f"{where}{entry_place}: is no JSON object; write one with the names of the fields"):
                    return

    def _note(self, problem: str) -> bool:
        """Note what is wrong with a row, and return whether that is enough."""
        self.problems.append(problem)
        return len(self.problems) > _MOST_PROBLEMS


class _Digested(io.RawIOBase):
    """A stream whose bytes are counted in a digest as they are read."""

    def __init__(self, stream: pa.NativeFile, digest: Any) -> None:
        self._stream = stream
        self._digest = digest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._digest.update(data)
        buffer[: len(data)] = data
        return len(data)


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return where a file lies: its file system, and its path there.

    Raises:
        OSError, pa.ArrowException, ValueError: there is no such place.
    """
    if uri.startswith(_HUB):
        from huggingface_hub import HfFileSystem

        return pafs.PyFileSystem(pafs.FSSpecHandler(HfFileSystem())), uri.removeprefix(_HUB)
    if "://" in uri:
        return cast(tuple[pafs.FileSystem, str], pafs.FileSystem.from_uri(uri))
    return pafs.LocalFileSystem(), absolute_uri(uri)


def read_file(uri: str) -> bytes:
    """Return a file's bytes, from a local disk or an object store.

    Raises:
        InputError: it cannot be read.
    """
    try:
        fs, path = filesystem(uri)
        # A name that ends in .gz would be decompressed on the way, and the digest be another.
        with fs.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())
    except (OSError, pa.ArrowException, ValueError) as error:
        raise InputError(f"{uri}: cannot be read ({_reason(error)}); name a local file or s3://bucket/key") from error


def digest(uri: str) -> str:
    """Return the SHA-256 of a file, or of the data files of a folder in the order of their names.

    Raises:
        InputError: it cannot be read.
    """
    found = hashlib.sha256()
    try:
        fs, path = filesystem(uri)
        for file in _files(fs, path):
            with fs.open_input_stream(file, compression=None) as stream:
                while block := stream.read(1 << 20):
                    found.update(block)
    except InputError as error:
        raise InputError(f"{uri}: {error}; check the spec's paths") from error
    except (OSError, pa.ArrowException, ValueError) as error:
        raise InputError(f"{uri}: cannot be read ({error}); check the spec's paths") from error
    return found.hexdigest()


def class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of the classes of each column that Hugging Face's library marked as a ``ClassLabel``."""
    try:
        features = json_value((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {
            name: list(map(str, feature["names"]))
            for name, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def json_values(
    uri: str,
    content: bytes | IO[bytes],
    *,
    known_formats: str,
    is_lines: bool = False,
) -> Iterator[tuple[str, Any]]:
    """Yield what a JSON file holds: each line with its place (``line 3``), or the one text with the place ``""``.

    Lines are told from one text by the first of them: it is JSON by itself and others follow. Gzipped content is
    decompressed on the way, so that a file of lines takes the memory of one.

    Args:
        uri: the file's name, for messages; empty where the caller names it.
        content: the file's bytes, or a stream of them.
        known_formats: what could be read instead, for messages.
        is_lines: several lines are lines even where the first is no JSON.

    Raises:
        InputError: the content is no UTF-8 or no JSON, or an object has a key twice; for lines this comes after the
            good ones, with all places.
    """
    file = f"{uri}: " if uri else ""
    problems: list[str] = []
    try:
        stream = decompressed(content) if isinstance(content, bytes) else content
        lines = enumerate(stream, 1)
        filled = ((number, line) for number, line in lines if line.strip(b" \t\r\n" + _BYTE_ORDER_MARK))
        first, second = next(filled, None), next(filled, None)
        if first is None:
            raise InputError(f"{file}is empty; {known_formats}")
        head = first[1].removeprefix(_BYTE_ORDER_MARK).lstrip()
        if head[:1] not in (b"{", b"["):
            start = head[:40].decode("utf-8", "backslashreplace")
            raise InputError(f"{file}is no JSON, it starts with {start!r}; {known_formats}")
        if second is None or not (is_lines or is_json(first[1])):
            whole = b"".join([first[1], *_between(first, second), *(line for _, line in lines)])
            try:
                yield "", json_value(whole, line=first[0])
            except ParseError as error:
                raise InputError(f"{file}{error}; mend the file") from error
            return
        for number, line in itertools.chain([first], [] if second is None else [second], filled):
            try:
                value = json_value(line.rstrip(), line=number)
            except ParseError as error:
                problems.append(str(error))
                if len(problems) > _MOST_PROBLEMS:
                    break
            else:
                yield f"line {number}", value
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}is no complete gzip file ({error}); fetch it again") from error
    if problems:
        n_more = len(problems) - _SHOWN_PROBLEMS
        more = [f"{file}{n_more:,} more lines like these"] if n_more > 0 else []
        shown = [f"{file}{problem}; write one JSON object a line" for problem in problems[:_SHOWN_PROBLEMS]]
        raise InputError.of([*shown, *more])


def decompressed(content: bytes) -> IO[bytes]:
    """Return a stream of a file's bytes, unpacked if they are gzipped."""
    if content.startswith(_GZIP):
        return cast(IO[bytes], gzip.GzipFile(fileobj=io.BytesIO(content)))
    return io.BytesIO(content)


def _between(first: tuple[int, bytes], second: tuple[int, bytes] | None) -> list[bytes]:
    """Return the second filled line, behind as many line breaks as blank lines stand before it."""
    return [] if second is None else [b"\n" * (second[0] - first[0] - 1), second[1]]


def _decoded(stream: IO[bytes]) -> Iterator[str]:
    """Yield the lines of a UTF-8 file.

    Raises:
        InputError: it is none; the message says which byte.
    """
    before = 0
    for number, line in enumerate(stream):
        try:
            yield (line.removeprefix(_BYTE_ORDER_MARK) if number == 0 else line).decode()
        except UnicodeDecodeError as error:
            raise InputError(f"is not UTF-8 (byte {before + error.start}: {error.reason}); save it as UTF-8") from error
        before += len(line)


def _peeked(stream: IO[bytes], n_bytes: int) -> bytes:
    """Return the next bytes of a buffered or gzipped stream, which stay in it."""
    return cast(Any, stream).peek(n_bytes)[:n_bytes]  # type: ignore[no-any-return]


def _files(fs: pafs.FileSystem, path: str) -> Iterator[str]:
    """Yield the files of a data set: the path itself, or what lies in the folder, in the order of names.

    Raises:
        InputError: there is nothing, or a folder of several data sets.
        OSError: it cannot be looked at.
    """
    found = fs.get_file_info(path)
    if found.type == pafs.FileType.NotFound:
        raise FileNotFoundError(2, "No such file or directory")
    if found.type != pafs.FileType.Directory:
        yield path
        return
    inside = sorted(fs.get_file_info(pafs.FileSelector(path)), key=lambda info: info.path)
    names = {info.base_name for info in inside}
    if "dataset_dict.json" in names:
        splits = ", ".join(info.base_name for info in inside if info.type == pafs.FileType.Directory)
        raise InputError(f"holds several data sets ({splits}); name the folder of one")
    is_saved = "state.json" in names  # by save_to_disk, which describes its .arrow files in JSON
    files = [info.path for info in inside if _is_data(info.base_name, is_saved=is_saved)]
    if not files:
        raise InputError(f"is a folder without data files; {KNOWN_FORMATS}")
    yield from files


def _is_data(name: str, *, is_saved: bool) -> bool:
    if name.startswith((".", "_")):
        return False
    if is_saved:  # what map() keeps beside the data is named cache-…
        return name.startswith(("data-", "dataset")) and name.endswith(".arrow")
    return name.removesuffix(".gz").lower().endswith(_SUFFIXES)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
