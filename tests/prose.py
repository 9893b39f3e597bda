"""Riddles in what users read, counted: README, `docs/`, templates, sentences of SQL, messages, help and docstrings.

python -m tests.prose

Each pattern stands for a sentence without a named subject, or for a word that practitioners do not use. Copies of
well-written tools have 0.2 such places in 1,000 words; more than that fails.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEVEL = 0.2
"""Places in 1,000 words that are allowed."""

_VERBS = (
    "is|are|was|were|it|they|does|dies|follows|came|comes|stands|lies|has|had|can|could|may|might|would|will|must|"
    "nothing|nobody|somebody|others|differs|lasts|remains|works|says|shows|needs|takes|gives|makes"
)
RIDDLES = re.compile(
    rf"""\b(
    what\ ({_VERBS})\b                                   # a clause in place of a noun
    | that\ which | those\ which
    | told\ (from|apart) | tells?\ \w+\ from | noise\ of\ rows | left\ out\ of\ (it|them)
    | of\ (the|a|an|its|their)\ \w+'s\ own | no\ word\ (is|stands) | (makes?|made)\ no\ word
    | remed(y|ies)(?!\ (as|using)\b) | anew | sittings? | the\ half\ that\ chose | los(e|es|ing)\ its\ end
    | behind\ (it|them|that|those|each\ other|what|all) | in\ place\ of\ what | a\ gate\ (falls|fell|holds)
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_QUESTION = re.compile(r"[^.!?\n]*\?")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)\s]*\)", re.MULTILINE | re.DOTALL)


def texts() -> Iterator[tuple[str, str]]:
    """Yield each place and its text as users read it: without code, addresses and questions."""
    for place in ("*.md", "docs/**/*.md", "examples/*.md"):
        for path in sorted(ROOT.glob(place)):
            if path.parent.name != "reference":  # made of texts that are read below
                yield _name(path), _CODE.sub(" ", path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "platform").rglob("*.j2")):
        yield _name(path), re.sub(r"\{[{%#].*?[%#}]\}|<[^>]*>", " ", path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "analytics").rglob("*.sql")):
        lines = path.read_text(encoding="utf-8").splitlines()
        n_head = next(number for number, line in enumerate(lines) if not line.startswith("--"))
        yield _name(path), "\n".join(line.removeprefix("--") for line in lines[:n_head])
        for number, line in enumerate(lines[n_head:], n_head + 1):
            if not line.lstrip().startswith("--"):
                yield f"{_name(path)}:{number}", " ".join(re.findall(r"'([^']*)'", line))
    for path in sorted((ROOT / "analytics").rglob("*.toml")):
        yield _name(path), re.sub(r"^#.*", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for path in sorted([*(ROOT / "platform").rglob("*.py"), *(ROOT / "jobs").glob("*.py")]):
        yield from _strings(path)


def _strings(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the texts of a module: messages, help and docstrings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"{_name(path)}:{node.lineno}", _CODE.sub(" ", node.value)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def riddles() -> tuple[list[str], int]:
    """Return each riddle with its place, and the number of words read."""
    found, n_words = list[str](), 0
    for place, text in texts():
        n_words += len(re.findall(r"[A-Za-z]{2,}", text))
        shown = _QUESTION.sub(lambda own: " " * len(own[0]), text)
        for own in RIDDLES.finditer(shown):
            line = "" if place.endswith(tuple("0123456789")) else f":{shown.count(chr(10), 0, own.start()) + 1}"
            around = " ".join(shown[max(0, own.start() - 40) : own.end() + 40].split())
            found.append(f"{place}{line}: {around}")
    return found, n_words


if __name__ == "__main__":
    places, words = riddles()
    rate = 1000 * len(places) / words
    if rate > LEVEL or "--all" in sys.argv:
        print("\n".join(places))
    print(f"prose: {len(places)} riddles in {words:,} words, {rate:.2f} in 1,000; at most {LEVEL}")
    sys.exit(rate > LEVEL)
