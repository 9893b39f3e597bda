"""The log of a run: the output of the processes that worked on it, with the time of each line."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from traceback import format_exception

from biaseval.environment import FILE, version_of
from biaseval.errors import BiasevalError, without_credentials
from biaseval.lease.record import typed_command, utc_now
from biaseval.progress import heard
from biaseval.store import LOG, Run


@contextmanager
def logged(run: Run) -> Iterator[None]:
    """Append the command, the output of the block, which holds the run's lease, and its end to ``RUN/run.log``.

    On a local disk each line appears at once. An object store cannot append, so there the file appears when the block
    ends. A log that cannot be written stops nothing. A directory that did not become a run gets no log.
    """
    lines: list[str] = []

    def hear(text: str) -> None:
        line = without_credentials(f"{utc_now()} {text}\n")
        if not run.is_local:
            lines.append(line)
            return
        with suppress(OSError), open(run.path(LOG), "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(line)

    try:
        with heard(hear):
            hear(f"begins: {typed_command()} (biaseval {version_of('biaseval')})")
            yield
            hear("ends")
    except Exception as error:
        if not isinstance(error, BiasevalError):
            hear("".join(format_exception(error)))
        raise
    finally:
        with suppress(OSError, BiasevalError):
            if not run.has(FILE):
                run.delete(LOG)
            elif lines:
                before = run.read_bytes(LOG) if run.has(LOG) else b""
                run.write_bytes(LOG, before + "".join(lines).encode(errors="backslashreplace"))
