"""The tables of QA-bias runs: questions, what is measured of them, and what SQL needs beside."""

from __future__ import annotations

import pyarrow as pa

from biaseval.tables.schema import STRINGS, TableSchema

QA_EXAMPLES = TableSchema(
    name="qa_examples",
    grain="question of a QA-bias run",
    key=("dataset", "example_id"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("row", pa.int32()),  # position in the data set, 0-based
            ("role", pa.string()),  # 'in_distribution', 'out_of_distribution'
            ("title", pa.string()),
            ("question", pa.string()),
            ("context", pa.string()),
            ("answers", STRINGS),
            ("answer_starts", pa.list_(pa.int32())),  # characters of the context, one per answer
        ]
    ),
)

QA_ATTRIBUTES = TableSchema(
    name="qa_attributes",
    grain="(question, heuristic)",
    key=("dataset", "example_id", "heuristic"),
    kinds=frozenset({"qa_bias"}),
    part_of="qa_examples",
    schema=pa.schema(
        [
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("heuristic", pa.string()),
            ("value", pa.float64()),  # -1 where undefined
            ("is_measured", pa.bool_()),  # false where the row takes no part in the measurement
            ("closest_word", pa.string()),  # word_dist only: the question's word at that distance
        ]
    ),
)

QA_PREDICTIONS = TableSchema(
    name="qa_predictions",
    grain="(model, question)",
    key=("model", "dataset", "example_id"),
    kinds=frozenset({"qa_bias"}),
    part_of="qa_examples",
    for_each="models",
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("prediction", pa.string()),
            ("exact_match", pa.float64()),  # 0 or 1
            ("f1", pa.float64()),  # 0 to 1
            ("score", pa.float64()),  # start + end logit; null for generated answers and predictions from elsewhere
            ("n_best", pa.list_(pa.struct([("text", pa.string()), ("score", pa.float64())]))),  # best first
        ]
    ),
)

QA_DRAWS = TableSchema(
    name="qa_draws",
    grain="(model, dataset, heuristic, threshold, segment, trial)",
    key=("model", "dataset", "heuristic", "threshold", "segment", "trial"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("heuristic", pa.string()),
            ("threshold", pa.float64()),
            ("segment", pa.string()),  # 'lower': value <= threshold; 'higher'
            ("trial", pa.int32()),
            ("exact_match", pa.float64()),  # mean over the rows drawn, 0 to 1
            ("f1", pa.float64()),
        ]
    ),
)

QA_TFIDF = TableSchema(
    name="qa_tfidf",
    grain="term of the contexts that TF-IDF is fitted on",
    key=("term",),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("term", pa.string()),  # in code-point order, which is that of the vector's axes
            ("document_frequency", pa.int64()),  # questions whose context has the term
            ("n_documents", pa.int64()),  # questions; the same in every row
        ]
    ),
)

QA_SETTINGS = TableSchema(
    name="qa_settings",
    grain="run: what the metrics need of its spec",
    key=("seed",),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("seed", pa.int64()),
            ("variant", pa.string()),  # 'paper', 'reference'
            ("heuristics", STRINGS),
            ("trials", pa.int32()),
            ("sample", pa.int32()),
            ("replacement", pa.bool_()),
        ]
    ),
)

QA_MODELS = TableSchema(
    name="qa_models",
    grain="model of a QA-bias run",
    key=("model",),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("number", pa.int32()),  # its place in the spec, 0-based
            ("model", pa.string()),
            ("on_missing", pa.string()),  # what happens to questions without a prediction: 'error', 'drop'
            ("datasets", STRINGS),  # that it has predictions for; null: all
        ]
    ),
)

QA_THRESHOLDS = TableSchema(
    name="qa_thresholds",
    grain="(dataset, heuristic, threshold) that is tried",
    key=("dataset", "heuristic", "threshold"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("dataset", pa.string()),
            ("heuristic", pa.string()),
            ("threshold", pa.float64()),
            ("is_fixed", pa.bool_()),  # given by the spec, the only one of its heuristic
        ]
    ),
)
