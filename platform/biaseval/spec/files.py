"""Spec files of any kind: read them, apply overrides, make paths absolute, list all mistakes, and compare two specs."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from biaseval.cache import local_path
from biaseval.errors import InputError, refuse
from biaseval.parsing import ParseError, yaml_text, yaml_value
from biaseval.spec.shared_sections import RunSpec, is_among
from biaseval.spec.spec_errors import problems_of

S = TypeVar("S", bound=RunSpec)
K = TypeVar("K")


def read_content(path: Path, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the content of the spec file after ``key.subkey=value`` overrides, whose values are YAML.

    Raises:
        InputError: the file cannot be read or holds no mapping, or the key of an override has no place in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a spec file (YAML)") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from error
    try:
        content = yaml_value(text)
    except ParseError as error:
        raise InputError(f"{path}: {error}; mend the file") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: a spec is a mapping of keys such as kind, name and model; this file is not")
    override_keys(content, overrides)
    return content


def override_keys(content: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set keys of a spec's content; Raises InputError: the key of an override has no place in it."""
    for override in overrides:
        _apply_override(content, override)


def validated(content: Mapping[str, Any], source: str, kinds: Mapping[str, type[S]]) -> S:
    """Return the validated spec with this content; its paths stay unchanged.

    ``source`` is the file's name, for messages, and ``kinds`` has the class of each kind of spec.

    Raises:
        InputError: the content has mistakes; the message lists all of them.
    """
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        found = "is missing" if kind is None else f"{kind!r} is unknown"
        raise InputError(f"{source}: kind: {found}; use {' or '.join(kinds)}")
    refuse([f"{source}: {problem}" for problem in _unusable(content)])
    try:
        return kinds[kind].model_validate(content)
    except ValidationError as error:
        raise InputError.of([f"{source}: {problem}" for problem in problems_of(error, kinds[kind], content)]) from error


def _unusable(value: object, key: str = "") -> Iterator[str]:
    """Yield a problem for each number and text that no key takes."""
    if isinstance(value, Mapping | list):
        for name, one in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _unusable(one, f"{key}.{name}".lstrip("."))
    elif isinstance(value, str) and re.search("[\0\ud800-\udfff]", value):
        yield f"{key}: holds a NUL or half a character; write it without"
    elif isinstance(value, int | float) and not abs(value) < 2**63:
        yield f"{key}: {value} is not finite or too large; write one between -9e18 and 9e18"


def with_absolute_paths(spec: S, folder: Path) -> S:
    """Return the spec with absolute paths; relative paths start from ``folder``."""
    content = spec.model_dump()
    for key in spec.PATHS:
        for section, name in _places(content, key.split(".")):
            value = section[name]
            if not isinstance(value, str) or "://" in value:
                continue
            local = local_path(folder / os.path.expanduser(value))
            # A model, adapter or spaCy pipeline without a local directory of that name is a name.
            if key not in spec.NAMES or local.exists() or value.startswith((".", "/", "~")):
                section[name] = str(local)
    return type(spec).model_validate(content)


def with_own_sql(spec: S, source: str, folder: Path) -> S:
    """Return the spec with the text of the SQL files in its folder ``analysis.sql``.

    ``source`` is the file's name, for messages, and the path starts from ``folder``.

    Raises:
        InputError: the folder cannot be read or has no SQL file, or a file has mistakes; the message lists all of them.
    """
    named = getattr(getattr(spec, "analysis", None), "sql", None)
    if named is None:
        return spec
    own = local_path(folder / os.path.expanduser(named))
    if not own.is_dir():
        if spec.analysis.files:  # type: ignore[attr-defined]  # of a run whose folder is gone
            return spec
        raise InputError(f"{source}: analysis.sql: {named} is no folder of this machine; name one")
    try:
        paths = sorted(own.rglob("*.sql"))
        files = {path.relative_to(own).as_posix(): path.read_text(encoding="utf-8-sig") for path in paths}
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{source}: analysis.sql: {own} cannot be read ({error}); name a folder") from error
    if not files:
        raise InputError(f"{source}: analysis.sql: {own} has no SQL file; put calibrations/NAME.sql there")
    content = spec.model_dump()
    analysis = {**content["analysis"], "sql": str(own), "files": files}
    return validated({**content, "analysis": analysis}, source, {spec.kind: type(spec)})


def of_kind(spec: RunSpec, problem: str, *kinds: type[K]) -> K:
    """Return a spec of one of these kinds; Raises InputError: it is of another ``{kind}``, which ``problem`` names."""
    if not isinstance(spec, kinds):
        raise InputError(problem.replace("{kind}", spec.kind))
    return spec


def dump_spec(spec: RunSpec) -> str:
    """Return the resolved spec as YAML."""
    return yaml_text(spec.model_dump(mode="json"))


def differences(old: RunSpec, new: RunSpec) -> list[str]:
    """Return a line for each key in which the spec of a run directory differs from ``new``.

    Resources, keys that the run does not use, and file paths may differ. The run's fingerprints compare the content of
    files.
    """
    if old.kind != new.kind:
        return [f"kind: the run has {old.kind!r}, the spec {new.kind!r}"]
    before = flatten(old.model_dump(mode="json"), new.PATHS)
    after = flatten(new.model_dump(mode="json"), new.PATHS)
    keys = [key for key in dict.fromkeys([*before, *after]) if not is_among(key, (*new.RESOURCES, *old.unused()))]
    paths = [key for key in keys if is_among(key, new.PATHS)]

    def line(key: str) -> str:
        return f"{key}: the run has {before.get(key)!r}, the spec {after.get(key)!r}"

    return [
        *(line(key) for key in keys if key not in paths and before.get(key) != after.get(key)),
        *new.further_differences(before, after),
        *(line(key) for key in paths if (before.get(key) is None) != (after.get(key) is None)),
    ]


def changed_keys(old: RunSpec, new: RunSpec) -> list[str]:
    """Return the dotted keys whose values differ between two specs of the same kind."""
    before = flatten(old.model_dump(mode="json"), new.PATHS)
    after = flatten(new.model_dump(mode="json"), new.PATHS)
    return [key for key in dict.fromkeys([*before, *after]) if before.get(key) != after.get(key)]


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, separator, value = override.partition("=")
    if not separator or not key.strip():
        raise InputError(f"--set {override}: write key=value, for example --set tasks.max_eval=100")
    *parents, last = key.strip().split(".")
    section = content
    for place, parent in enumerate(parents, 1):
        child = section.get(parent)
        if child is None:  # also if the section is null
            child = section[parent] = {}
        if isinstance(child, list):  # the next name may be that of an entry
            named = [each for each in child if isinstance(each, dict) and each.get("name") in parents[place:][:1]]
            child = {each["name"]: each for each in named} or child
        if not isinstance(child, dict):
            above = ".".join(parents[:place])
            if isinstance(child, list):
                raise InputError(f"--set {override}: {above} is a list; give all of it: --set '{above}=[...]'")
            whole = value
            for name in reversed([*parents[place:], last]):
                whole = f"{{{name}: {whole}}}"
            raise InputError(
                f"--set {override}: {above} is {child!r} and not a section of the spec; replace all of it: "
                f"--set '{above}={whole}'"
            )
        section = child
    try:
        section[last] = yaml_value(value)
    except ParseError as error:
        raise InputError(f"--set {override}: {error}; mend the value") from error


def _places(content: Any, key: Sequence[str]) -> Iterable[tuple[Any, Any]]:
    """Yield the sections and names that match a key; ``*`` matches any name or any place in a list."""
    name, *rest = key
    if content is None:
        return
    places = list(content if isinstance(content, dict) else range(len(content)))
    names = [place for place in places if name in (place, "*")]  # entries of a list may have other keys
    for each in names:
        if rest:
            yield from _places(content[each], rest)
        else:
            yield content, each


def flatten(content: Any, paths: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """Return dotted keys to values; a list is one value unless ``paths`` name its entries."""
    if isinstance(content, list) and any(path.startswith(f"{prefix}*.") for path in paths):
        content = dict(enumerate(content))
    if not isinstance(content, dict):
        return {prefix.rstrip("."): content}
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat.update(flatten(value, paths, f"{prefix}{key}."))
    return flat
