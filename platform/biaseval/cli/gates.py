"""Print the gates of a run for people, and write them as JUnit's XML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from biaseval.cli.printing import print_table
from biaseval.json_values import as_text

if TYPE_CHECKING:
    from biaseval.analysis.gates import Checked, Gate

_N_SHOWN = 3
"""The most rows to show of a failed gate."""

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def print_gates(checked: Checked) -> None:
    """Print one line for each gate."""
    columns = [("gate", False), ("result", False), ("rows", True), ("values", False), ("not met by", False)]
    print_table(columns, map(_line, checked.gates))


def gates_junit(checked: Checked) -> str:
    """Return a JUnit suite with one test for each gate."""
    counts = {"tests": str(len(checked.gates)), "failures": str(sum(not gate.holds for gate in checked.gates))}
    counts |= {"errors": "0", "skipped": "0"}
    root = ElementTree.Element("testsuites", {"name": "biaseval check", **counts})
    suite = ElementTree.SubElement(root, "testsuite", {"name": _in_xml(checked.run), **counts})
    for gate in checked.gates:
        place = {"classname": _in_xml(gate.mart), "name": _in_xml(gate.expression)}
        test = ElementTree.SubElement(suite, "testcase", place)
        if note := _unshown(gate):
            ElementTree.SubElement(test, "system-out").text = note
        if not gate.holds:
            message = f"not met by {gate.n_failed} of {gate.n_rows} rows"
            fallen = ElementTree.SubElement(test, "failure", {"type": "gate", "message": message})
            fallen.text = _in_xml("\n".join(map(_row, gate.failed)))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return f"{text.decode()}\n"


def _line(gate: Gate) -> list[str]:
    shown = "; ".join(map(_row, gate.failed[:_N_SHOWN]))
    more = f"; {gate.n_failed - _N_SHOWN:,} more" if gate.n_failed > _N_SHOWN else ""
    null = f" ({gate.n_null:,} null)" if gate.n_null else ""
    rows = f"{gate.n_rows - gate.n_failed:,} of {gate.n_rows:,}{null}"
    values = ", ".join(f"{name} {' to '.join(dict.fromkeys(map(as_text, ends)))}" for name, ends in gate.ranges.items())
    note = f" ({unshown})" if (unshown := _unshown(gate)) else ""
    return [gate.expression, f"passed{note}" if gate.holds else "FAILED", rows, values, f"{shown}{more}"]


def _unshown(gate: Gate) -> str:
    """Return a note on rows of a preset with too little data for a verdict; an empty text if there are none."""
    return f"too few rows to tell in {gate.n_unshown:,}" if gate.n_unshown else ""


def _row(row: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {'null' if value is None else as_text(value)}" for name, value in row.items())


def _in_xml(text: str) -> str:
    """Return the text without characters that are invalid in XML."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
