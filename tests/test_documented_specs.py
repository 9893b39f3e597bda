"""Every line of a spec that documentation, examples, `biaseval init` or a message shows is one that can be written."""

import ast
import re
import shutil
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError, create_model

from biaseval.parsing import ParseError, yaml_value
from biaseval.spec import Spec, load_spec
from biaseval.spec.shared_sections import Section
from tests.test_spec_words import SECTIONS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])
SOURCES = sorted((ROOT / "platform" / "biaseval").rglob("*.py"))
SPECS = sorted([*ROOT.glob("examples/*.yaml"), *ROOT.glob("jobs/specs/*.yaml")])

_KINDS: tuple[type[Section], ...] = typing.get_args(Spec)
_OF_A_KEY = r"(?P<key>[a-z_][a-z0-9_]*(?:\.[a-z_0-9]+)*)"


KEYS = {name: [own for own in SECTIONS if name in own.model_fields] for each in SECTIONS for name in each.model_fields}
"""Sections that have a key, by its name."""


def _takes(name: str, value: Any) -> bool:
    """Return whether a key of this name takes the value, in any section that has one."""
    if name == "calibration":
        value = [own for own in value if not own.startswith("half_bc")]  # the example of a calibration of one's own
    for section in KEYS[name]:
        field = section.model_fields[name]
        own = create_model("One", __base__=Section, **{name: (field.annotation, field)})
        try:
            own.model_validate({name: value})
        except ValidationError as error:
            if all(problem["type"] in ("missing",) for problem in error.errors()):
                return True
            continue
        return True
    return False


def _blocks() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield f"{page.name}:{text.count(chr(10), 0, found.start()) + 1}", found[1]


BLOCKS = dict(_blocks())


@pytest.mark.parametrize("place", BLOCKS)
def test_a_block_of_a_page_is_a_spec_or_a_part_of_one(place: str, tmp_path: Path) -> None:
    content = yaml_value(BLOCKS[place])
    known = {name for kind in _KINDS for name in kind.model_fields}
    if not content.keys() <= known:
        assert place.startswith("scale.md"), f"{place}: keys of no spec"  # of the cluster launcher
        return
    if "kind" in content:
        (tmp_path / "spec.yaml").write_text(BLOCKS[place])
        if isinstance(content.get("spec"), str):  # of what is searched
            shutil.copy(ROOT / "jobs" / "specs" / "qa-debiasing-squad.yaml", tmp_path / content["spec"])
        load_spec(tmp_path / "spec.yaml")
        return
    for key, value in content.items():
        assert any(_is_of(kind, key, value, content) for kind in _KINDS if key in kind.model_fields), f"{place}: {key}"


def _is_of(kind: type[Section], key: str, value: Any, block: Any) -> bool:
    """Return whether what is wrong with a spec of this section alone is what it lacks."""
    try:
        beside = {"analysis": block["analysis"]} if "analysis" in block else {}  # names calibrations of one's own
        kind.model_validate(
            {**beside, key: value, "kind": kind.model_fields["kind"].annotation.__args__[0], "name": "x"}
        )
    except ValidationError as error:
        return not [own for own in error.errors() if own["loc"][:1] == (key,) and own["type"] != "missing"]
    return True


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.name)
def test_specs_of_the_repository_load(path: Path) -> None:
    load_spec(path)


def _shown_lines() -> Iterator[tuple[str, str, str]]:
    """Yield what pages, and strings of the source, say of a key: ``key: value``, and ``--set key=value``."""
    for page in PAGES:
        for code in re.findall(r"`([^`\n]+)`", page.read_text()):
            if found := re.fullmatch(rf"{_OF_A_KEY}: (?P<value>[^:…]+)", code):
                yield page.name, found["key"], found["value"]
        for found in re.finditer(rf"--set '?{_OF_A_KEY}=(?P<value>'[^']*'|\{{[^}}]*\}}|[^\s'`]+)", page.read_text()):
            yield page.name, found["key"], found["value"].strip("'")
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for found in re.finditer(
                    rf"(?:^(?=[a-z_.: ]+ for )|\bset|\bwrite|\bwith|# ?|``|\bis|;) ?{_OF_A_KEY}: "
                    r"(?P<value>[a-z_0-9]+)(?=[;,)`]| for |$)",
                    node.value,
                ):
                    yield path.name, found["key"], found["value"]
                for found in re.finditer(rf"--set {_OF_A_KEY}=(?P<value>[^\s'`{{]+)", node.value):
                    yield path.name, found["key"], found["value"]


LINES = sorted({own for own in _shown_lines() if own[1].rpartition(".")[2] in KEYS})


def test_lines_that_are_shown_are_found() -> None:
    shown = {(key, value) for _, key, value in LINES}
    assert {("model.chat", "off"), ("chat", "off")} <= shown
    assert len(shown) > 20


@pytest.mark.parametrize(("page", "key", "value"), LINES)
def test_a_line_that_is_shown_can_be_written(page: str, key: str, value: str) -> None:
    try:
        found = yaml_value(value)
    except ParseError as error:
        raise AssertionError(f"{page}: {key}: {value}: {error}") from error
    if value.isupper() and value not in ("A", "B"):  # a place for a value: FILE, M, N
        return
    assert _takes(key.rpartition(".")[2], found), f"{page}: {key}: {value}"
