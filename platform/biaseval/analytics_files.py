"""The folder ``analytics`` of the package, and what the heads of its files say."""

import re
import sys
from itertools import takewhile
from pathlib import Path

PACKAGE = Path(__file__).parent
_PLACES = [PACKAGE / "analytics", PACKAGE.parents[1] / "analytics", *(Path(place, "analytics") for place in sys.path)]
ANALYTICS = next((place for place in _PLACES if (place / "calibrations").is_dir()), _PLACES[1])
"""Where the SQL files are: in the wheel a part of the package, in a checkout beside it, and in workers that Ray sends
modules to (`modules_sent`) a module of its own."""


def modules_sent() -> list[str]:
    """Return the folders that workers on other machines need: the package, and the SQL files that are beside it."""
    return [str(PACKAGE), *([] if ANALYTICS.is_relative_to(PACKAGE) else [str(ANALYTICS)])]


_KEY = re.compile(r"-- ([a-z_]+): (.*)")
_MORE = re.compile(r"--   +(.*)")


def comment(sql: str) -> str:
    """Return the comment at the head of a file of SQL, in one line."""
    lines = takewhile(lambda line: line.startswith("--"), sql.splitlines())
    return " ".join(line.removeprefix("--").strip() for line in lines)


def head(sql: str) -> dict[str, str]:
    """Return the keys at the head of a file of SQL: lines ``-- key: text``, and lines that go on with three spaces."""
    found: dict[str, str] = {}
    for line in takewhile(lambda line: line.startswith("--"), sql.splitlines()):
        if key := _KEY.fullmatch(line):
            found[key[1]] = key[2].strip()
        elif found and (more := _MORE.fullmatch(line)):
            found[next(reversed(found))] += f" {more[1].strip()}"
        else:
            break
    return found
