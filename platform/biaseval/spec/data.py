"""Sections about examples in files, and about the prompts that biaseval builds from them."""

import string
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from biaseval.prompting.labels import looks
from biaseval.spec.shared_sections import Section, refuse

OnBadRow = Literal["error", "drop"]
"""The treatment of rows without a label: refuse the file, or drop and count the rows."""

LABEL = "label"
"""The field of an item template that holds the answer."""


class DataSpec(Section):
    """Examples: demonstrations come from ``train``, measured rows from ``test``."""

    train: str
    """CSV, TSV, JSON, JSON lines or Parquet, plain or gzipped; a folder of them or of a saved Hugging Face data set; or
    a Super-NI task file. Local, ``s3://`` or ``hf://datasets/…``."""
    test: str | None = None
    """A file like ``train``; without one, biaseval draws the measured rows from ``train``."""
    fields: dict[str, str] = {}
    """Prompt field to file field, where the two names differ."""
    label: str | None = None
    """The file field that holds the label; default: ``label``, else ``answer``."""
    labels: dict[str, str] | None = None
    """File label to the text that a prompt shows; the label set has the order of these texts.

    For JSON, write ``true``, ``false`` and numbers as keys in the same way. Default: the labels of the preset, else the
    labels of the files in code-point order.
    """
    max_test: Annotated[int, Field(gt=0)] | None = None
    """The largest number of test rows; the seed draws them, and every setting uses the same rows."""
    on_bad_row: OnBadRow = "error"
    """The treatment of rows without a label, with a label that is not in ``labels``, or with another defect.

    ``error`` refuses the file; ``drop`` drops and counts the rows. Rows without a text are always dropped.
    """

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_texts(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        problems = [
            f"{label_key(key)}: the label {text!r} is no text; quote it"
            if not isinstance(text, str)
            else f"{label_key(key)}: the label {text!r} is empty, invisible or has spaces around it; write a bare word"
            for key, text in value.items()
            if not isinstance(text, str) or not looks(text) or text != text.strip()
        ]
        twice = [key for key, n_times in Counter(label_key(key).strip() for key in value).items() if n_times > 1]
        problems += [f"{key}: stands there twice, with and without quotes or spaces; keep one" for key in twice]
        if not problems and len(set(value.values())) < 2:
            problems.append("holds fewer than two labels; name all that the files have")
        refuse(problems)
        return {label_key(key): text for key, text in value.items()}


def _template(item: str) -> str:
    item_pieces(item)
    return item


def _white_space(separator: str) -> str:
    if not separator or separator.strip():
        raise ValueError(f'{separator!r} is not white space; use line breaks, in double quotes: "\\n"')
    return separator


Item = Annotated[str, AfterValidator(_template)]
"""One example, such as ``"Tweet: {tweet}\\nStance: {label}"``; the test item ends before the label."""

Instruction = Annotated[str, Field(min_length=1)]
"""The text before the items; default: the definition of a Super-NI task file."""

Separator = Annotated[str, AfterValidator(_white_space)]
"""The text between instruction and items."""

Order = Literal["drawn", "reversed"] | Annotated[int, Field(ge=1)]
"""The order of a set's demonstrations: as drawn, reversed, or a permutation of the seed, given by its number."""


class ItemSpec(Section):
    """The layout of an example in a prompt."""

    item: Item | None = None
    instruction_text: Instruction | None = None
    separator: Separator = "\n\n"
    flip: Annotated[float, Field(ge=0, le=1)] = 0
    """The chance of each demonstration to show another label, drawn once for all prompts of its set (noisy labels)."""


BASE = "base"
"""The name of the default wording, which the section ``prompt`` gives; other formats change parts of it."""


class FormatSpec(Section):
    """Another wording or order of the same prompt: these keys replace those of the section ``prompt``."""

    item: Item | None = None
    instruction_text: Instruction | None = None
    separator: Separator | None = None
    order: Order = "drawn"


def layout_texts(prompt: ItemSpec, formats: Mapping[str, FormatSpec]) -> dict[str, str]:
    """Return the items and instructions of the section ``prompt`` and its formats, by their keys in a spec."""
    return {
        f"{section}.{name}": text
        for section, own in [("prompt", prompt), *((f"prompt.formats.{key}", form) for key, form in formats.items())]
        for name in ("item", "instruction_text")
        if (text := getattr(own, name)) is not None
    }


def is_label(value: object) -> bool:
    """Return whether a value of a file can be a label: text, true or false, or a number without decimals."""
    return isinstance(value, str | int) or (isinstance(value, float) and value.is_integer())


def label_key(value: object) -> str:
    """Return a label of a file, or a key of ``data.labels``, as JSON writes it: ``true``, ``0``.

    A number without a fraction becomes an integer, because pandas reads a column with gaps as decimal numbers.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def item_pieces(item: str) -> list[tuple[str, str | None]]:
    """Return the literal texts of an item template, each with the field that follows it (None at the end).

    Raises:
        ValueError: braces do not match, a field is not a plain name, ``{label}`` is missing, repeated or not last, or
            lacks a field or white space before it.
    """
    form = 'write fields in braces, {label} last and a space before it, as in "Tweet: {tweet}\\nStance: {label}"'
    try:
        parsed = list(string.Formatter().parse(item))
    except ValueError as error:
        raise ValueError(f"{item!r} is no template ({error}); {form}, and double other braces") from error
    pieces: list[tuple[str, str | None]] = []
    for literal, name, _, _ in parsed:
        # A doubled brace ends a literal, and no field follows.
        if pieces and pieces[-1][1] is None:
            literal = pieces.pop()[0] + literal
        pieces.append((literal, name))
    names = [name for _, name in pieces if name is not None]
    if any(form_ or conversion for _, _, form_, conversion in parsed) or not all(map(str.isidentifier, names)):
        raise ValueError(f"{item!r} has a field that is no plain name; {form}")
    if names.count(LABEL) != 1 or names[-1] != LABEL or len(names) < 2:
        raise ValueError(f"{item!r} has the fields {names}; {form}")
    before = next(literal for literal, name in pieces if name == LABEL)
    # biaseval scores a label after white space. Without white space here, demonstrations would show another text.
    if not before.endswith((" ", "\n", "\t")):
        why = ": a line break is one in double quotes alone" if before.endswith(("\\n", "\\t")) else ""
        raise ValueError(f"{item!r} has no white space before {{label}}{why}; {form}")
    return pieces


def template_fields(item: str) -> tuple[str, ...]:
    """Return each field of an example once, in the order of the template, without the label."""
    return tuple(dict.fromkeys(name for _, name in item_pieces(item) if name is not None and name != LABEL))
