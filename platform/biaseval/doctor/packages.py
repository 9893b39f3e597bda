"""Python and the installed packages, against what the package asks for and the versions that its tests passed with."""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from biaseval.doctor.finding import Finding, State

_CHECKOUT = Path(__file__).resolve().parents[3]
_MOST_NAMED = 6


@dataclass(frozen=True)
class Asked:
    """What the package asks for."""

    python: str
    requirements: Sequence[str]
    """Of a plain installation, without extras."""
    tested: Sequence[str]
    """``name==version`` of what the tests passed with; none where it was installed without the repository."""


def asked(checkout: Path = _CHECKOUT) -> Asked:
    """Return what this package asks for: what its repository says, or what it was installed with."""
    project, constraints = checkout / "pyproject.toml", checkout / "constraints.txt"
    if project.is_file():
        content = tomllib.loads(project.read_text())["project"]
        lines = constraints.read_text().splitlines() if constraints.is_file() else []
        tested = [line for line in lines if line.strip() and not line.startswith("#")]
        return Asked(content["requires-python"], content["dependencies"], tested)
    installed = metadata.metadata("biaseval")
    requirements = [own for own in metadata.requires("biaseval") or [] if "extra ==" not in own]
    return Asked(installed["Requires-Python"], requirements, [])


def python() -> Iterator[Finding]:
    """Say whether this Python is one that the package takes."""
    yield judge_python(platform.python_version(), asked().python)


def judge_python(version: str, specifier: str) -> Finding:
    """Return what is to say of a version of Python."""
    from packaging.specifiers import SpecifierSet

    facts = {"version": version, "asked": specifier}
    if SpecifierSet(specifier).contains(version, prereleases=True):
        return Finding("python", State.ok, version, facts=facts)
    remedy = "make the environment anew with Python 3.11 or 3.12"
    return Finding("python", State.problem, f"{version}, and {specifier} is needed", remedy, facts)


def packages() -> Iterator[Finding]:
    """Say which packages are missing, too old or too new, or other than tested."""
    yield from judge_packages(asked())


def judge_packages(wanted: Asked) -> Iterator[Finding]:
    """Yield what is to say of the installed packages."""
    from packaging.requirements import Requirement

    install = "pip install -c constraints.txt -e ." if wanted.tested else "install biaseval anew, which brings them"
    wrong, n_asked = [], 0
    for own in map(Requirement, wanted.requirements):
        if own.marker is not None and not own.marker.evaluate():
            continue
        n_asked += 1
        version = _version(own.name)
        if version is None:
            wrong.append(f"{own.name} is missing ({own.specifier})")
        elif not own.specifier.contains(version, prereleases=True):
            wrong.append(f"{own.name} {version} ({own.specifier} is needed)")
    if wrong:
        yield Finding("packages", State.problem, _listed(wrong), install, {"wrong": wrong})
    other = []
    for own in map(Requirement, wanted.tested):
        version = _version(own.name)
        # A build of its own, such as torch's for a version of CUDA, is the same version.
        if version is not None and not own.specifier.contains(version.partition("+")[0], prereleases=True):
            other.append(f"{own.name} {version} (tested: {str(own.specifier).removeprefix('==')})")
    if other:
        found = f"{len(other)} other than the tests passed with: {_listed(other)}"
        yield Finding("packages", State.warning, found, f"{install}, or run the tests", {"untested": other})
    if not wrong and not other:
        yield Finding("packages", State.ok, f"{n_asked} as asked for{', as tested' if wanted.tested else ''}")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _listed(items: Sequence[str]) -> str:
    more = f", and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    return ", ".join(items[:_MOST_NAMED]) + more
