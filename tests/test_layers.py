"""Imports point down only, and what is heavy is imported where it is the subject."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "platform" / "biaseval"

LAYERS = [
    {"__main__"},
    {"cli"},
    {"demo", "doctor"},
    {"runs"},
    {"search"},  # a kind over other kinds
    {"pipelines"},
    {"execute", "report", "results"},
    {"analysis", "training"},
    {"outputs"},
    {"label_bias", "majority_bias"},
    {"inputs"},
    {"qa_models"},  # its causal models are continued by scoring
    {"scoring"},
    {"left_out"},
    {"units", "environment"},
    {"spec"},
    {"prompting", "qa_bias"},  # their records are what a spec may ask for
    {"records"},
    {"digests"},
    {"delimited"},
    {"lease"},
    {"store"},
    {"tables"},
    {"models"},  # with scoring it runs where there is no pydantic
    {"cache"},
    {"metric_files"},
    {"analytics_files", "errors", "json_values", "parsing", "progress"},
]
HEAVY = {"torch", "transformers", "ray", "peft", "deepspeed"}
MAY_BE_HEAVY = {"models", "scoring", "qa_models", "training", "execute", "demo"}


def _names(path: Path, *, only_module_level: bool) -> set[str]:
    """Return what a file imports, with the names that it takes from there."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in tree.body if only_module_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


FILES = {
    ".".join(("biaseval", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def _file_of(name: str) -> str:
    """Return the module of the package that has a name: itself, or the one that it is taken from."""
    while name not in FILES:
        name = name.rpartition(".")[0]
    return name


IMPORTS = {
    module: {_file_of(name) for name in _names(path, only_module_level=False) if name.partition(".")[0] == "biaseval"}
    - {module}
    for module, path in FILES.items()
}
"""Module to those that it imports, for types alone too."""

FACADES = {"biaseval", "biaseval.runs"}
"""These import from below what others ask them for."""


def test_imports_point_down_and_never_in_a_circle() -> None:
    """Between rooms by `LAYERS`, and between files, also of one room; nothing imports the package as a whole."""
    levels = {name: level for level, names in enumerate(LAYERS) for name in names}
    upward = [
        f"{module} imports {name}, which is not below it"
        for module, names in IMPORTS.items()
        for name in names
        if module != "biaseval"
        and name.split(".")[1:2] != module.split(".")[1:2]
        and (name == "biaseval" or levels[name.split(".")[1]] <= levels[module.split(".")[1]])
    ]
    assert upward == []
    try:
        TopologicalSorter({module: IMPORTS[module] for module in FILES.keys() - FACADES}).prepare()
    except CycleError as error:
        raise AssertionError(f"a circle of imports: {' → '.join(error.args[1])}") from error


def test_heavy_packages_are_imported_where_they_are_the_subject() -> None:
    heavy = {
        module: found
        for module, path in FILES.items()
        if module.partition(".")[2].partition(".")[0] not in MAY_BE_HEAVY
        and (found := {name.split(".")[0] for name in _names(path, only_module_level=True)} & HEAVY)
    }
    assert heavy == {}
    assert not (PACKAGE.parent / "__init__.py").exists()  # the source root shadows nothing


def test_planning_and_reading_start_without_torch_or_ray() -> None:
    names = """
        cli spec store analysis report pipelines runs label_bias.plan majority_bias.plan qa_bias.data
        qa_bias.heuristics.attributes qa_bias.splits.significance outputs.lm_eval outputs.table
        search.samplers search.objectives
    """
    imports = "\n".join(f"import biaseval.{name}; said('{name}')" for name in names.split())
    heavy = "[module for module in ('torch', 'transformers', 'ray') if module in sys.modules]"
    code = f"import sys\ndef said(name):\n    if {heavy}: sys.exit(name)\n{imports}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_package_changes_and_prints_nothing() -> None:
    code = """
import os, sys
before = dict(os.environ)
import biaseval, biaseval.cli, biaseval.runs
assert dict(os.environ) == before
import biaseval.models, biaseval.scoring, biaseval.training.outcome
# torch names the folder of its own caches.
changed = {name for name, value in os.environ.items() if before.get(name) != value} - {"TORCHINDUCTOR_CACHE_DIR"}
assert not changed, changed
assert before.keys() <= os.environ.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
