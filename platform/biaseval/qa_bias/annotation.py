"""Entities and subjects of texts, from a spaCy pipeline (``sim_ents`` and ``subj_pos``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from biaseval.errors import InputError
from biaseval.qa_bias.heuristics import annotated, heuristic_of

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


class SpacyAnnotator:
    """Entities and subjects from a spaCy pipeline, of texts that are independent of each other.

    Published values are those of ``en_core_web_sm``.
    """

    is_approximate = False

    def __init__(self, pipeline: Language) -> None:
        self._pipeline = pipeline
        meta = pipeline.meta
        self.name = f"spaCy {meta['lang']}_{meta['name']} {meta['version']}"
        self.version = f"spacy {metadata.version('spacy')}"

    def entity_labels(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the labels of each text's entities, all occurrences, in order."""
        return [[entity.label_ for entity in doc.ents] for doc in self._parsed(texts, _NOT_NEEDED)]

    def subjects(self, questions: Sequence[str]) -> list[list[str]]:
        """Return the texts of each question's tokens with the dependency ``nsubj`` (not ``nsubjpass``), in order."""
        parsed = self._parsed(questions, _NOT_NEEDED | _ENTITY_PIPES)
        return [[token.text for token in doc if token.dep_ == "nsubj"] for doc in parsed]

    def _parsed(self, texts: Sequence[str], not_needed: Collection[str]) -> Iterable[Doc]:
        names = self._pipeline.pipe_names
        factories = {name: self._pipeline.get_pipe_meta(name).factory for name in names}
        # A component that we do not know, such as a rule over lemmas, may need any other.
        is_known = set(factories.values()) <= _NOT_NEEDED | _ENTITY_PIPES | _NEEDED
        disabled = [name for name in names if is_known and factories[name] in not_needed]
        return self._pipeline.pipe(texts, batch_size=_BATCH_SIZE, disable=disabled)


def without_pipeline(spacy: str | None, heuristics: Iterable[str]) -> list[str]:
    """Return the problem that heuristics need a pipeline and a spec's ``text.spacy`` names none, if it is one."""
    if spacy is not None or not (names := annotated(heuristics)):
        return []
    return [
        f"heuristics: {', '.join(names)}: cannot be measured without a spaCy pipeline; name one (text.spacy: "
        "en_core_web_sm), read values from a file by a function of your own (docs/qa-bias.md), or leave this out"
    ]


def load_annotator(name: str | None, heuristics: Collection[str]) -> SpacyAnnotator:
    """Return the annotator that a spec's ``text.spacy`` names.

    Args:
        name: a pipeline's name or directory.
        heuristics: those of the run; a pipeline must have what they need.

    Raises:
        InputError: no pipeline is named, it is not installed, cannot be read, or lacks a component.
    """
    if name is None:
        raise InputError.of(without_pipeline(name, heuristics))
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
            f"or leave out text.spacy and {', '.join(annotated(heuristics))}"
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
