"""TF-IDF similarity of context and question (``cos_sim``), with scikit-learn's vectorizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.errors import InputError
from biaseval.tables import QA_TFIDF


class Tfidf:
    """``TfidfVectorizer(stop_words="english", use_idf=True)``, all else default, fitted on contexts (P3 section 3.4).

    Lower-cased words of two or more characters without scikit-learn's 318 stop words; raw counts; smoothed
    ``idf = ln((1 + n) / (1 + df)) + 1``; rows of length 1. One row per question: a paragraph counts once for each of
    its questions, in ``n`` and in ``df``. Published values are fitted on the contexts of SQuAD's complete train set.
    """

    def __init__(self, terms: Sequence[str], document_frequencies: npt.NDArray[np.int64], n_documents: int) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self.terms = list(terms)
        self.document_frequencies = document_frequencies
        self.n_documents = n_documents
        self._vectorizer = TfidfVectorizer(stop_words="english", use_idf=True, vocabulary=self.terms)
        # In scikit-learn's order of operations, so that not a bit differs from a vectorizer fitted on the texts.
        self._vectorizer.idf_ = np.log((1 + n_documents) / (1.0 + document_frequencies)) + 1.0

    @classmethod
    def fit(cls, contexts: Sequence[str]) -> Tfidf:
        """Return the model fitted on ``contexts``, one entry per question; each distinct text is read once.

        Raises:
            InputError: there is no context, or no context has a word.
        """
        from sklearn.feature_extraction.text import CountVectorizer

        n_times = Counter(contexts)
        vectorizer = CountVectorizer(stop_words="english", binary=True)
        try:
            has_term = vectorizer.fit_transform(n_times)
        except ValueError as error:
            raise InputError(
                f"cos_sim: the {len(contexts)} contexts for TF-IDF have no words; give it English text ({error})"
            ) from error
        weights = np.fromiter(n_times.values(), dtype=np.int64)
        frequencies = np.asarray(has_term.T @ weights, dtype=np.int64).ravel()
        return cls(vectorizer.get_feature_names_out().tolist(), frequencies, len(contexts))

    @classmethod
    def from_table(cls, table: pa.Table) -> Tfidf:
        """Return the model that :meth:`to_table` stored; its weights are equal bit for bit.

        Raises:
            ValueError: the table's columns are others, it has no row, or its terms are not in order.
        """
        if not set(QA_TFIDF.schema.names) <= set(table.column_names) or table.num_rows == 0:
            raise ValueError(f"no fitted TF-IDF: {table.num_rows} rows of {', '.join(table.column_names)}")
        terms = table["term"].to_pylist()
        if any(left >= right for left, right in pairwise(terms)):
            raise ValueError("the terms of a fitted TF-IDF are not in order, each once")
        frequencies = table["document_frequency"].to_numpy().astype(np.int64)
        return cls(terms, frequencies, table["n_documents"][0].as_py())

    def to_table(self) -> pa.Table:
        """Return the model as a table of `QA_TFIDF`: counts, from which every weight follows exactly."""
        n_documents = np.full(len(self.terms), self.n_documents, dtype=np.int64)
        return pa.table([self.terms, self.document_frequencies, n_documents], schema=QA_TFIDF.schema)

    def cosines(self, contexts: Sequence[str], questions: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the cosine of each context with its question, ``[n_questions]`` in 0 to 1; 0 where either is empty.

        P3's text says question and answer; its code compares context and question, and so do its published values.
        The rounding that gives P3's code 1 + 2e-16 is cut off at 1.
        """
        if len(contexts) != len(questions):
            raise ValueError(f"{len(contexts)} contexts and {len(questions)} questions")
        if not contexts:
            return np.zeros(0)
        rows: dict[str, int] = {}
        row_of_each = [rows.setdefault(context, len(rows)) for context in contexts]
        context_vectors = self._vectorizer.transform(rows)[row_of_each]
        products = context_vectors.multiply(self._vectorizer.transform(questions)).sum(axis=1)
        return np.minimum(np.asarray(products, dtype=np.float64).ravel(), 1.0)
