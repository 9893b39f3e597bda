"""Entities and subjects of texts, from a spaCy pipeline or from embedded rules (``sim_ents`` and ``subj_pos``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from biaseval.errors import InputError
from biaseval.qa_bias import entity_rules, subject_rules
from biaseval.qa_bias.heuristics import heuristic_of

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

_BATCH_SIZE = 64

_NOT_NEEDED = frozenset(
    {
        "tagger",
        "morphologizer",
        "attribute_ruler",
        "lemmatizer",
        "trainable_lemmatizer",
        "textcat",
        "textcat_multilabel",
    }
)
_ENTITY_PIPES = frozenset({"ner", "beam_ner"})
# The recogniser does not cross the sentence boundaries that a parser has set: the parser stays for entities too.
_NEEDED = frozenset({"tok2vec", "transformer", "curated_transformer", "parser", "senter", "sentencizer"})

_ASSIGNED_BY = {
    "entities": ("doc.ents", "entities (ner or entity_ruler)"),
    "subjects": ("token.dep", "dependencies (parser)"),
}
"""What a pipeline must assign for what a heuristic needs, and the components that do, in words."""


class Annotator(Protocol):
    """Finds entities and subjects; texts are independent of each other."""

    @property
    def name(self) -> str:
        """What found them, for reports."""

    @property
    def version(self) -> str:
        """Of what found them."""

    @property
    def is_approximate(self) -> bool:
        """Whether this is the embedded stand-in for a parser."""

    def entity_labels(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the labels of each text's entities, all occurrences, in order, in spaCy's English scheme."""

    def subjects(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the texts of each question's tokens with the dependency ``nsubj`` (not ``nsubjpass``), in order."""


class RuleAnnotator:
    """Entities and subjects by small lists and rules, without a model: the default.

    Against the published segments of SQuAD's 10,570 validation questions, which are those of ``en_core_web_sm`` in the
    variant ``reference``: ``sim_ents`` at threshold 0 has 3,898 and 6,672 (published 5,006 and 5,564; the rules find
    entities of the answer's type more often), ``subj_pos`` at 1 has 6,438 and 1,387, and 2,745 undefined (5,903, 1,672
    and 2,995).
    """

    name = "embedded rules"
    version = "1"  # raised when the rules find something else
    is_approximate = True

    def entity_labels(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the labels of each text's entities, in order."""
        return [entity_rules.entity_labels(text) for text in texts]

    def subjects(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the texts of each question's subjects, in order."""
        return [subject_rules.subjects(question) for question in questions]


class SpacyAnnotator:
    """Entities and subjects from a spaCy pipeline; published values are those of ``en_core_web_sm``."""

    is_approximate = False

    def __init__(self, pipeline: Language) -> None:
        self._pipeline = pipeline
        meta = pipeline.meta
        self.name = f"spaCy {meta['lang']}_{meta['name']} {meta['version']}"
        self.version = f"spacy {metadata.version('spacy')}"

    def entity_labels(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the labels of each text's entities, in order."""
        return [[entity.label_ for entity in doc.ents] for doc in self._parsed(texts, _NOT_NEEDED)]

    def subjects(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the texts of each question's ``nsubj`` tokens, in order."""
        parsed = self._parsed(questions, _NOT_NEEDED | _ENTITY_PIPES)
        return [[token.text for token in doc if token.dep_ == "nsubj"] for doc in parsed]

    def _parsed(self, texts: Sequence[str], not_needed: Collection[str]) -> Iterable[Doc]:
        names = self._pipeline.pipe_names
        factories = {name: self._pipeline.get_pipe_meta(name).factory for name in names}
        # A component that we do not know, such as a rule over lemmas, may need any other.
        is_known = set(factories.values()) <= _NOT_NEEDED | _ENTITY_PIPES | _NEEDED
        disabled = [name for name in names if is_known and factories[name] in not_needed]
        return self._pipeline.pipe(texts, batch_size=_BATCH_SIZE, disable=disabled)


def load_annotator(spacy: str | None, heuristics: Collection[str]) -> Annotator:
    """Return the annotator that a spec's ``text.spacy`` names.

    Args:
        spacy: a pipeline's name or directory; None for the embedded rules.
        heuristics: those of the run; a pipeline must have what they need.

    Raises:
        InputError: the pipeline is not installed, cannot be read, or lacks a component.
    """
    return RuleAnnotator() if spacy is None else _load_spacy(spacy, heuristics)


def _load_spacy(name: str, heuristics: Collection[str]) -> SpacyAnnotator:
    import spacy

    is_directory = Path(name).expanduser().is_dir()
    try:
        pipeline = spacy.load(Path(name).expanduser() if is_directory else name)
    except (OSError, ValueError, ImportError) as error:
        if is_directory or "/" in name:
            remedy = "name a directory that nlp.to_disk wrote"
        else:
            remedy = f"install it with: python -m spacy download {name}"
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"text.spacy: the pipeline {name} cannot be loaded ({reason}); {remedy}, "
            f"or leave text.spacy out for the embedded approximation"
        ) from error
    assigned = {value for pipe in pipeline.pipe_names for value in pipeline.get_pipe_meta(pipe).assigns}
    problems = [
        f"text.spacy: {name} finds no {words}, which {heuristic} needs (its components: "
        f"{', '.join(pipeline.pipe_names) or 'none'}); use a pipeline with it, such as en_core_web_sm, "
        f"or take {heuristic} out of heuristics"
        for need, (value, words) in _ASSIGNED_BY.items()
        for heuristic in heuristics
        if heuristic_of(heuristic).needs == need and value not in assigned
    ]
    if problems:
        raise InputError.of(problems)
    return SpacyAnnotator(pipeline)
