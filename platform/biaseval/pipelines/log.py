"""The logs of a run: one file for each start of a command, with its output and the time of each line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from traceback import format_exception

from biaseval.environment import FILE, version_of
from biaseval.errors import BiasevalError, without_credentials
from biaseval.lease.record import typed_command, utc_now
from biaseval.progress import heard
from biaseval.store import LOGS, Run


@contextmanager
def logged(run: Run) -> Iterator[None]:
    """Write the command, the output of the block, which holds the run's lease, and its end to a file in ``RUN/logs``.

    On a local disk each line appears at once. An object store cannot append, so there the file appears when the block
    ends. A log that cannot be written stops nothing. A directory that did not become a run gets no log.
    """
    name, lines = f"{LOGS}/{utc_now().replace(':', '')}-{token_hex(2)}.log", list[str]()
    if run.is_local:
        with suppress(OSError):
            os.makedirs(run.path(LOGS), exist_ok=True)

    def hear(text: str) -> None:
        line = without_credentials(f"{utc_now()} {text}\n")
        if not run.is_local:
            lines.append(line)
        elif not os.path.islink(run.path(LOGS)):
            with suppress(OSError), open(run.path(name), "a", encoding="utf-8", errors="backslashreplace") as file:
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
                run.delete(name)
                if run.is_local:
                    os.rmdir(run.path(LOGS))
            elif lines:
                run.write_bytes(name, "".join(lines).encode(errors="backslashreplace"))
