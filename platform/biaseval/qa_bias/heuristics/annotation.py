"""Entities and subjects of texts, from a spaCy pipeline (``sim_ents`` and ``subj_pos``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

_BATCH_SIZE = 64

_NOT_NEEDED = frozenset(
    (
        "tagger", "morphologizer", "attribute_ruler", "lemmatizer", "trainable_lemmatizer", "textcat",
        "textcat_multilabel",
    ),
)  # fmt: skip
_ENTITY_PIPES = frozenset({"ner", "beam_ner"})
# The recogniser does not cross the sentence boundaries that a parser has set: the parser stays for entities too.
_NEEDED = frozenset({"tok2vec", "transformer", "curated_transformer", "parser", "senter", "sentencizer"})


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
