from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.annotation import load_annotator
from tests.qa_bias.tablerows import MILL, read_rows

PARSED = [
    ("Who sold the mill?", [1, 1, 3, 1, 1], ["nsubj", "ROOT", "det", "dobj", "punct"]),
    ("When did Lee sell it?", [3, 3, 3, 3, 3, 3], ["advmod", "aux", "nsubj", "ROOT", "dobj", "punct"]),
    ("When was the mill sold?", [4, 4, 3, 4, 4, 4], ["advmod", "auxpass", "det", "nsubjpass", "ROOT", "punct"]),
]


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pipeline whose parser has learned three questions by heart."""
    import spacy
    from spacy.training import Example
    from spacy.util import fix_random_seed

    fix_random_seed(0)
    pipeline = spacy.blank("en")
    pipeline.add_pipe("parser", config={"min_action_freq": 1})
    examples = [
        Example.from_dict(pipeline.make_doc(text), {"heads": heads, "deps": labels}) for text, heads, labels in PARSED
    ]
    optimizer = pipeline.initialize(lambda: examples)
    for _ in range(40):
        pipeline.update(examples * 2, sgd=optimizer)
    folder = tmp_path_factory.mktemp("pipeline") / "parser"
    pipeline.to_disk(folder)
    return folder


def test_without_a_pipeline_the_embedded_rules_answer() -> None:
    annotator = load_annotator(None, ["sim_ents", "subj_pos"])
    assert annotator.is_approximate
    assert annotator.name == "embedded rules"
    assert annotator.entity_labels([MILL, ""]) == [["DATE", "PERSON", "DATE", "PERSON"], []]
    assert annotator.subjects(["Who sold it?", "When was it built?"]) == [["Who"], []]


def test_entities_of_a_pipeline_are_the_golden_ones(tmp_path: Path, shared: Path) -> None:
    import spacy

    golden = shared / "golden" / "qa"
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("entity_ruler")
    ruler.add_patterns([json.loads(line) for line in (golden / "entity_ruler_patterns.jsonl").read_text().splitlines()])
    pipeline.to_disk(tmp_path / "ruler")
    annotator = load_annotator(str(tmp_path / "ruler"), ["sim_ents", "cos_sim"])
    assert not annotator.is_approximate
    assert annotator.name.startswith("spaCy en_")

    rows, annotations = read_rows(golden / "examples.jsonl"), pq.read_table(golden / "annotations.parquet").to_pylist()
    contexts = annotator.entity_labels([row["context"] for row in rows])
    assert contexts == [annotation["context_entity_labels"] for annotation in annotations]
    answers = annotator.entity_labels([answer for row in rows for answer in row["answers"]["text"]])
    assert answers == [labels for annotation in annotations for labels in annotation["answer_entity_labels"]]


def test_subjects_of_a_pipeline_are_its_active_ones(parser: Path) -> None:
    annotator = load_annotator(str(parser), ["subj_pos"])
    assert annotator.subjects([text for text, _, _ in PARSED]) == [["Who"], ["Lee"], []]


def test_a_component_of_the_users_own_finds_what_it_needs(parser: Path, tmp_path: Path) -> None:
    import spacy

    pipeline = spacy.load(parser)
    # Tags alone would not be needed for entities, but these patterns look at them, and at the parse.
    tagger = pipeline.add_pipe("attribute_ruler")
    tagger.add([[{}]], {"TAG": "WORD"})
    tagger.add([[{"LOWER": "mill"}]], {"TAG": "MILL"})
    patterns = [{"label": "FAC", "pattern": [{"TAG": "MILL"}]}, {"label": "SUBJECT", "pattern": [{"DEP": "nsubj"}]}]
    pipeline.add_pipe("entity_ruler").add_patterns(patterns)
    pipeline.to_disk(tmp_path / "all")
    annotator = load_annotator(str(tmp_path / "all"), ["sim_ents", "subj_pos"])
    assert annotator.entity_labels([text for text, _, _ in PARSED]) == [["SUBJECT", "FAC"], ["SUBJECT"], ["FAC"]]
    assert annotator.subjects([text for text, _, _ in PARSED]) == [["Who"], ["Lee"], []]


def test_a_pipeline_without_what_a_heuristic_needs_is_refused(tmp_path: Path, parser: Path) -> None:
    import spacy

    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(InputError) as error:
        load_annotator(str(tmp_path / "blank"), ["sim_ents", "subj_pos"])
    assert "entities (ner or entity_ruler), which sim_ents needs (its components: none)" in str(error.value)
    assert "dependencies (parser), which subj_pos needs" in str(error.value)
    with pytest.raises(InputError, match="which sim_ents needs"):
        load_annotator(str(parser), ["sim_ents", "subj_pos"])
    load_annotator(str(tmp_path / "blank"), ["word_dist"])


def test_a_pipeline_that_is_not_installed_is_named_with_the_command() -> None:
    with pytest.raises(InputError, match="python -m spacy download en_core_web_xx") as error:
        load_annotator("en_core_web_xx", ["sim_ents"])
    assert "text.spacy: the pipeline en_core_web_xx cannot be loaded" in str(error.value)


def test_a_folder_that_is_no_pipeline_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InputError, match=r"text\.spacy: .* name a directory that nlp\.to_disk wrote"):
            load_annotator(str(folder), ["sim_ents"])
