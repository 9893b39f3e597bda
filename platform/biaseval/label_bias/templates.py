"""Input templates for domain-context calibration: from a table, or inferred from a task's own inputs."""

import re
from collections import Counter
from collections.abc import Sequence

from biaseval.errors import InputError
from biaseval.prompting.calibration import SLOT
from biaseval.prompting.task_files import Task
from biaseval.records import read_columns


def read_templates(uri: str) -> dict[str, str]:
    """Return the templates of a table with the columns task and template, local or on an object store, by task.

    Raises:
        InputError: the file cannot be read, lacks a column or names a task twice.
    """
    rows = [(row["task"].strip(), row["template"]) for row in read_columns(uri, ("task", "template"))]
    if twice := [task for task, count in Counter(task for task, _ in rows).items() if count > 1]:
        raise InputError(f"{uri}: {', '.join(twice)} stands there twice; keep one row a task")
    if without_slot := [task for task, template in rows if SLOT not in template]:
        raise InputError(f"{uri}: the template of {', '.join(without_slot)} has no {SLOT}; add one where text varies")
    return dict(rows)


def template_of(task: Task, templates: dict[str, str]) -> tuple[str, str]:
    """Return a task's template and its source: ``table`` (keyed by file name or run key) or ``inferred``."""
    for key in (task.name, task.run_key):
        if key in templates:
            return templates[key], "table"
    return infer_template([instance.input for instance in task.instances]), "inferred"


def infer_template(inputs: Sequence[str]) -> str:
    """Return a template whose literal segments occur, in the same order, in every input.

    Words that all inputs, at least one, share in the same order become the literal parts, and each gap between them a
    slot. Inputs that share nothing give the single slot ``{INPUT}``.
    """
    shared = _TOKEN.findall(inputs[0])
    for text in inputs[1:]:
        shared = _common_subsequence(shared, _TOKEN.findall(text))
    segments = _padded(_structural(_joined(shared, inputs), inputs), inputs)
    if not segments:
        return SLOT
    starts = all(text.lstrip().startswith(segments[0].strip()) for text in inputs)
    ends = all(text.rstrip().endswith(segments[-1].strip()) for text in inputs)
    literal = SLOT.join(segments)
    return ("" if starts else SLOT) + literal + ("" if ends and (len(segments) > 1 or not starts) else SLOT)


_TOKEN = re.compile(r"\w+|[^\w\s]")
_SENTENCE_MARKS = frozenset(".,;?!")
_CHANCE = 1.1
"""The largest ratio of a segment's count to its expected count, one template per input; ``the`` exceeds it by far."""


def _structural(segments: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """Return the segments of a template: no punctuation marks, and none that occur more often than expected."""
    wanted = Counter(segment for segment in segments if segment not in _SENTENCE_MARKS)
    found = {segment: sum(len(_pattern(segment).findall(text)) for text in inputs) for segment in wanted}
    limit = {segment: _CHANCE * wanted[segment] * len(inputs) for segment in wanted}
    return [segment for segment in segments if segment in wanted and found[segment] <= limit[segment]]


def _pattern(segment: str) -> re.Pattern[str]:
    """Return the pattern that finds the segment, except inside a longer word."""
    left = r"(?<!\w)" if segment[0].isalnum() else ""
    right = r"(?!\w)" if segment[-1].isalnum() else ""
    return re.compile(left + re.escape(segment) + right)


def _common_subsequence(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Return a longest common subsequence of two word lists."""
    in_second = set(second)
    first = [word for word in first if word in in_second]
    in_first = set(first)
    second = [word for word in second if word in in_first]
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i in range(len(first) - 1, -1, -1):
        for j in range(len(second) - 1, -1, -1):
            same = first[i] == second[j]
            table[i][j] = table[i + 1][j + 1] + 1 if same else max(table[i + 1][j], table[i][j + 1])
    words, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        if first[i] == second[j]:
            words.append(first[i])
            i, j = i + 1, j + 1
        elif table[i + 1][j] >= table[i][j + 1]:
            i += 1
        else:
            j += 1
    return words


def _joined(words: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """Join shared words to one segment where the same white space separates them in every input."""
    segments: list[str] = []
    for word in words:
        joint = _shared_joint(segments[-1], word, inputs) if segments else None
        if joint is None:
            segments.append(word)
        else:
            segments[-1] += joint + word
    return segments


def _shared_joint(segment: str, word: str, inputs: Sequence[str]) -> str | None:
    pattern = re.compile(re.escape(segment) + r"(\s*)" + _pattern(word).pattern)
    joints = {match.group(1) if (match := pattern.search(text)) else None for text in inputs}
    return joints.pop() if len(joints) == 1 else None


def _padded(segments: Sequence[str], inputs: Sequence[str]) -> list[str]:
    """Return the segments with the white space that surrounds them in every input."""
    before: list[set[str]] = [set() for _ in segments]
    after: list[set[str]] = [set() for _ in segments]
    for text in inputs:
        position = 0
        for index, segment in enumerate(segments):
            match = _pattern(segment).search(text, position)
            if match is None:
                continue
            head, tail = text[: match.start()], text[match.end() :]
            before[index].add(head[len(head.rstrip()) :])
            after[index].add(tail[: len(tail) - len(tail.lstrip())])
            position = match.end()
    return [_common(before[i]) + segment + _common(after[i]) for i, segment in enumerate(segments)]


def _common(spaces: set[str]) -> str:
    """Return the white space if all share it; a plain space if they differ but none is empty."""
    if len(spaces) == 1:
        return next(iter(spaces))
    return " " if spaces and all(spaces) else ""
