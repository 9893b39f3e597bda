from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics.pairwise import cosine_similarity

from biaseval.errors import InputError
from biaseval.qa_bias.similarity import Tfidf
from biaseval.tables import QA_TFIDF
from tests.qa_bias.tablerows import MILL, read_rows

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
    np.testing.assert_allclose(Tfidf.fit(contexts).cosines(contexts, questions), expected, atol=1e-12)


def test_a_stored_model_gives_the_same_bits(tmp_path: Path) -> None:
    model = Tfidf.fit(CONTEXTS)
    pq.write_table(model.to_table(), tmp_path / "tfidf.parquet")
    stored = pq.read_table(tmp_path / "tfidf.parquet")
    assert stored.schema.equals(QA_TFIDF.schema)
    questions = ["Who sold the mill to the bank?"] * len(CONTEXTS)
    again = Tfidf.from_table(stored)
    assert again.n_documents == model.n_documents
    np.testing.assert_array_equal(again.cosines(CONTEXTS, questions), model.cosines(CONTEXTS, questions))


def test_a_text_without_known_words_has_cosine_zero() -> None:
    model = Tfidf.fit([MILL])
    assert model.cosines([MILL, "", MILL, MILL], ["Zebra?", "mill", "", "the of a I"]).tolist() == [0.0] * 4


def test_case_and_order_do_not_matter_and_the_cosine_of_equal_texts_is_one_at_most() -> None:
    contexts = [MILL, MILL.upper(), *[f"alpha beta gamma {number} delta" for number in range(10, 40)]]
    cosines = Tfidf.fit(contexts).cosines(contexts, contexts)
    assert cosines.max() == 1.0
    np.testing.assert_allclose(cosines, 1.0, atol=1e-12)


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
