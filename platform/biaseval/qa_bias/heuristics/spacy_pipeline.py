"""The spaCy pipeline of a spec (``text.spacy``), and the components that a run's heuristics need."""

from collections.abc import Collection, Iterable
from pathlib import Path

from biaseval.errors import InputError, refuse
from biaseval.qa_bias.heuristics.annotation import SpacyAnnotator
from biaseval.qa_bias.heuristics.built_in import annotated, heuristic_of

_ASSIGNED_BY = {
    "entities": ("doc.ents", "entities (ner or entity_ruler)"),
    "subjects": ("token.dep", "dependencies (parser)"),
}
"""What a pipeline must assign for what a heuristic needs, and the components that do, in words."""


def without_pipeline(spacy: str | None, heuristics: Iterable[str]) -> list[str]:
    """Return the problem that heuristics need a pipeline and a spec's ``text.spacy`` names none, if it is one."""
    if spacy is not None or not (names := annotated(heuristics)):
        return []
    return [
        f"heuristics: {', '.join(names)}: cannot be measured without a spaCy pipeline; name one (text.spacy: "
        "en_core_web_sm), read values from a file by a function of your own (docs/qa-bias.md), or leave this out"
    ]


def load_annotator(name: str | None, heuristics: Collection[str]) -> SpacyAnnotator:
    """Return the annotator that a spec's ``text.spacy`` names: a pipeline with the components that heuristics need.

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
    refuse(problems)
    return SpacyAnnotator(pipeline)
