"""Digests of the finished files of a run: they reveal damaged, lost and unknown files before anything reads these.

``digests.json`` has the size, SHA-256 and time of every finished file. The process with the run's lease writes it after
files have their final names. A file with the recorded size and time is not read again; every other file is. Files that
a killed process left unrecorded are read whole once.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from biaseval.errors import BiasevalError
from biaseval.lease import held
from biaseval.parsing import json_value
from biaseval.progress import say
from biaseval.store import ASIDE, DIGESTS, UNRECORDED, Digest, Ledger, Run, part_number, sha256_of
from biaseval.tables import PLANNED, TABLES

LASTING = frozenset(table.name for table in TABLES.values() if table.name in PLANNED or table.part_of is not None)
"""Tables whose parts stay for as long as a run does: planned ones, and what models put out."""

_TRAINED = ("adapters", "adapter", "models", "model")
"""Folders of what training makes: all files of a folder there belong together."""

_REMADE = (
    *("marts", "results.duckdb", "run_settings", "search_settings", "qa_settings", "qa_models", "qa_thresholds"),
    *("bootstrap_draws", "sign_flips", "row_draws", "setting_permutations"),
    *("qa_draws", "qa_bias_draws", "qa_change_draws", "qa_search_nulls"),
)
"""What every run and analysis makes again; a process that is killed meanwhile may leave it with an older digest."""

_SPEC = "spec.yaml"
"""It says itself whether it is whole; its digest tells which spec was lost."""

_SHARED = "shared"
"""The run, inside that of a search, of what its trials share."""

_UNKNOWN = Digest(0, "")
"""Of a file that could not be read when digests were first recorded."""

_THREADS = 8


@contextmanager
def kept(run: Run) -> Iterator[Run]:
    """Hold a run (`biaseval.lease.held`) with only whole files, and record the files that the block writes.

    A file that differs from its recorded digest moves to ``RUN/aside`` and counts as missing.

    Raises:
        TransientError, BiasevalError: as `biaseval.lease.held`.
    """
    with held(run) as run:
        run.sweep()
        run = _whole(run)
        try:
            yield run
        except BaseException:
            with suppress(Exception):
                record(run, reads=False)
            raise
        record(run)
        run.ledger.is_whole = False  # from here on others may write


def _whole(run: Run) -> Run:
    """Return a run whose ledger has every readable file, having moved the others aside."""
    known = recorded(run)
    seen = _seen(run, (*TABLES, *_TRAINED))
    found = _digests(run, seen, known or {})
    bad = {name for name, digest in found.items() if digest is None and name.partition("/")[0] not in _REMADE}
    lost = (known or {}).keys() - seen.keys()
    folders = {_folder(name) for name in bad | lost} - {None}
    aside = bad | {name for name in seen if _folder(name) in folders}
    set_aside(run, aside, "differ from the recorded digest")
    if run.has(f"{_SHARED}/{DIGESTS}"):
        shared = Run.open(f"{run.uri}/{_SHARED}")
        _whole(shared)
        try:
            shared.read_json("made.json")
        except BiasevalError:
            set_aside(shared, ["made.json"], "differ from the recorded digest")
        except FileNotFoundError:
            pass
    files = {name: digest for name, digest in found.items() if name not in aside and digest is not None}
    remade = {name: digest for name, digest in (known or {}).items() if name.partition("/")[0] in (*_REMADE, _SPEC)}
    lost -= remade.keys()
    if known:
        known = {**remade, **{name: own for name, own in known.items() if name in files}, **_gone(aside | lost, known)}
    return replace(run, ledger=Ledger({**remade, **files}, known, lost=frozenset(aside | lost)))


def settle(run: Run, planned: Collection[str], made: Collection[str]) -> None:
    """Have a run count only files that are its own: those that its plan or stages name, and recorded ones.

    Parts of the same tables that are none of these are moved aside. The run is as `kept` yields it. The plan names all
    parts of its tables, ``planned``; ``made`` are the files of its stages.
    """
    files, known = run.ledger.files, run.ledger.known
    tables = {name.partition("/")[0] for name in planned}
    strange = {name for name in files if name.partition("/")[0] in tables} - set(planned)
    if known is not None:
        folders = {_folder(name) for name in made} - {None}
        strange |= {name for name in files if name not in known and _folder(name) not in folders} - {*planned, *made}
        tables |= {name.partition("/")[0] for name in made}
    set_aside(run, {name for name in strange if name.partition("/")[0] in tables - {*_TRAINED}}, "are not of this run")
    for name in strange:
        files.pop(name, None)
    if known and run.ledger.lost:
        # Files that are made again have other bytes. A process that is killed records none of them.
        _write(run, known)
    run.ledger.is_whole = True


def set_aside(run: Run, names: Iterable[str], why: str) -> None:
    """Move files to ``RUN/aside``, and say so."""
    names = sorted(names)
    for name in names:
        run.set_aside(name)
    if names:
        more = f", with {len(names) - 1} more" if len(names) > 1 else ""
        say(f"{run.uri}/{names[0]}{more}: moved to {ASIDE}/, as they {why}; missing files are made again")


def inspected(run: Run, *, with_trained: bool = False) -> Run:
    """Return a run whose ledger has its recorded files as they are now; nothing is written.

    Of a run without digests nothing is known, and all parts count. Adapters and models are looked at only if asked for.

    Raises:
        TransientError: the disk or store does not answer.
    """
    known = recorded(run)
    if known is None:
        return run
    seen = _seen(run, (*TABLES, *_REMADE, *(_TRAINED if with_trained else ())))
    found = _digests(run, {name: own for name, own in seen.items() if name in known}, known)
    damaged = frozenset(name for name, digest in found.items() if digest is None)
    lost = frozenset(name for name in known.keys() - seen.keys() if name.partition("/")[0] in TABLES)
    files = {name: digest for name, digest in found.items() if digest is not None}
    return replace(run, ledger=Ledger({**files}, known, is_whole=True, damaged=damaged, lost=lost))


def record(run: Run, *, reads: bool = True) -> None:
    """Write the digests of the files in the ledger of a held run, if they are others than those that are written.

    Files that another process wrote are read, or else stay unrecorded.
    """
    ledger = run.ledger
    is_noted = any(own is None or own.time_ns is None for own in ledger.files.values())
    if not reads and not is_noted and (ledger.known is not None or not ledger.lost):
        return
    seen = _seen(run, {name.partition("/")[0] for name in ledger.files} & {*TABLES, *_TRAINED, *_REMADE, _SPEC})
    seen = {name: own for name, own in seen.items() if name in ledger.files}
    fresh: dict[str, Digest] = {}
    unread = {}
    for name, (size, time_ns) in seen.items():
        digest = ledger.files[name]
        if digest is not None and digest.size == size and digest.time_ns in (None, time_ns):
            fresh[name] = digest._replace(time_ns=time_ns)
        else:
            unread[name] = (size, time_ns)
    if reads:
        fresh |= {name: digest for name, digest in _digests(run, unread, {}).items() if digest is not None}
    ledger.files.clear()
    ledger.files.update(fresh)
    fresh |= _gone(ledger.lost - fresh.keys(), ledger.known or {})
    if fresh != ledger.known:
        _write(run, fresh)
        ledger.known = dict(fresh)
        ledger.files.pop(DIGESTS, None)


def _gone(names: Collection[str], known: Mapping[str, Digest]) -> dict[str, Digest]:
    """Return what stays recorded of files that are lost: their names, and the digests of planned parts."""
    tables = {name: name.partition("/")[0] for name in names}
    return {
        name: known.get(name, _UNKNOWN)
        for name, table in tables.items()
        if table in PLANNED or (table in LASTING and name not in known)
    }


def _write(run: Run, files: Mapping[str, Digest]) -> None:
    content = {"files": {name: list(files[name]) for name in sorted(files)}}
    own = sha256_of(json.dumps(content).encode())
    run.write_text(DIGESTS, json.dumps({**content, "own_sha256": own}) + "\n")


def recorded(run: Run) -> dict[str, Digest] | None:
    """Return what ``digests.json`` holds, nothing where it is lost or damaged; None: an older version wrote the run."""
    if not run.is_sealed:
        return None
    try:
        return {name: Digest(*own) for name, own in run.read_json(DIGESTS)["files"].items()}
    except (BiasevalError, LookupError, TypeError, AttributeError, FileNotFoundError) as error:
        what = "missing" if isinstance(error, FileNotFoundError) else "damaged"
        say(f"{run.uri}/{DIGESTS}: is {what}; biaseval report {run.uri} reads all files and writes it again")
        return {}


def _seen(run: Run, folders: Collection[str]) -> dict[str, tuple[int, int]]:
    seen: dict[str, tuple[int, int]] = {}
    for folder in sorted(set(run.names()) & set(folders) - {UNRECORDED}):
        listed = run.listed(folder, in_folders=folder not in TABLES)
        seen |= {name: own for name, own in listed.items() if folder not in TABLES or part_number(name) is not None}
    return seen


def _digests(run: Run, seen: Mapping[str, tuple[int, int]], known: Mapping[str, Digest]) -> dict[str, Digest | None]:
    """Return the digests of files; None for a file that differs from its record or cannot be read."""
    if not seen:
        return {}
    # Within one tick of the store's clock a file may have changed behind its record.
    [recorded_ns] = [own[1] for own in run.listed(DIGESTS).values()] or [0]

    def digest_of(name: str) -> Digest | None:
        (size, time_ns), own = seen[name], known.get(name)
        if own is None or own == _UNKNOWN:
            return _read(run, name, size, time_ns)
        if own.size != size:
            return None
        if own.time_ns == time_ns < recorded_ns:
            return own
        return own._replace(time_ns=time_ns) if run.sha256(name) == own.sha256 else None

    with ThreadPoolExecutor(_THREADS) as pool:
        return dict(zip(seen, pool.map(digest_of, seen), strict=True))


def _read(run: Run, name: str, size: int, time_ns: int) -> Digest | None:
    """Return the digest of a file that nothing is known of, having read all of it; None: it is no such file."""
    data, digest = b"", None
    if name.endswith((".parquet", ".json")):
        data = run.read_bytes(name)
        digest = sha256_of(data)
    try:
        if name.endswith(".parquet"):
            pq.read_table(pa.BufferReader(data), page_checksum_verification=True)
        elif name.endswith(".json"):
            json_value(data)
        elif name.endswith(".safetensors"):
            with run.reached(), run.fs.open_input_file(run.path(name)) as file:
                length = int.from_bytes(file.read(8), "little")
                tensors = [own for tensor, own in json_value(file.read(length)).items() if tensor != "__metadata__"]
            if 8 + length + max((own["data_offsets"][1] for own in tensors), default=0) != size:
                return None
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Digest(size, digest or run.sha256(name), time_ns)


def _folder(name: str) -> str | None:
    """Return the folder whose files belong together with this one; None: the file stands for itself."""
    return name.rpartition("/")[0] if name.partition("/")[0] in _TRAINED else None
