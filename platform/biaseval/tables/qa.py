"""The tables of QA-bias runs: questions, what is measured of them, and what SQL needs beside."""

from __future__ import annotations

import pyarrow as pa

from biaseval.tables.schema import STRINGS, TableSchema

QA_EXAMPLES = TableSchema(
    name="qa_examples",
    grain="question of a QA-bias run",
    key=("dataset", "example_id"),
    also_unique=(("dataset", "row"),),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("row", pa.int32()),
            ("role", pa.string()),
            ("title", pa.string()),
            ("question", pa.string()),
            ("context", pa.string()),
            ("answers", STRINGS),
            ("answer_starts", pa.list_(pa.int32())),
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
            ("value", pa.float64()),
            ("is_measured", pa.bool_()),
            ("closest_word", pa.string()),
        ]
    ),
)

QA_PREDICTIONS = TableSchema(
    name="qa_predictions",
    grain="(model, question)",
    key=("model", "dataset", "example_id"),
    kinds=frozenset({"qa_bias"}),
    part_of="qa_examples",
    for_each=("models", "readers"),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("prediction", pa.string()),
            ("exact_match", pa.float64()),
            ("f1", pa.float64()),
            ("score", pa.float64()),
            ("n_best", pa.list_(pa.struct([("text", pa.string()), ("score", pa.float64())]))),
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
            ("segment", pa.string()),
            ("trial", pa.int32()),
            ("exact_match", pa.float64()),
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
            ("term", pa.string()),
            ("document_frequency", pa.int64()),
            ("n_documents", pa.int64()),
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
            ("variant", pa.string()),
            ("heuristics", STRINGS),
            ("trials", pa.int32()),
            ("sample", pa.int32()),
            ("replacement", pa.bool_()),
        ]
    ),
)

QA_MODELS = TableSchema(
    name="qa_models",
    grain="measured model of a QA-bias run",
    key=("model",),
    kinds=frozenset({"qa_bias"}),
    later={"is_trained": "false", "is_people": "false"},
    schema=pa.schema(
        [
            ("number", pa.int32()),
            ("model", pa.string()),
            ("on_missing", pa.string()),
            ("datasets", STRINGS),
            ("is_trained", pa.bool_()),
            ("is_people", pa.bool_()),
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
            ("is_fixed", pa.bool_()),
        ]
    ),
)

QA_TRAINING_EXAMPLES = TableSchema(
    name="qa_training_examples",
    grain="question that readers are trained on or validated with",
    key=("role", "dataset", "example_id"),
    kinds=frozenset({"qa_bias"}),
    schema=QA_EXAMPLES.schema,
)

QA_TRAINING_ATTRIBUTES = TableSchema(
    name="qa_training_attributes",
    grain="(question of training or validation, heuristic)",
    key=("role", "dataset", "example_id", "heuristic"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema([("role", pa.string()), *QA_ATTRIBUTES.schema]),
)

QA_VALIDATION_PREDICTIONS = TableSchema(
    name="qa_validation_predictions",
    grain="(standard reader, question of validation)",
    key=("model", "dataset", "example_id"),
    kinds=frozenset({"qa_bias"}),
    schema=QA_PREDICTIONS.schema,
)

QA_SEGMENTS = TableSchema(
    name="qa_segments",
    grain="(base, training data, bias that is addressed)",
    key=("base", "data", "bias"),
    kinds=frozenset({"qa_bias"}),
    later={"bias_significance": "null::double"},
    schema=pa.schema(
        [
            ("base", pa.string()),
            ("data", pa.string()),
            ("bias", pa.string()),
            ("threshold", pa.float64()),
            ("source", pa.string()),
            ("biased_segment", pa.string()),
            ("judged_by", pa.string()),
            ("lower_high", pa.float64()),
            ("higher_high", pa.float64()),
            ("bias_significance", pa.float64()),
            ("n_lower", pa.int64()),
            ("n_higher", pa.int64()),
            ("n_undefined", pa.int64()),
            ("n_biased", pa.int64()),
            ("n_biased_validation", pa.int64()),
            ("n_other_validation", pa.int64()),
        ]
    ),
)

QA_FEATURES = TableSchema(
    name="qa_features",
    grain="(base, window of a training question)",
    key=("base", "dataset", "example_id", "window"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("base", pa.string()),
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("window", pa.int32()),
            ("token_ids", pa.list_(pa.int32())),
            ("token_types", pa.list_(pa.int8())),
            ("start_position", pa.int32()),
            ("end_position", pa.int32()),
            ("has_answer", pa.bool_()),
        ]
    ),
)

QA_GUIDE_LOGITS = TableSchema(
    name="qa_guide_logits",
    grain="(model that guides trainings, window of a training question)",
    key=("guide", "dataset", "example_id", "window"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("guide", pa.string()),
            ("base", pa.string()),
            ("dataset", pa.string()),
            ("example_id", pa.string()),
            ("window", pa.int32()),
            ("start_logits", pa.list_(pa.float32())),
            ("end_logits", pa.list_(pa.float32())),
        ]
    ),
)

QA_CHANGE_DRAWS = TableSchema(
    name="qa_change_draws",
    grain="(trained reader, dataset, heuristic, draw): a bootstrap sample of whole articles",
    key=("model", "dataset", "heuristic", "draw"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("heuristic", pa.string()),
            ("draw", pa.int32()),
            ("lower", pa.float64()),
            ("higher", pa.float64()),
            ("standard_lower", pa.float64()),
            ("standard_higher", pa.float64()),
        ]
    ),
)

QA_SEARCH_NULLS = TableSchema(
    name="qa_search_nulls",
    grain="(model, dataset, heuristic, draw): a search on permuted answers; draw 0 is the observed one",
    key=("model", "dataset", "heuristic", "draw"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("heuristic", pa.string()),
            ("draw", pa.int32()),
            ("significance", pa.float64()),
        ]
    ),
)

QA_BIAS_DRAWS = TableSchema(
    name="qa_bias_draws",
    grain="(model, dataset, heuristic, draw): a bootstrap sample of whole articles",
    key=("model", "dataset", "heuristic", "draw"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("dataset", pa.string()),
            ("heuristic", pa.string()),
            ("draw", pa.int32()),
            ("lower", pa.float64()),
            ("higher", pa.float64()),
        ]
    ),
)
