"""Rows of data files, one at a time: CSV, TSV, JSON, JSON lines, Parquet, and data sets as Hugging Face's library saves
them; plain or gzipped, on a local disk, an object store or (``hf://datasets/OWNER/NAME/FILE``) the hub.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.ipc as paipc
import pyarrow.parquet as pq

from biaseval.cache import object_store
from biaseval.delimited import how_written, table_rows
from biaseval.errors import InputError, first_of, refuse
from biaseval.parsing import ParseError, is_json, json_value
from biaseval.store import absolute_uri

KNOWN_FORMATS = (
    "CSV (.csv), TSV (.tsv), JSON (a list of objects), JSON lines and Parquet are read, plain or gzipped, and folders "
    "of them or of a data set that save_to_disk wrote"
)
_MOST_PROBLEMS = 100
"""With so many bad rows the rest of a file is not read."""
_MOST_UNPACKED, _MOST_PACKED = 1 << 26, 200
"""Bytes that each gzipped file may hold, and how many times its size a larger one may; texts take about a fifth."""
_GZIP, _PARQUET, _BYTE_ORDER_MARK = b"\x1f\x8b", b"PAR1", b"\xef\xbb\xbf"
_ZIP = b"PK\x03\x04"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_JSON = (b'{"', b"[{")
_TABLES = (".csv", ".tsv")
_SUFFIXES = (*_TABLES, ".json", ".jsonl", ".parquet", ".arrow")
_SPLIT = re.compile(r"(?<![a-z])(train(ing)?|test|validation|valid|val|dev)(?![a-z])")
"""In the name of a file, the part of a data set that it is."""
_BATCH_ROWS = 4096
_HUB = "hf://"

Row = tuple[str, dict[str, Any]]
"""A row with its place in the file, as messages name it: ``line 3``."""


class Records:
    """The rows of a file or folder, read as they are asked for, so that a file of any length takes little memory.

    How a CSV or TSV is written is told by all of it (`biaseval.delimited`). Values are texts there, and elsewhere what
    the file has; class numbers of a Hugging Face data set become the names that it has for them, and its -1, which
    stands for a hidden label, becomes None.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.problems: list[str] = []
        """The mistakes, each with its place; complete after the last row. Bad rows are not among the rows."""
        self.notes: list[str] = []
        """Sentences about the file for readers of the results; complete after the last row."""
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The hash of the bytes of the file, or of the files of a folder by name; complete after the last row."""
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[Row]:
        """Yield the good rows with their places; ``problems`` has the mistakes of the others after the last."""
        self.problems, self.notes, self._digest = [], [], hashlib.sha256()
        try:
            fs, path = filesystem(self.uri)
            files = _files(fs, path)
            if files.indices:
                yield from self._selected(fs, files)
                return
            for file in files.data:
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
        with _opened(fs, path, self._digest) as stream:
            try:
                head = _peeked(stream, 4)
                name = path.lower().removesuffix(".gz")
                if head == _PARQUET or name.endswith((".arrow", ".parquet")):
                    is_packed = isinstance(cast(io.BufferedReader, stream).raw, _Unpacked)
                    with pa.BufferReader(stream.read()) if is_packed else fs.open_input_file(path) as content:
                        yield from self._table_rows(content, where, is_parquet=not name.endswith(".arrow"))
                elif head == _ZIP:
                    raise InputError("is a zip file, as Excel's are; save the table as CSV")
                elif head[:2] in _UTF_16 or b"\0" in head:
                    name = "UTF-32" if b"\0\0" in head else "UTF-16"
                    raise InputError(f"is {name}; save it as UTF-8")
                elif not head:
                    raise InputError(f"is empty; {KNOWN_FORMATS}")
                elif name.endswith(_TABLES) and _peeked(stream, 5).removeprefix(_BYTE_ORDER_MARK)[:2] in _JSON:
                    raise InputError("looks like JSON; name it .json, or .jsonl where each line is an object")
                elif name.endswith(_TABLES):
                    written = how_written(lambda: _opened(fs, path), is_tsv=name.endswith(".tsv"))
                    self.notes += [f"{where}{note}" for note in written.notes]
                    for place, row, problem in table_rows(stream, written):
                        if problem is None:
                            yield place, row
                        elif self._note(f"{where}{place}: {problem}"):
                            return
                else:
                    yield from self._json(stream, where, is_lines=name.endswith(".jsonl"))
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                self.problems.append(f"{where}is no complete gzip file ({error}); fetch it again")
            except InputError as error:
                self.problems += [f"{where}{problem}" for problem in error.problems]

    def _selected(self, fs: pafs.FileSystem, files: _Files) -> Iterator[Row]:
        """Yield the rows of a saved data set that its indices select, in their order."""

        def table(path: str) -> pa.Table:
            with _opened(fs, path, self._digest):  # for the digest
                pass
            is_local = isinstance(fs, pafs.LocalFileSystem)
            return paipc.open_stream(pa.memory_map(path) if is_local else fs.open_input_file(path)).read_all()

        try:
            whole = pa.concat_tables([table(path) for path in files.data])
            indices = pa.concat_tables([table(path) for path in files.indices]).column(0)
            starts = range(0, len(indices), _BATCH_ROWS)
            batches = (whole.take(indices.slice(start, _BATCH_ROWS)) for start in starts)
            yield from self._named(whole.schema, batches, "")
        except (pa.ArrowException, OSError, IndexError) as error:
            raise InputError(f"is no readable data set of Arrow files ({error}); save it again") from error

    def _table_rows(self, content: pa.NativeFile, where: str, *, is_parquet: bool) -> Iterator[Row]:
        try:
            if is_parquet:
                file = pq.ParquetFile(content)
                yield from self._named(file.schema_arrow, file.iter_batches(batch_size=_BATCH_ROWS), where)
            else:
                reader = paipc.open_stream(content)
                yield from self._named(reader.schema, reader, where)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"is no readable Parquet or Arrow file ({error}); fetch it again") from error

    def _named(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch | pa.Table], where: str) -> Iterator[Row]:
        """Yield rows with the names of their classes."""
        if twice := sorted({name for name in schema.names if schema.names.count(name) > 1}):
            raise InputError(f"names the columns {', '.join(map(repr, twice))} twice; name each once")
        known = class_names(schema)
        names = {column: own for column, own in known.items() if column in schema.names}
        hidden, number = dict.fromkeys(names, 0), 0
        for batch in batches:
            values = [_values(name, own) for name, own in zip(batch.schema.names, batch.columns, strict=True)]
            for row in (dict(zip(batch.schema.names, own, strict=True)) for own in zip(*values, strict=True)):
                for column, of_class in names.items():
                    if isinstance(row[column], int) and row[column] < len(of_class):
                        hidden[column] += row[column] < 0
                        row[column] = of_class[row[column]] if row[column] >= 0 else None
                yield f"row {number}", row
                number += 1
        self.notes += [
            f"{where}{column}: {n:,} of {number:,} rows have -1, which stands for a hidden label, as in test splits of "
            "Hugging Face's hub; name a split with labels"
            for column, n in hidden.items()
            if n
        ]

    def _json(self, stream: IO[bytes], where: str, *, is_lines: bool) -> Iterator[Row]:
        for place, value in json_values("", stream, known_formats=KNOWN_FORMATS, is_lines=is_lines):
            data = value.get("data") if isinstance(value, dict) else None
            if not place and isinstance(value, list):
                entries: Iterable[tuple[str, Any]] = ((f"[{index}]", each) for index, each in enumerate(value))
            elif not place and isinstance(data, list):
                entries = ((f"data[{index}]", each) for index, each in enumerate(data))
            else:
                entries = [(place or ("line 1" if is_lines else "the object"), value)]
            for entry_place, entry in entries:
                if isinstance(entry, dict):
                    yield entry_place, entry
                elif self._note(f"{where}{entry_place}: is no JSON object; write one with the names of the fields"):
                    return

    def _note(self, problem: str) -> bool:
        """Record a row's mistake, and return whether there are enough to stop."""
        self.problems.append(problem)
        return len(self.problems) > _MOST_PROBLEMS


def _values(name: str, column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values; times that Python has none for, which are no texts and no labels, count as missing.

    Numbers of a decimal type are whole ones, or texts where they have decimals.

    Raises:
        InputError: other values cannot be read.
    """
    try:
        values = cast(list[Any], column.to_pylist())
    except (OverflowError, ValueError, KeyError) as error:  # a KeyError: of pytz, which pyarrow takes if it is there
        if pa.types.is_temporal(column.type):
            return [None] * len(column)
        raise InputError(f"{name}: cannot be read ({error}); mend the column, or take it out") from error
    if pa.types.is_decimal(column.type):
        return [own if own is None else int(own) if own == int(own) else str(own) for own in values]
    return values


class _Digested(io.RawIOBase):
    """A stream whose bytes are counted in a digest as they are read."""

    def __init__(self, stream: pa.NativeFile, digest: Any) -> None:
        self._stream, self._digest, self._n_bytes = stream, digest, 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._n_bytes

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self._digest.update(data)
        self._n_bytes += len(data)
        buffer[: len(data)] = data
        return len(data)


class _Unpacked(io.RawIOBase):
    """The content of a gzipped stream; of one that nobody packed for its rows, only the beginning."""

    def __init__(self, packed: io.BufferedIOBase) -> None:
        self._packed, self._content, self._n_bytes = packed, gzip.GzipFile(fileobj=packed), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._content.read1(len(buffer))
        buffer[: len(data)] = data
        self._n_bytes += len(data)
        if self._n_bytes > max(_MOST_UNPACKED, _MOST_PACKED * self._packed.tell()):
            raise InputError(f"unpacks to more than {_MOST_PACKED} times its size; unpack it first if it is sound")
        return len(data)


@contextlib.contextmanager
def _opened(fs: pafs.FileSystem, path: str, digest: Any = None) -> Iterator[IO[bytes]]:
    """Open a file at its beginning, unpacked if it is gzipped; all of its bytes count in the digest in the end."""
    with fs.open_input_stream(path, compression=None) as raw:
        digested = io.BufferedReader(_Digested(raw, hashlib.sha256() if digest is None else digest))
        is_packed = digested.peek(2)[:2] == _GZIP
        yield _unpacked(digested) if is_packed else digested
        while digest is not None and digested.read(1 << 20):
            pass


def filesystem(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return where a file lies: its file system, and its path there.

    Raises:
        OSError, pa.ArrowException, ValueError: there is no such place.
    """
    if uri.startswith(_HUB):
        from huggingface_hub import HfFileSystem

        return pafs.PyFileSystem(pafs.FSSpecHandler(HfFileSystem())), uri.removeprefix(_HUB)
    if "://" in uri:
        return object_store(uri)
    return pafs.LocalFileSystem(), absolute_uri(uri)


def is_missing(value: object) -> bool:
    """Return whether a value of a row is missing: null, blank text, or NaN, which pandas writes for one."""
    return not value.strip() if isinstance(value, str) else value is None or value != value


def read_columns(uri: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Return these columns of all rows of a file, as texts.

    Raises:
        InputError: the file cannot be read, is written in a way that a reader should know of, or lacks a column.
    """
    records = Records(uri)
    rows = [row for _, row in records]
    problems = [*records.problems, *records.notes]
    if missing := [column for column in columns if not all(column in row for row in rows)]:
        problems.append(f"lacks the columns {', '.join(missing)}; a table has {', '.join(columns)}")
    if problems or not rows:
        raise InputError.of([f"{uri}: {problem}" for problem in problems or ["holds no row; check the path"]])
    return [{name: "" if is_missing(row[name]) else str(row[name]) for name in columns} for row in rows]


def read_file(uri: str) -> bytes:
    """Return a file's bytes, from a local disk or an object store; Raises InputError: it cannot be read."""
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
        files = _files(fs, path)
        for file in (*files.data, *files.indices):
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
    uri: str, content: bytes | IO[bytes], *, known_formats: str, is_lines: bool = False
) -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON file: each line with its place (``line 3``), or the whole text with the place ``""``.

    A file has lines if its first line is JSON by itself and others follow, or if ``is_lines`` says so of several lines.
    Gzipped content is decompressed on the way, so that a file of lines takes the memory of one. Messages name the file,
    where ``uri`` is not empty, and the formats that biaseval reads.

    Raises:
        InputError: the content is no UTF-8 or no JSON, or an object has a key twice; for lines this comes after the
            good ones, with all places.
    """
    file = f"{uri}: " if uri else ""
    problems: list[str] = []
    try:
        stream = decompressed(content) if isinstance(content, bytes) else content
        # Where no line ends with LF, those of old Macs end with CR.
        ended = (line.splitlines(keepends=True) if line[-1:] != b"\n" else [line] for line in stream)
        lines = enumerate(itertools.chain.from_iterable(ended), 1)
        filled = ((number, line) for number, line in lines if line.strip(b" \t\r\n" + _BYTE_ORDER_MARK))
        first, second = next(filled, None), next(filled, None)
        if first is None:
            raise InputError(f"{file}is empty; {known_formats}")
        head = first[1].removeprefix(_BYTE_ORDER_MARK).lstrip()
        if head[:1] not in (b"{", b"["):
            start = head[:40].decode("utf-8", "backslashreplace")
            raise InputError(f"{file}is no JSON, it starts with {start!r}; {known_formats}")
        if second is None or not (is_lines or is_json(first[1])):
            # The second filled line stands after as many line breaks as blank lines are before it.
            rest = [] if second is None else [b"\n" * (second[0] - first[0] - 1), second[1]]
            whole = b"".join([first[1], *rest, *(line for _, line in lines)])
            try:
                yield "", json_value(whole, line=first[0])
            except ParseError as error:
                raise InputError(f"{file}{error}; mend the file") from error
            return
        for number, line in itertools.chain([first], [] if second is None else [second], filled):
            try:
                value = json_value(line.rstrip(), line=number)
            except ParseError as error:
                problems.append(f"{error}; write one JSON object a line")
                if len(problems) > _MOST_PROBLEMS:
                    break
            else:
                yield f"line {number}", value
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{file}is no complete gzip file ({error}); fetch it again") from error
    refuse(first_of(problems, file, "lines"))


def decompressed(content: bytes) -> IO[bytes]:
    """Return a stream of a file's bytes, unpacked if they are gzipped."""
    if content.startswith(_GZIP):
        return _unpacked(io.BytesIO(content))
    return io.BytesIO(content)


def _unpacked(packed: io.BufferedIOBase) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(_Unpacked(packed)))


def _peeked(stream: IO[bytes], n_bytes: int) -> bytes:
    """Return the next bytes of a buffered or gzipped stream, which stay in it."""
    return cast(Any, stream).peek(n_bytes)[:n_bytes]  # type: ignore[no-any-return]


class _Files(NamedTuple):
    """The files of a data set."""

    data: Sequence[str]
    indices: Sequence[str] = ()
    """Arrow files with the numbers of the rows, of all of ``data``, that the data set has; none: it has all."""


def _files(fs: pafs.FileSystem, path: str) -> _Files:
    """Return the files of a data set: the path itself, or the files of the folder in the order of their names.

    Raises:
        InputError: there is nothing, or a folder of several data sets.
        OSError: it cannot be looked at.
    """
    found = fs.get_file_info(path)
    if found.type == pafs.FileType.NotFound:
        raise FileNotFoundError(2, "No such file or directory")
    if found.type != pafs.FileType.Directory:
        return _Files([path])
    inside = sorted(fs.get_file_info(pafs.FileSelector(path)), key=lambda info: info.path)
    names = {info.base_name for info in inside}
    if "dataset_dict.json" in names:
        splits = ", ".join(info.base_name for info in inside if info.type == pafs.FileType.Directory)
        raise InputError(f"holds several data sets ({splits}); name the folder of one")
    if "state.json" in names:
        files = _saved(fs, path, [info.base_name for info in inside])
    else:
        files = _Files([info.path for info in inside if _is_data(info.base_name)])
        data_names = sorted(filter(_is_data, names), reverse=True)
        of_splits = {match[0]: name for name in data_names if (match := _SPLIT.search(name.lower()))}
        if len(of_splits) > 1:
            shown = ", ".join(sorted(of_splits.values()))
            raise InputError(f"holds several data sets by the names of its files ({shown}); name one of them")
    if not files.data:
        raise InputError(f"is a folder without data files; {KNOWN_FORMATS}")
    return files


def _saved(fs: pafs.FileSystem, path: str, names: Sequence[str]) -> _Files:
    """Return the files that save_to_disk wrote, by its state.json.

    Data sets from before version 2.8 of Hugging Face's library may keep all rows, and indices of those selected.

    Raises:
        InputError: state.json is no JSON, or names files that are not there.
    """
    with fs.open_input_stream(f"{path}/state.json") as stream:
        try:
            state = json_value(stream.read())
        except ParseError as error:
            raise InputError(f"state.json: {error}; save the data set again") from error
    if not isinstance(state, dict):
        raise InputError("state.json: is no JSON object; save the data set again")
    data, indices = (
        [str(each["filename"]).replace("\\", "/").rpartition("/")[2] for each in state.get(key) or []]
        for key in ("_data_files", "_indices_data_files")
    )
    if lacking := [name for name in (*data, *indices) if name not in names]:
        raise InputError(f"state.json: names {lacking[0]}, which is not there; save the data set again")
    if not data:  # what map() keeps beside the data is named cache-…
        data = [name for name in names if name.startswith(("data-", "dataset")) and name.endswith(".arrow")]
    return _Files([f"{path}/{name}" for name in data], [f"{path}/{name}" for name in indices])


def _is_data(name: str) -> bool:
    return not name.startswith((".", "_")) and name.lower().removesuffix(".gz").endswith(_SUFFIXES)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
