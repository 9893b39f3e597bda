"""Plants one known fault at a time in a copy of the source, and records whether the tests catch it.

`python -m tests.validation.mutations --count 40 --seed 1 --out FILE` draws the faults by the seed. A second start of
the same command goes on after the last line of FILE. The tests of the fault's own area run first, with `-x`;
`--whole` runs the slow tests of the area, and then the whole fast suite, for those that survive.
"""

import argparse
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

AREAS = {
    "sql": (("analytics/**/*.sql",), "older_runs statistics_macros label_bias_statistics majority_analysis "
            "majority_statistics qa_analysis qa_debiasing qa_statistics analysis compare search_sql "
            "majority_comparisons qa_training_report prompting validation"),
    "planning": (("platform/biaseval/*_bias/**/*.py", "platform/biaseval/prompting/*.py"),
                 "prompting label_bias majority_bias qa_bias pride real_tasks"),
    "scoring": (("platform/biaseval/scoring/*.py",), "scoring"),
    "training": (("platform/biaseval/training/**/*.py",), "training qa_train_spec"),
    "store": (("platform/biaseval/store.py", "platform/biaseval/lease/*.py", "platform/biaseval/units.py",
               "platform/biaseval/records.py", "platform/biaseval/cache.py"),
              "store lease records interrupted_writes cache status pipelines damaged_runs"),
}  # fmt: skip
"""The files of each area, and the names of its tests: folders of `tests/`, or files without `test_`."""

SWAPS = {
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
    "!=": "==", "=": "<>", "<>": "=", "and": "or", "or": "and", "min": "max", "max": "min", "True": "False",
    "False": "True", "sum": "avg", "avg": "sum", "in": "not in", "asc": "desc", "desc": "asc",
}  # fmt: skip
_IN_SQL = re.compile(r"--[^\n]*|'[^']*'|<>|<=|>=|[-+*/<>=]|\b\d+(?:\.\d+)?\b|\b\w+\b")
_NOT_IN_SQL = {"True", "False", "in", "==", "!="}


@dataclass(frozen=True)
class Fault:
    """One operator or constant that is replaced: its place in the text of a file, and both forms."""

    area: str
    path: str
    line: int
    start: int
    before: str
    after: str


def mutated(token: str) -> str | None:
    """Return the form that replaces an operator, a word or a number; None if the token stays."""
    if token.replace(".", "", 1).isdigit():
        return f"{float(token) + 1:g}" if "." in token else str(int(token) + 1)
    return SWAPS.get(token)


def _in_sql(text: str) -> Iterator[tuple[int, str]]:
    for found in _IN_SQL.finditer(text):
        token = found.group()
        if token[:1] not in "-'" or token == "-":
            if token == "*" and re.search(r"(\bselect|\(|\.|,)\s*$", text[: found.start()]):
                continue  # all columns, not a product
            if token not in _NOT_IN_SQL:
                yield found.start(), token


def _in_python(text: str) -> Iterator[tuple[int, str]]:
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    is_def, depth = False, 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_def = is_def or (token.type == tokenize.NAME and token.string in {"def", "import", "class"})
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.string, 0)
        if token.type == tokenize.NEWLINE:
            is_def = False
        at = starts[token.start[0] - 1] + token.start[1]
        is_loop = token.string == "in" and re.search(r"\bfor\b[^\n]*$", text[:at].rsplit("\n", 1)[-1] + " ") is not None
        is_star = token.string in "*/" and re.search(r"[\w)\]]\s*$", text[:at]) is None
        if token.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER) and not is_def and not is_loop and not is_star:
            yield at, token.string


def faults(area: str) -> list[Fault]:
    """Return every fault that can be planted in an area, in the order of the files."""
    found = []
    for path in sorted({path for pattern in AREAS[area][0] for path in ROOT.glob(pattern)}):
        text, name = path.read_text(), str(path.relative_to(ROOT))
        for at, token in (_in_sql if path.suffix == ".sql" else _in_python)(text):
            after = mutated(token)
            if after is not None and not (path.suffix == ".py" and token in {"=", "sum", "asc", "desc"}):
                found.append(Fault(area, name, text.count("\n", 0, at) + 1, at, token, after))
    return found


def drawn(count: int, seed: int) -> list[Fault]:
    """Return a sample with equal shares of the areas and, within an area, of its files."""
    rng, sample = random.Random(seed), []
    for number in range(count):
        of_area = faults(list(AREAS)[number % len(AREAS)])
        path = rng.choice(sorted({fault.path for fault in of_area}))
        sample.append(rng.choice([fault for fault in of_area if fault.path == path]))
    return sample


def _tests(copy: Path, area: str) -> list[str]:
    places = [place for name in AREAS[area][1].split() for place in (f"tests/{name}", f"tests/test_{name}.py")]
    return [place for place in places if (copy / place).exists()]


def is_caught(copy: Path, fault: Fault, *, whole: bool) -> str | None:
    """Plant a fault, run tests, and take the fault out again; return which test failed, or None."""
    path = copy / fault.path
    text = path.read_text()
    assert text.startswith(fault.before, fault.start)
    path.write_text(text[: fault.start] + fault.after + text[fault.start + len(fault.before) :])
    try:
        places = _tests(copy, fault.area)
        if (caught_by := failing(copy, places)) or not whole:
            return caught_by
        return failing(copy, places, which="slow") or failing(copy, ["-n", "2"])
    finally:
        path.write_text(text)


def failing(copy: Path, places: list[str], which: str = "not slow") -> str | None:
    """Return the first of the tests with these marks that fails in the copy, or None."""
    limit = "120" if which == "not slow" else "600"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", which, "--timeout", limit]
    environment = os.environ | {"PYTHONPATH": f"{copy / 'platform'}{os.pathsep}{copy}"}
    ended = subprocess.run([*command, *places], cwd=copy, env=environment, capture_output=True, text=True)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
    none_is_run = 5  # an area may have no slow test
    return (
        (failed or [ended.stdout[-200:] + ended.stderr[-200:]])[0] if ended.returncode not in (0, none_is_run) else None
    )


def main() -> None:
    """Plant the faults that the file has not yet, and say how many are caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=40, help="faults (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (default: %(default)s)")
    parser.add_argument("--whole", action="store_true", help="run more tests for those that survive")
    parser.add_argument("--out", type=Path, default=Path("mutations.jsonl"), help="(default: %(default)s)")
    arguments = parser.parse_args()
    sample = drawn(arguments.count, arguments.seed)
    done = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        for area in AREAS if sample[len(done) :] else ():
            if broken := failing(copy, _tests(copy, area)):
                raise SystemExit(f"{area}: {broken} fails without a fault")
        for fault in sample[len(done) :]:
            record = {**asdict(fault), "caught_by": is_caught(copy, fault, whole=arguments.whole)}
            with arguments.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)
    records = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    print(f"{sum(record['caught_by'] is not None for record in records)} of {len(records)} are caught")


if __name__ == "__main__":
    main()
