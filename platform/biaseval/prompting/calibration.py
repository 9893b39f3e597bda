"""Calibration methods, and the prompts that they need.

A method is a file of ``analytics/calibrations``. Its head describes the method and names the prompts that it reads. Its
query computes the correction from the labels' probabilities. This module plans the prompts, by purpose: inputs that
carry no answer (P1 section 3), or each answer in turn. Imports nothing heavy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from biaseval.analytics_files import ANALYTICS, head
from biaseval.errors import InputError

if TYPE_CHECKING:
    import numpy as np

CC_INPUTS = ("N/A", "", "[MASK]")
"""Contextual calibration's content-free inputs (Zhao et al. 2021), in this order."""

N_DC_INPUTS = 20

N_QUESTIONS = 32
"""Questions of methods that permute options: as many as BiasScore rows, or fewer if there are fewer questions."""

SLOT = "{INPUT}"
"""The place of variable text in the template of an input."""

Inputs = list[dict[str, str]]
"""Inputs of a method: the text of each prompt field."""


@dataclass(frozen=True)
class Purpose:
    """Prompts that serve only calibrations."""

    name: str
    """The ``purpose`` of these prompts in tables."""
    inputs: Callable[[Sequence[str], Mapping[str, DomainContext], np.random.Generator], Inputs] | None
    """Makes the inputs from the fields, their words and a generator; they are the same in every setting of a task.

    None: each setting has other inputs. They are its demonstrations, each with its label and removed from its own
    prompt, or the questions of ``permutes``.
    """
    n_inputs: int | None = None
    """The largest number of inputs; None: as many as a setting has demonstrations."""
    permutes: bool = False
    """Whether inputs are questions outside the setting's demonstrations, each with its options in every cyclic
    order."""
    needs_words: bool = False
    """Whether inputs consist of the task's words; a task without words then has no inputs."""


def random_words(fields: Sequence[str], words: Mapping[str, DomainContext], generator: np.random.Generator) -> Inputs:
    """Return `N_DC_INPUTS` inputs in which each field has its own random words."""
    drawn = [words[field].draw(generator) for field in fields]
    return [dict(zip(fields, texts, strict=True)) for texts in zip(*drawn, strict=True)]


PURPOSES = {
    purpose.name: purpose
    for purpose in (
        Purpose(
            "cc", lambda fields, _words, _generator: [dict.fromkeys(fields, text) for text in CC_INPUTS], len(CC_INPUTS)
        ),
        Purpose("dc", random_words, N_DC_INPUTS, needs_words=True),
        Purpose("looc", None),
        Purpose("pride", None, N_QUESTIONS, permutes=True),
    )
}
"""The purposes by name, in the order of prompts and tables."""


ROWS = ("main", "majority")
"""The purposes of test rows, in label bias and in majority bias."""

GIVES = ("log_prior", "log_probability")
"""The result of a calibration's query: a column to subtract by label, or a column by prompt and label."""


@dataclass(frozen=True)
class Calibration:
    """One method: the head of its file."""

    name: str
    """The name in specs, tables and marts, which is the name of the file."""
    shown: str
    """The name in reports."""
    meaning: str
    """A sentence about the method, with its source."""
    by: str
    """The inputs whose probabilities are the divisor, with the source."""
    inputs: tuple[str, ...]
    """The purposes of the prompts that the query reads: of `PURPOSES`, or of test rows (``main``, ``majority``)."""
    gives: str = GIVES[0]
    """The column of the query: ``log_prior``, subtracted by label, or ``log_probability`` by prompt and label.

    ``log_probability`` need not be normalised.
    """
    reference: str | None = None
    """The publication in full; None if it is P1."""

    @classmethod
    def of(cls, name: str, sql: str) -> Self:
        """Return the method of a file; Raises ValueError: its head lacks a key, or the value of a key is unknown."""
        keys = head(sql)
        if lacking := [key for key in ("shown", "meaning", "by", "inputs") if not keys.get(key)]:
            raise ValueError(f"its head lacks {', '.join(lacking)}; begin the file with lines such as -- shown: BC")
        inputs = tuple(name.strip() for name in keys["inputs"].split(","))
        if unknown := [purpose for purpose in inputs if purpose not in (*PURPOSES, *ROWS)]:
            raise ValueError(f"inputs: {unknown[0]!r} is no purpose of prompts; use {', '.join((*PURPOSES, *ROWS))}")
        if len(inputs) > 1 and not set(inputs) <= set(ROWS):
            raise ValueError(f"inputs: {', '.join(inputs)}: are several; name one of {', '.join(PURPOSES)}")
        gives = keys.get("gives", GIVES[0])
        if gives not in GIVES:
            raise ValueError(f"gives: {gives!r} is no column of a calibration; use {' or '.join(GIVES)}")
        return cls(name, keys["shown"], keys["meaning"], keys["by"], inputs, gives, keys.get("reference"))


_FILES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(ANALYTICS.glob("calibrations/*.sql"))}

CALIBRATIONS = {
    name: Calibration.of(name, _FILES[name]) for name in [*PURPOSES, *(name for name in _FILES if name not in PURPOSES)]
}
"""The methods by name, in the order of tables and figures: methods with their own prompts come first."""


MOST_STRENGTH = 1.5
"""The largest strength of a calibration: 0 means none, and 1 means as published."""

Own = Mapping[str, str]
"""Calibrations that a spec brings: name to SQL, in the form of ``analytics/calibrations``."""

NONE: Own = MappingProxyType({})


_OWN_FILE = re.compile(r"(calibrations|metrics)/([a-z][a-z0-9_]*)\.sql")


def named_by(path: str) -> tuple[str, str] | None:
    """Return the folder (``calibrations`` or ``metrics``) and name of a file of ``analysis.sql``, None for others."""
    found = _OWN_FILE.fullmatch(path)
    return None if found is None else (found[1], found[2])


def own_of(files: Mapping[str, str], folder: str = "calibrations") -> dict[str, str]:
    """Return the calibrations, or metrics, among the files of ``analysis.sql`` (path to text)."""
    found = {named_by(path): text for path, text in files.items()}
    return {named[1]: text for named, text in found.items() if named is not None and named[0] == folder}


def known_calibrations(own: Own) -> dict[str, Calibration]:
    """Return the methods by name, with those of the spec last."""
    return CALIBRATIONS | {name: Calibration.of(name, sql) for name, sql in own.items()} if own else CALIBRATIONS


_VARIANT = re.compile(r"(?P<method>[a-z][a-z0-9_]*)(@(?P<strength>[0-9][0-9.e-]*))?(/(?P<inputs>[1-9][0-9]*))?")


@dataclass(frozen=True)
class Variant:
    """A method with the options of a spec: ``cc``, ``cc@0.7`` or ``dc@0.7/5``.

    The method divides probabilities by ``p_hat ** strength`` (1 as published). ``p_hat`` is the mean over the method's
    first ``inputs`` inputs, or over all of them (None).
    """

    method: str
    strength: float = 1.0
    inputs: int | None = None

    @classmethod
    def of(cls, name: str, own: Own | None = None) -> Self:
        """Return the variant that a name in a spec means; ``own`` None: any valid name of a method.

        Raises:
            ValueError: the name means no method; the message says why.
        """
        found = _VARIANT.fullmatch(name)
        methods = CALIBRATIONS if own is None else known_calibrations(own)
        if found is None or (own is not None and found["method"] not in methods):
            known = ", ".join(methods)
            raise ValueError(f"{name!r} is no calibration; use one of {known}, or with a strength, as in cc@0.7")
        try:
            strength = float(found["strength"] or 1)
        except ValueError:
            raise ValueError(f"{name!r}: {found['strength']!r} is no number; write a strength as in cc@0.7") from None
        if not 0 <= strength <= MOST_STRENGTH:
            raise ValueError(
                f"{name!r}: a strength is 0 (no calibration) to {MOST_STRENGTH} (1: as published); change {strength:g}"
            )
        inputs = None if found["inputs"] is None else int(found["inputs"])
        if (method := methods.get(found["method"])) is not None:
            if strength != 1 and method.gives != "log_prior":
                raise ValueError(f"{name!r}: {method.name} has no strength; write {method.name}")
            if inputs is not None and method.name not in PURPOSES:
                raise ValueError(f"{name!r}: {method.name} takes all of its inputs; write {method.name}")
            most = None if inputs is None else PURPOSES[method.name].n_inputs
            if inputs is not None and most is not None and inputs > most:
                raise ValueError(f"{name!r}: {method.name} has {most} inputs, not {inputs}; lower the number")
        return cls(found["method"], strength, inputs)

    def __str__(self) -> str:
        """Return the name, without a strength of 1."""
        strength = "" if self.strength == 1 else f"@{self.strength!r}".removesuffix(".0")
        return f"{self.method}{strength}{'' if self.inputs is None else f'/{self.inputs}'}"


def purposes_of(names: Collection[str], own: Own = NONE) -> list[Purpose]:
    """Return the purposes of the prompts that calibrations of these names need, in the order of `PURPOSES`."""
    known = known_calibrations(own)
    needed = {purpose for name in names for purpose in known[Variant.of(name).method].inputs}
    return [purpose for purpose in PURPOSES.values() if purpose.name in needed]


def shared_inputs(
    names: Collection[str],
    fields: Sequence[str],
    words: Mapping[str, DomainContext],
    generator: Callable[[str], np.random.Generator],
    own: Own = NONE,
) -> dict[str, Inputs]:
    """Return the inputs that are the same in every setting, by purpose.

    ``words`` has those of each of the prompt's fields, if a purpose needs them, and ``generator`` returns the random
    generator of a purpose.
    """
    return {
        purpose.name: purpose.inputs(fields, words, generator(purpose.name))
        for purpose in purposes_of(names, own)
        if purpose.inputs is not None
    }


def leaves_one_out(purpose: str) -> bool:
    """Return whether the inputs of this purpose are demonstrations that are removed from their own context."""
    found = PURPOSES.get(purpose)
    return found is not None and found.inputs is None and not found.permutes


def permuting(names: Collection[str], own: Own = NONE) -> list[str]:
    """Return the purposes of these calibrations whose inputs are questions with permuted options."""
    return [purpose.name for purpose in purposes_of(names, own) if purpose.permutes]


def calibration_rows(own: Own = NONE) -> list[dict[str, object]]:
    """Return the methods as rows for SQL, each with the properties of the purpose of the same name."""
    return [
        {
            "method": method.name,
            "shown": method.shown,
            "meaning": method.meaning,
            "number": number,
            "purposes": list(method.inputs),
            "leaves_one_out": leaves_one_out(method.name),
            "permutes": method.name in PURPOSES and PURPOSES[method.name].permutes,
        }
        for number, method in enumerate(known_calibrations(own).values())
    ]


def calibration_queries(gives: str, own: Own = NONE, asked: Collection[str] | None = None) -> dict[str, str]:
    """Return the queries of the methods with this column of `GIVES`, by name, in the order of `known_calibrations`.

    With ``asked``, the calibrations in a spec, the result has only these and the methods that may have prompts of their
    own purpose.
    """
    queries = {**_FILES, **own}
    names = None if asked is None else {*PURPOSES, *(Variant.of(name).method for name in asked)}
    return {
        name: queries[name]
        for name, method in known_calibrations(own).items()
        if method.gives == gives and (names is None or name in names)
    }


@dataclass(frozen=True)
class DomainContext:
    """The material of random in-domain inputs: the literal parts of a template, and a bag of words for each slot."""

    prefixes: tuple[str, ...]
    bags: tuple[tuple[str, ...], ...]
    """Lower-cased words of all inputs, one bag per part; the first part comes before the first prefix."""
    lengths: tuple[int, ...]
    """The number of words of each part: the mean word count over the inputs, rounded up."""
    n_unfit: int
    """Inputs without a literal part of the template; the bags exclude their words."""

    def draw(self, generator: np.random.Generator, n_inputs: int = N_DC_INPUTS) -> list[str]:
        """Return ``n_inputs`` random inputs; words are drawn without replacement within an input."""
        return [self._draw_one(generator) for _ in range(n_inputs)]

    def _draw_one(self, generator: np.random.Generator) -> str:
        text = ""
        for prefix, bag, length in zip(("", *self.prefixes), self.bags, self.lengths, strict=True):
            text += prefix
            if length > 0:
                words = generator.choice(len(bag), length, replace=False)
                text += " ".join(bag[index] for index in words)
        return text


def domain_context(task: str, template: str, inputs: Sequence[str]) -> DomainContext:
    """Return the bags and lengths of a task's main inputs (Fei et al. 2023, as P1's code has it).

    The template is literal text with ``{INPUT}`` slots; messages name the task.

    Raises:
        InputError: most inputs lack a literal part of the template. (P1's code fails at the first such input; biaseval
            counts it and excludes its words.)
    """
    prefixes = template.split(SLOT)
    split = [split_by_template(prefixes, text) for text in inputs]
    fitting = [parts for parts in split if len(parts) == len(prefixes) + 1]
    n_unfit = len(split) - len(fitting)
    if n_unfit * 2 > len(split):
        raise InputError(
            f"{task}: {n_unfit} of {len(split)} inputs lack a literal part of the template {template!r}; "
            "mend it in tasks.templates, or take its row out so that one is inferred"
        )
    words = [[part.lower().split() for part in parts] for parts in fitting]
    bags = tuple(tuple(word for parts in words for word in parts[index]) for index in range(len(prefixes) + 1))
    return DomainContext(
        prefixes=tuple(prefixes),
        bags=bags,
        lengths=tuple(math.ceil(len(bag) / len(words)) for bag in bags),
        n_unfit=n_unfit,
    )


def split_by_template(prefixes: Sequence[str], text: str) -> list[str]:
    """Return the texts between the literal parts of a template, as P1's code splits an input.

    The function walks through ``prefixes`` from left to right and keeps the stripped text before each prefix. The walk
    continues from the last character of the prefix. So if a prefix does not end in a space, its last character begins
    the next part. A missing prefix is tried without the spaces around it, then with double spaces made single, and is
    skipped if both fail. The result has ``len(prefixes) + 1`` parts, the first normally empty; fewer if a prefix was
    not found.
    """
    parts: list[str] = []
    rest = text
    for prefix in prefixes:
        variants = (prefix, prefix.strip(), prefix.strip().replace("  ", " "))
        position = next((found for variant in variants if (found := rest.find(variant)) >= 0), None)
        if position is None:
            continue
        parts.append(rest[:position].strip())
        # The length of the unchanged prefix counts even when a shorter variant matched, which may remove text.
        rest = rest[position + max(len(prefix) - 1, 0) :]
    parts.append(rest.strip())
    return parts
