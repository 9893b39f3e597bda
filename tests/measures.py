"""Sizes of the source and the tests, counted; the table in ``docs/architecture.md`` is written by this.

python -m tests.measures
"""

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- counted by make measures -->\n", "<!-- end of what is counted -->\n"

KINDS = {"label_bias", "majority_bias", "qa_bias", "instruct", "score", "search"}
SPECS = {f"{own}Spec" for own in ("LabelBias", "MajorityBias", "Causal", "QaBias", "Imported", "Search", "Instruct")}
LONG = 60
"""Lines of a function from which on it counts as long."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files(*places: str, ends: Iterable[str] = (".py",)) -> list[Path]:
    """Return the files below places of the repository whose names have one of these ends, in their order."""
    return sorted(
        path
        for place in places
        for path in (ROOT / place).rglob("*")
        if path.suffix in ends and "__pycache__" not in path.parts
    )


def n_lines(path: Path) -> int:
    """Return the number of a file's lines, as ``wc`` counts them."""
    return path.read_text(encoding="utf-8").count("\n")


def of_functions(trees: Iterable[ast.Module]) -> list[Function]:
    """Return all functions and methods, also those inside others."""
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, Function)]


def n_parameters(function: Function) -> int:
    """Return how many parameters a function has, without ``self`` and ``cls``."""
    own = function.args
    return sum(arg.arg not in ("self", "cls") for arg in [*own.posonlyargs, *own.args, *own.kwonlyargs])


def asks_the_kind(node: ast.AST) -> bool:
    """Return whether a node compares something with the name of a kind of run, or with the class of its spec."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
        return any(isinstance(own, ast.Name) and own.id in {*SPECS, "kinds"} for own in ast.walk(node.args[1]))
    if not isinstance(node, ast.Compare):
        return False
    texts = {each.value for side in [node.left, *node.comparators] for each in ast.walk(side) if _is_text(each)}
    return bool(texts & KINDS)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@cache
def measures() -> dict[str, str]:
    """Return what is counted, in words, to its value."""
    source, sql = files("platform", "jobs"), files("analytics", ends=[".sql"])
    templates = files("platform", ends=[".j2", ".css", ".js"])
    beside = files("tests/bench", "tests/validation")
    tests = [path for path in files("tests") if path not in beside]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in source]
    functions = of_functions(trees)
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    public = [node for node in functions if not node.name.startswith("_")]
    named = [*public, *(node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    shown = [node for node in named if not node.name.startswith("_")]
    widest = max(public, key=n_parameters)
    sizes, queries = [n_lines(path) for path in source], [n_lines(path) for path in sql]
    asked = sum(asks_the_kind(node) for tree in trees for node in ast.walk(tree))
    words = sum(len(re.findall(r"\bAny\b", path.read_text(encoding="utf-8"))) for path in source)
    return {
        "lines of Python, SQL and templates": (
            f"{sum(sizes):,} + {sum(queries):,} + {sum(map(n_lines, templates)):,} = "
            f"{sum(sizes) + sum(queries) + sum(map(n_lines, templates)):,}"
        ),
        "lines of tests; of benchmarks and simulations": f"{_lines(tests):,}; {_lines(beside):,}",
        "files of Python; median and largest (lines)": f"{len(source)}; {median(sizes):.0f}, {max(sizes)}",
        f"functions: median and longest (lines), longer than {LONG}": (
            f"{median(lengths):.0f}, {max(lengths)}; {sum(own > LONG for own in lengths) / len(lengths):.1%}"
        ),
        "most parameters of a public function": f"{n_parameters(widest)} (`{widest.name}`)",
        "modules and public names with a docstring": (
            f"{sum(ast.get_docstring(tree) is not None for tree in trees) / len(trees):.0%}, "
            f"{sum(ast.get_docstring(node) is not None for node in shown) / len(shown):.1%}"
        ),
        "occurrences of `Any`": f"{words:,}",
        "files of SQL; median and largest (lines)": f"{len(sql)}; {median(queries):.0f}, {max(queries)}",
        "places that ask for the kind of a run, by its name or spec": str(asked),
    }


def _lines(paths: Iterable[Path]) -> int:
    return sum(map(n_lines, paths))


def written(text: str) -> str:
    """Return a page with the table between its marks counted anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    rows = "".join(f"| {what} | {value} |\n" for what, value in measures().items())
    return f"{before}{BEGIN}\n| counted | now |\n|---|---|\n{rows}\n{END}{after}"


if __name__ == "__main__":
    page = written(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    print(page.partition(BEGIN)[2].partition(END)[0])
