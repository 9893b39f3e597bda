"""How the file of a lease is read and written: with conditions where the store knows them, or without."""

import time
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow.fs as pafs

from biaseval.errors import BiasevalError, InputError, TransientError
from biaseval.lease.record import Lease
from biaseval.store import LEASE, Run, lacks_bucket, sha256_of

_CHANGED = {"PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey", "404", "409", "412"}
_UNKNOWN = {"NotImplemented", "501"}


class ChangedError(Exception):
    """Somebody else wrote the lease meanwhile, or deleted it."""


class UnconditionalError(Exception):
    """Conditional requests cannot be made here; the message says why."""

    def __init__(self, why: str, remedy: str | None = None) -> None:
        super().__init__(why if remedy is None else f"{why}: {remedy}")
        self.remedy = remedy


@dataclass(frozen=True)
class Seen:
    """The file of a lease as it was found."""

    lease: Lease | None
    """None: it is damaged, or a later version wrote it."""
    version: str
    """Another one after every write."""
    written_s: float
    """When it was written, seconds since 1970 by the store's clock."""
    now_s: float
    """When it was read: by the store's clock where it says so with every answer (S3), else by this machine's."""

    @property
    def age_s(self) -> float:
        """Seconds since it was written."""
        return max(0.0, self.now_s - self.written_s)


class PlainFile:
    """A lease on a store without conditions: of two simultaneous writers both may succeed, as each reads first."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self) -> Seen | None:
        """Return the file's content and version; None without a file."""
        info = self._run.fs.get_file_info(self._run.path(LEASE))
        if info.type != pafs.FileType.File:
            return None
        try:
            data = self._run.read_bytes(LEASE)
        except FileNotFoundError:
            return None
        return Seen(Lease.parse(data), sha256_of(data), info.mtime.timestamp(), time.time())

    def write(self, lease: Lease, instead_of: str | None) -> str:
        """Write the file; on a local disk whoever writes holds the lock, and need not look."""
        if not self._run.is_local:
            there = self.read()
            if (None if there is None else there.version) != instead_of:
                raise ChangedError
        self._run.write_bytes(LEASE, lease.data())
        return sha256_of(lease.data())

    def delete(self, version: str) -> None:
        """Delete the file if it has this version."""
        there = self.read()
        if there is not None and there.version == version:
            self._run.delete(LEASE)


class ConditionalFile:
    """A lease on S3, by requests that the store refuses where somebody else was first (botocore; pyarrow has none).

    Raises:
        UnconditionalError: boto3 is not installed, or not new enough.
    """

    def __init__(self, run: Run, name: str = LEASE) -> None:
        self._client = _client(run)
        bucket, _, key = run.path(name).partition("/")
        self._place = {"Bucket": bucket, "Key": key}

    def read(self) -> Seen | None:
        """Return the file's content and version; None without a file."""
        try:
            answer = self._request("get_object")
        except ChangedError:
            return None
        written_s = answer["LastModified"].timestamp()
        date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        now_s = written_s if date is None else parsedate_to_datetime(date).timestamp()
        return Seen(Lease.parse(answer["Body"].read()), answer["ETag"], written_s, now_s)

    def write(self, lease: Lease, instead_of: str | None) -> str:
        """Write the file on the condition that its version is still ``instead_of``."""
        condition = {"IfNoneMatch": "*"} if instead_of is None else {"IfMatch": instead_of}
        return str(self._request("put_object", Body=lease.data(), **condition)["ETag"])

    def delete(self, version: str) -> None:
        """Delete the file, under the same condition."""
        self._request("delete_object", IfMatch=version)

    def prove(self, lease: Lease) -> None:
        """Make sure that the store heeds conditions, once the file is there: some ignore them and write.

        Raises:
            UnconditionalError: it does not.
        """
        try:
            self.write(lease, None)
        except ChangedError:
            return
        raise UnconditionalError("the store ignores the condition If-None-Match")

    def _request(self, name: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            return getattr(self._client, name)(**self._place, **arguments)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _CHANGED:
                raise ChangedError from error
            if code in _UNKNOWN:
                raise UnconditionalError("the store knows no conditional requests") from error
            raise self._out_of_reach(error) from error
        except NoCredentialsError as error:
            raise UnconditionalError("boto3 finds no credentials, as pyarrow does") from error
        except BotoCoreError as error:
            raise self._out_of_reach(error) from error

    def _out_of_reach(self, error: Exception) -> BiasevalError:
        if lacks_bucket(error):
            return InputError(f"s3://{self._place['Bucket']}: this bucket does not exist; make it, or mend its name")
        return TransientError(
            f"s3://{self._place['Bucket']}/{self._place['Key']}: cannot be read or written ({error}); mend this and "
            "run the same command again: complete parts are kept"
        )


LeaseFile = PlainFile | ConditionalFile
"""Writing it replaces a version (None: creates the file), and returns the new one; ChangedError: another is there."""


def lease_file(run: Run) -> LeaseFile:
    """Return the file of a run's lease.

    Raises:
        UnconditionalError: the run is on S3, and what conditional requests need is not installed.
    """
    return ConditionalFile(run) if isinstance(run.fs, pafs.S3FileSystem) else PlainFile(run)


def prove_conditions(run: Run, name: str) -> None:
    """Test with a new file whether the store of a run respects all conditions, and delete the file.

    Raises:
        UnconditionalError: it does not, or the package for such requests is missing; the message says which.
        TransientError: the store is out of reach.
    """
    if not isinstance(run.fs, pafs.S3FileSystem):
        raise UnconditionalError("only stores that speak S3 are asked with conditions")
    file, lease = ConditionalFile(run, name), Lease.of_this_process(0, 0)
    first = file.write(lease, None)
    try:
        file.prove(lease)
        second = file.write(replace(lease, held_s=1), first)
        try:
            file.write(lease, first)
        except ChangedError:
            file.delete(second)
            return
        raise UnconditionalError("the store ignores the condition If-Match")
    except UnconditionalError:
        run.delete(name)
        raise


def _client(run: Run) -> Any:
    try:
        from botocore.config import Config
        from botocore.session import get_session
    except ImportError as error:
        raise UnconditionalError("boto3 is not installed", "pip install 'boto3>=1.36'") from error
    try:
        # An answer that does not come must not hold up a beat for long; not every store knows Amazon's checksums.
        config = Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"total_max_attempts": 2, "mode": "standard"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
    except TypeError as error:
        raise UnconditionalError("boto3 is too old", "pip install -U 'boto3>=1.36'") from error
    asked = parse_qs(urlsplit(run.uri).query)  # as pyarrow takes them
    endpoint = asked.get("endpoint_override", [None])[0]
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"{asked.get('scheme', ['https'])[0]}://{endpoint}"
    assert isinstance(run.fs, pafs.S3FileSystem)
    return get_session().create_client("s3", region_name=run.fs.region, endpoint_url=endpoint, config=config)
