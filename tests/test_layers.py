"""Imports point down only, and what is heavy is imported where it is the subject."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "platform" / "biaseval"

LAYERS = [
    {"__main__"},
    {"cli"},
    {"demo", "doctor"},
    {"pipelines"},
    {"execute", "report", "results"},
    {"analysis", "training"},
    {"label_bias", "majority_bias", "outputs"},
    {"examples"},
    {"reading"},  # its causal models are continued by scoring
    {"scoring"},
    {"units", "environment", "tuning"},  # the last is pure: it knows specs, and not what a trial is
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
    {"analytics_files", "errors", "parsing", "plain", "progress"},
]
HEAVY = {"torch", "transformers", "ray", "peft", "deepspeed"}
MAY_BE_HEAVY = {"models", "scoring", "reading", "training", "execute", "demo"}


def _level(module: str) -> int:
    for level, names in enumerate(LAYERS):
        if module in names:
            return level
    raise AssertionError(f"{module} stands in no layer: add it to LAYERS")


def _imports(path: Path, *, only_module_level: bool) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if only_module_level else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def _module(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = _module(path)
    for name in _imports(path, only_module_level=False):
        if name.startswith("biaseval."):
            imported = name.split(".")[1]
            assert imported == own or _level(imported) > _level(own), f"{own} imports {imported}, which is not below it"


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_where_they_are_the_subject(path: Path) -> None:
    if _module(path) not in MAY_BE_HEAVY:
        heavy = {name.split(".")[0] for name in _imports(path, only_module_level=True)} & HEAVY
        assert not heavy


def test_the_source_root_does_not_shadow_the_standard_library() -> None:
    assert not (PACKAGE.parent / "__init__.py").exists()


@pytest.mark.parametrize(
    "module",
    [
        *("cli", "spec", "store", "analysis", "report", "pipelines"),
        *("label_bias.plan", "majority_bias.plan", "qa_bias.data", "qa_bias.attributes", "qa_bias.significance"),
        *("outputs.lm_eval", "outputs.table"),
        *("tuning.samplers", "analysis.objectives"),
    ],
)
def test_planning_and_reading_start_without_torch_or_ray(module: str) -> None:
    code = f"import sys, biaseval.{module}; print([m for m in ('torch', 'transformers', 'ray') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_changes_and_prints_nothing() -> None:
    code = """
import os, sys
before = dict(os.environ)
import biaseval, biaseval.cli, biaseval.pipelines
assert dict(os.environ) == before
import biaseval.models, biaseval.scoring, biaseval.training.outcome
# torch names the folder of its own caches.
changed = {name for name, value in os.environ.items() if before.get(name) != value} - {"TORCHINDUCTOR_CACHE_DIR"}
assert not changed, changed
assert before.keys() <= os.environ.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
