"""Links of the documentation lead to files and headings that are there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reference import PAGES as PAGES_OF_CODE

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
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not included in the" not in done.stderr  # pages beside the navigation
    sites = {path.parent.relative_to(tmp_path / "site").as_posix() for path in tmp_path.glob("site/**/index.html")}
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in ROOT.glob("docs/**/*.md")}
    assert sites - {"."} == pages - {"index"}
    assert "sampling noise" in (tmp_path / "site" / "search" / "search_index.json").read_text(encoding="utf-8").lower()


def test_the_readme_can_be_read_in_five_minutes() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 1000
    assert len(text.splitlines()) <= 150
