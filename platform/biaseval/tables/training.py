"""The tables of training: the rows of adapters, conversations, and the steps of both."""

from __future__ import annotations

import pyarrow as pa

from biaseval.tables.schema import STRINGS, TableSchema

TRAINING_ROWS = TableSchema(
    name="training_rows",
    grain="(adapter, training example)",
    key=("adapter", "row"),
    kinds=frozenset({"label_bias", "majority_bias"}),
    schema=pa.schema(
        [
            ("adapter", pa.string()),  # its folder below adapters/
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("row", pa.int32()),  # 0-based
            ("instance_id", pa.string()),
            ("prompt", pa.string()),
            ("label", pa.string()),
            ("labels", STRINGS),
            ("n_demos_used", pa.int32()),  # fewer than n_demos under the length limit
            ("n_tokens", pa.int32()),  # of prompt, label and EOS
        ]
    ),
)

TRAINING = TableSchema(
    name="training",
    grain="(trained adapter or model, step)",
    key=("model", "adapter", "step"),
    kinds=frozenset({"label_bias", "majority_bias", "instruct", "qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),  # the spec's name; of readers their own
            ("adapter", pa.string()),  # its folder below adapters/; of tuning 'adapter', null for all parameters
            ("task", pa.string()),
            ("n_demos", pa.int32()),
            ("demo_set", pa.int32()),
            ("setting", pa.string()),
            ("instruction", pa.bool_()),
            ("step", pa.int32()),  # 0-based
            ("epoch", pa.int32()),  # 0-based
            # nats a target token: mean over each row's label and EOS, then over the rows; of readers the method's own
            ("loss", pa.float64()),
            # of the whole adapter or model before clipping; null where the loss is not finite; infinite where the
            # gradient is not: in float16 the step was skipped, else training ended
            ("grad_norm", pa.float64()),
            ("learning_rate", pa.float64()),
            ("seconds", pa.float64()),
            ("n_tokens", pa.int64()),  # of the step's conversations or windows; null where rows are few-shot prompts
            ("eval_loss", pa.float64()),  # nats an answer token, of what is held out; null where not computed
        ]
    ),
)

TRAINED_MODELS = TableSchema(
    name="trained_models",
    grain="trained reader of a QA-bias run",
    key=("model",),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("number", pa.int32()),  # its place in the study, 0-based
            ("model", pa.string()),  # BASE@DATA+METHOD(BIAS)#SEED, without the parts of which there is one
            ("base", pa.string()),
            ("data", pa.string()),
            # 'standard', 'resample', 'learned_mixin', 'confidence_regularization', 'product_of_experts'; 'bias_model'
            # takes part in no measurement
            ("method", pa.string()),
            ("bias", pa.string()),  # the heuristic that is addressed, of a bias model used; null: standard
            ("seed", pa.int64()),
            (
                "standard",
                pa.string(),
            ),  # the model of the same base, data and seed that it is compared with; null: itself
            ("path", pa.string()),  # of its folder in the run; null: it was given up
            ("steps", pa.int64()),  # that were made
            ("best_step", pa.int64()),  # 0-based; behind it the weights are that were kept
            ("problem", pa.string()),  # why it was given up; null: it was not
            ("n_windows", pa.int64()),  # that it was trained on in an epoch
            ("n_workers", pa.int32()),
            ("device", pa.string()),  # 'cpu', or the accelerator's name
            ("is_stopped", pa.bool_()),  # a search ended it early, which is its problem then
        ]
    ),
    later={"is_stopped": "false"},
)

EVALUATIONS = TableSchema(
    name="evaluations",
    grain="(trained reader, step, set of questions)",
    key=("model", "step", "dataset"),
    kinds=frozenset({"qa_bias"}),
    schema=pa.schema(
        [
            ("model", pa.string()),
            ("step", pa.int32()),  # 0-based; behind it the reader was asked
            ("dataset", pa.string()),  # of bias models the segments of a set, 'squad (biased)' and 'squad (other)'
            ("loss", pa.float64()),  # nats: mean over windows, of start and end, whatever the method's own loss is
            ("exact_match", pa.float64()),  # 0 to 1
            ("f1", pa.float64()),  # 0 to 1
            ("seconds", pa.float64()),  # to ask it
        ]
    ),
    later={"seconds": "null::double"},
)

CONVERSATIONS = TableSchema(
    name="conversations",
    grain="conversation that a model is tuned on, or that is held out",
    key=("number",),
    kinds=frozenset({"instruct"}),
    schema=pa.schema(
        [
            ("number", pa.int32()),  # 0-based, in the order of the file
            ("conversation_id", pa.string()),
            ("role", pa.string()),  # 'train', 'held_out'
            ("turns", pa.list_(pa.struct([("role", pa.string()), ("text", pa.string())]))),  # as read
            ("token_ids", pa.list_(pa.int32())),  # up to the last answer that fits
            ("is_answer", pa.list_(pa.bool_())),  # whether the token counts in the loss
        ]
    ),
)
