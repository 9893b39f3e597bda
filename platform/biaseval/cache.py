"""Where paths and URIs lead, digests of large files, and one copy per machine of files on an object store.

Models, adapters and folders of tasks are copied, because their readers need a disk.
"""

import hashlib
import json
import os
import re
import shutil
import uuid
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.fs as pafs
from filelock import FileLock

from biaseval.errors import InputError, without_credentials
from biaseval.progress import say

FOLDER = "BIASEVAL_CACHE"
"""The environment variable that names the folder of all of it, which stays until somebody deletes it."""

_DEFAULT = "~/.cache/biaseval"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx")
_SAID_FROM_BYTES = 2**30
_REMEMBERED_FROM_BYTES = 2**28
"""A file that takes about a second to digest."""


def is_remote(path: str) -> bool:
    """Return whether a path names a place on an object store."""
    return "://" in path


def local_copy(uri: str, *, has_weights: bool = True) -> Path:
    """Return the path of the local copy of a folder or file of an object store; fetch it if it is missing.

    The copy's name has a digest of the names, sizes and times of the files, so a change on the store gives a new copy.
    An existing copy is complete. Processes that ask at the same time fetch it once.

    Args:
        uri: ``s3://bucket/folder`` or ``gs://bucket/folder``.
        has_weights: with the weights of a model; without them if only its tokenizer is asked for.

    Raises:
        InputError: the URI has no file, or the store does not answer; then its own error is the cause.
    """
    fs, own, files = _listed(uri)
    whole = _place(uri, files)
    light = {name: info for name, info in files.items() if has_weights or not name.endswith(_WEIGHTS)}
    place = whole if whole.exists() else _place(uri, light)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{place}.lock"):
            if not place.exists():
                _fetch(uri, fs, light, place)
    return place / own.base_name if own.type == pafs.FileType.File else place


def local_path(path: str | Path) -> Path:
    """Return the absolute path, its ``~`` replaced; Raises InputError: it is no path, or there is no such user."""
    try:
        found = Path(path).expanduser().resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.lstat(found)  # refuses names that no file can have
        return found
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(f"{str(path)[:200]!r}: is no path ({error}); correct it") from error


_OPTIONS = {"s3": "allow_delayed_open=true", "gs": "retry_limit_seconds=60", "file": ""}


def object_store(uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI, and the path there.

    On S3 a small file is one request, not the three of a multipart upload. Google's store is tried again for a minute,
    not for Arrow's quarter of an hour.

    Raises:
        InputError: the URI has credentials in it.
        pa.ArrowException, OSError, ValueError: Arrow's, or the URI has another scheme.
    """
    if (shown := without_credentials(uri)) != uri:
        raise InputError(
            f"{shown}: has credentials in it, which runs and messages would show; use AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or another place where the store's clients look"
        )
    option = _OPTIONS.get(scheme := uri.partition("://")[0])
    if option is None:
        raise ValueError(f"{scheme}:// is not supported; use a local path, s3://bucket/prefix or gs://bucket/prefix")
    asked = f"{uri}{'&' if '?' in uri else '?'}{option}" if option else uri
    found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(asked)
    return found


def kept_copy(uri: str) -> Path | None:
    """Return where a folder of an object store lies on this machine, whole and as it is there now; None: it does not.

    Raises:
        InputError: as `local_copy`.
    """
    place = _place(uri, _listed(uri)[2])
    return place if place.exists() else None


def _listed(uri: str) -> tuple[pafs.FileSystem, pafs.FileInfo, dict[str, pafs.FileInfo]]:
    """Return the file system of a URI, its file information, and its files by their names below the URI."""
    try:
        fs, root = object_store(uri.rstrip("/"))
        own = fs.get_file_info(root)
        files = {own.base_name: own} if own.type == pafs.FileType.File else _files(fs, root)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError(f"{uri}: cannot be read: {error}; correct the URI, or the right to read it") from error
    if not files:
        raise InputError(f"{uri}: nothing is there; correct the URI")
    return fs, own, files


def _files(fs: pafs.FileSystem, root: str) -> dict[str, pafs.FileInfo]:
    """Return the files of a folder by their names in it; none where there is no such folder."""
    found = fs.get_file_info(pafs.FileSelector(root, allow_not_found=True, recursive=True))
    return {info.path.removeprefix(f"{root}/"): info for info in found if info.type == pafs.FileType.File}


def _place(uri: str, files: dict[str, pafs.FileInfo]) -> Path:
    """Return the folder of the copy of files as they are now."""
    facts = [uri.rstrip("/"), sorted((name, info.size, info.mtime_ns) for name, info in files.items())]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return _folder() / f"{PurePosixPath(uri.rstrip('/')).name}-{digest}"


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file, read in blocks; the cache keeps that of a large file until the file changes.

    A change shows in the path, the size or the times of the file.
    """
    before = _state(file)
    kept = _folder() / "digests" / hashlib.sha256(json.dumps(before).encode()).hexdigest()
    with suppress(OSError, ValueError):
        if re.fullmatch("[0-9a-f]{64}", remembered := kept.read_text(encoding="ascii")):
            return remembered
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if file.stat().st_size >= _REMEMBERED_FROM_BYTES and _state(file) == before:
        with suppress(OSError):  # it is computed again
            kept.parent.mkdir(parents=True, exist_ok=True)
            incomplete = kept.with_name(f"{kept.name}.{uuid.uuid4().hex}")
            incomplete.write_text(digest, encoding="ascii")
            incomplete.replace(kept)
    return digest


def _state(file: Path) -> tuple[str, int, int, int, int]:
    """Return the facts that change when a file changes."""
    own = file.stat()
    return str(file.resolve()), own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns


def _folder() -> Path:
    return Path(os.environ.get(FOLDER) or _DEFAULT).expanduser()


def _fetch(uri: str, fs: pafs.FileSystem, files: dict[str, pafs.FileInfo], place: Path) -> None:
    """Fetch files next to their place, and put them there when all are complete."""
    n_bytes = sum(info.size for info in files.values())
    if n_bytes >= _SAID_FROM_BYTES:
        say(f"fetching {uri} ({n_bytes / 2**30:.1f} GiB) to {place}")
    incomplete = place.with_name(f"{place.name}.incomplete")
    shutil.rmtree(incomplete, ignore_errors=True)  # what a killed process left; nobody else has the lock
    try:
        for name, info in files.items():
            target = incomplete / name
            target.parent.mkdir(parents=True, exist_ok=True)
            pafs.copy_files(info.path, str(target), source_filesystem=fs, destination_filesystem=pafs.LocalFileSystem())
        incomplete.rename(place)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{uri}: cannot be fetched to {place}: {error}; run the same command again") from error
