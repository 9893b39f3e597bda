"""Links of the documentation lead to files and headings that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md")])


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
    assert "https://pytorch.org/get-started/locally/" in texts[ROOT / "README.md"]


def _anchors(page: Path) -> set[str]:
    """Return the names under which headings are linked: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", _without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
