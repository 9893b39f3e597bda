"""Documentation: pages, specs and counted measures."""

import ast
import re
import shutil
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError, create_model

from biaseval.parsing import ParseError, yaml_value
from biaseval.spec import Spec, load_specs
from biaseval.spec.shared_sections import Section
from tests.measures import BEGIN, END, PAGE, measures, written
from tests.reference import PAGES as PAGES_OF_CODE
from tests.test_spec_words import SECTIONS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for place in re.findall(r"\]\(([^)\s]+)\)", _without_code(page)):
        if "://" in place:
            continue
        name, _, heading = place.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), place
        if heading:
            assert heading in _anchors(target), place


def test_messages_and_pages_install_from_the_source_folder() -> None:
    """The package is in no registry, and where torch's builds lie is said by PyTorch's own page."""
    places = ["README.md", "docs/*.md", "examples/*", "platform/**/*.py"]
    texts = {path: path.read_text() for place in places for path in ROOT.glob(place) if path.is_file()}
    wrong = re.compile(r"install 'biaseval\[|--(extra-)?index-url|download\.pytorch")
    assert [str(path) for path, text in texts.items() if wrong.search(text)] == []
    assert "https://pytorch.org/get-started/locally/" in texts[ROOT / "docs" / "install.md"]


def _anchors(page: Path) -> set[str]:
    """Return the names under which headings are linked: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", _without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", PAGES_OF_CODE)
def test_the_reference_is_that_of_the_code(name: str) -> None:
    written = (ROOT / "docs" / "reference" / f"{name}.md").read_text(encoding="utf-8")
    assert written == PAGES_OF_CODE[name](), "renew it: python -m tests.reference"


def test_the_site_is_built_with_every_page_in_its_navigation(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")], cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "not included in the" not in done.stderr  # pages beside the navigation
    sites = {path.parent.relative_to(tmp_path / "site").as_posix() for path in tmp_path.glob("site/**/index.html")}
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert sites - {"."} == {page.removesuffix("/index") for page in pages} - {"index"}
    assert "sampling noise" in (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8").lower()


def test_the_readme_can_be_read_in_five_minutes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1000
    assert len(text.splitlines()) <= 150


PAGES_WITH_SPECS = sorted(
    [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/results/*.md"), *ROOT.glob("examples/*.md")]
)
SOURCES = sorted((ROOT / "platform" / "biaseval").rglob("*.py"))
SPECS = sorted([*ROOT.glob("examples/*.yaml"), *ROOT.glob("docs/results/*.yaml"), *ROOT.glob("jobs/specs/**/*.yaml")])

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
    for page in PAGES_WITH_SPECS:
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
            shutil.copy(ROOT / "jobs" / "specs" / "papers" / "p3-debiasing.yaml", tmp_path / content["spec"])
        load_specs(tmp_path / "spec.yaml")
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
    load_specs(path)


def _shown_lines() -> Iterator[tuple[str, str, str]]:
    """Yield what pages, and strings of the source, say of a key: ``key: value``, and ``--set key=value``."""
    for page in PAGES_WITH_SPECS:
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


def test_the_page_has_a_place_for_the_table() -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    assert written(written(text)) == written(text)
    assert all(f"| {what} |" in text for what in measures())
