"""Changes of a spec that keep the stored results of a run: keys that only add work, and keys of the analysis."""

from collections.abc import Sequence
from functools import reduce
from operator import getitem
from typing import Any

from pydantic import ValidationError

from biaseval.prompting.calibration import PURPOSES, Variant, purposes_of
from biaseval.spec.files import S, changed_keys, differences
from biaseval.spec.shared_sections import RunSpec, is_among

_CALIBRATION = "calibration"


def grown_keys(old: RunSpec, new: RunSpec) -> list[str]:
    """Return the keys to which ``new`` adds something.

    The list is empty where ``new`` also changes or drops something of ``old``.
    """
    if type(old) is not type(new) or old.is_fixed or new.is_fixed:
        return []
    rest, grown = _without_additions(old, new)
    return [] if differences(old, rest) else grown


def blocking(old: RunSpec, new: RunSpec) -> list[str]:
    """Return a line for each difference that is neither an addition to ``old`` nor a key of the analysis."""
    if type(old) is not type(new) or old.is_fixed or new.is_fixed:
        return differences(old, new)
    return differences(old, _without_additions(old, analysed_as(old, new))[0])


def _without_additions(old: S, new: S) -> tuple[S, list[str]]:
    """Return ``new`` without its additions to ``old``, and the keys that add something."""
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    grown = []
    for key in new.GROWS:
        *sections, name = key.split(".")
        one, other = (reduce(getitem, sections, content) or {name: None} for content in (before, after))
        is_lora = (key == "lora" and one[name] is None) or (key.startswith("lora.") and other[name] is None)
        if one[name] != other[name] and (is_lora or _is_more(one[name], other[name])):  # null: no adapters, or all
            grown.append(key)
            other[name] = one[name]
    try:
        return type(new).model_validate(after), grown
    except ValidationError:  # what was added goes with something that also changed
        return new, []


def analysed_as(old: S, new: S) -> S:
    """Return ``new`` with the analysis of ``old``, or unchanged if that contradicts the other keys of ``new``."""
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    sections: dict[str, Any] = {}
    for key in _analysis(new):
        name, _, part = key.partition(".")
        if part in ("", "*"):
            sections[name] = before[name]
        else:
            sections[name] = {**sections.get(name, after[name]), part: before[name][part]}
    if "files" in after.get("analysis", ()):  # new files may bring new calibrations
        files = {**after["analysis"]["files"], **before["analysis"]["files"]}
        sections["analysis"] = {**before["analysis"], "files": files}
    try:
        return type(new).model_validate({**after, **sections})
    except ValidationError:
        return new


def _analysis(spec: RunSpec) -> Sequence[str]:
    # Readers are trained on segments, which depend on these keys.
    return spec.ANALYSIS if getattr(spec, "train", None) is None else ()


def of_analysis(old: RunSpec, new: RunSpec) -> list[str]:
    """Return a line for each reason why ``new`` is not just another analysis of the results that ``old`` stored."""
    lines = [
        _is_none(key, new)
        for key in changed_keys(old, new)
        if not is_among(key, (*_analysis(new), *new.RESOURCES)) and key != _CALIBRATION
    ]
    stored = purposes_of(getattr(old, _CALIBRATION, ()), old.own_calibrations)
    kept = {Variant.of(name).method for name in getattr(new, _CALIBRATION, ())}
    lines += [
        f"{_CALIBRATION}: {name} is stored and stays in every table; name it too"
        for name in getattr(old, _CALIBRATION, ())
        if Variant.of(name).method not in kept and Variant.of(name).method in PURPOSES
    ]
    lacking = [
        name
        for name in getattr(new, _CALIBRATION, ())
        if not all(one in stored for one in purposes_of([name], new.own_calibrations))
    ]
    return lines + [f"{_CALIBRATION}: {name}: nothing is stored for it; biaseval run adds it" for name in lacking]


def of_no_section(spec: RunSpec, overrides: Sequence[str]) -> list[str]:
    """Return a line for each ``key.subkey=value`` outside the sections of the analysis; the line names valid keys."""
    allowed = {key.split(".")[0] for key in (*_analysis(spec), *spec.RESOURCES, _CALIBRATION)}
    keys = [override.partition("=")[0].strip() for override in overrides]
    return [_is_none(key, spec) for key in keys if key.split(".")[0] not in allowed]


def _is_none(key: str, spec: RunSpec) -> str:
    allowed = ", ".join(_shown(spec)) if _analysis(spec) else "none where readers are trained"
    return f"{key}: is no key of the analysis of a run of the kind {spec.kind} ({allowed})"


def _shown(spec: RunSpec) -> Sequence[str]:
    keys = [key for key in spec.ANALYSIS if not key.endswith(".*") or key[:-2] not in spec.ANALYSIS]
    return [*keys, _CALIBRATION] if _CALIBRATION in type(spec).model_fields else keys


def _is_more(before: Any, after: Any) -> bool:
    if isinstance(before, list) and isinstance(after, list):
        return all(each in after for each in before)
    if isinstance(before, dict) and isinstance(after, dict):
        return all(key in after and after[key] == value for key, value in before.items())
    return isinstance(before, int) and isinstance(after, int) and after > before
