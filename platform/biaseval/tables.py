"""The grain, key, columns and types of every table of a run. Columns may be added, never renamed.

What columns mean stands in ``analytics/columns``.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class TableSchema:
    """A table: what one of its rows is, and which runs have it."""

    name: str
    """Of its folder in a run directory, and of its view in SQL."""
    grain: str
    key: tuple[str, ...]
    schema: pa.Schema
    kinds: frozenset[str]
    """The kinds of run that have it; in SQL it is empty where such a run has no part of it."""
    part_of: str | None = None
    """The table each of whose parts has a part here."""
    for_each: tuple[str, ...] = ()
    """The lists in spec or plan for each of whose items it has them again: part p of n, then n + p, 2 n + p …"""
    if_asked: frozenset[str] = frozenset()
    """Of a table that is part of another, the kinds whose specs say whether a run has it at all."""
    later: Mapping[str, str] = field(default_factory=dict)
    """Columns that runs of older versions lack, and what SQL has in their place."""
    optional: frozenset[str] = frozenset()
    """Columns of ``later`` that a part has only where its rows name them."""
    null_keys: frozenset[str] = frozenset()
    """Columns of the key that may be null."""
    also_unique: tuple[tuple[str, ...], ...] = ()
    """Other columns that no two rows have the same of."""

    def empty(self) -> pa.Table:
        """Return the table without a row."""
        return pa.Table.from_batches([], self.schema)  # where schema.empty_table() would import pandas

    def rows(self, rows: list[dict[str, object]]) -> pa.Table:
        """Return ``rows`` as a table of exactly this schema, but for optional columns that none of them names."""
        lacking = [name for name in self.optional if rows and not any(name in row for row in rows)]
        return pa.Table.from_pylist(rows, schema=self.schema).drop_columns(lacking)


_COLUMNS = re.compile(r"((?:\w+ )+)(\w+|\{.*?\})((?:\[\])?)(?:,|$)")
"""Names of columns, their type, and whether it is a list of it."""


def _columns(text: str) -> pa.Schema:
    """Return the schema that a text like ``task label string, shares float64[], turns {role text string}[]`` says."""
    fields = []
    for names, kind, is_list in _COLUMNS.findall(" ".join(text.split())):
        one = pa.struct(_columns(kind[1:-1])) if kind.startswith("{") else pa.type_for_alias(kind)
        fields += [(name, pa.list_(one) if is_list else one) for name in names.split()]
    return pa.schema(fields)


def _table(name: str, grain: str, *, key: str, kinds: str, columns: str, **more: Any) -> TableSchema:
    """Return a table; ``key`` and ``kinds`` are names, ``columns`` is as `_columns` reads it."""
    return TableSchema(name, grain, tuple(key.split()), _columns(columns), frozenset(kinds.split()), **more)


_label_bias_table, _majority_bias_table, _qa_bias_table, _search_table = (
    partial(_table, kinds=kind) for kind in ("label_bias", "majority_bias", "qa_bias", "search")
)

TASKS = _label_bias_table(
    "tasks",
    "task of the run",
    key="task",
    columns="""
        task string, number int32, run_key category definition string, labels string[], n_instances n_main int32,
        template template_source string, is_semantically_equivalent bool
    """,
)

SPLITS = _label_bias_table(
    "splits",
    "(task, instance) drawn",
    key="task instance_id",
    columns="task instance_id role string, position int32, input label string",
)

SETTINGS = _majority_bias_table(
    "settings",
    "setting of a majority-bias run",
    key="setting",
    also_unique=(("number",),),
    columns="setting string, number int32, labels string[], shares float64[], counts counts_asked int32[]",
)

CONTEXTS = _table(
    "contexts",
    "prompt prefix",
    key="context_id",
    kinds="label_bias majority_bias score",
    later={"n_tokens": "null::integer", "format": "'base'", "demo_golds": "demo_labels"},
    optional=frozenset({"format", "demo_golds"}),
    columns="""
        context_id task string, n_demos demo_set int32, setting string, instruction bool, text string,
        demo_ids demo_labels string[], n_tokens int32, format string, demo_golds string[]
    """,
)

PROMPTS = _table(
    "prompts",
    "scored input",
    key="prompt_id",
    kinds="label_bias majority_bias score",
    later={"n_tokens": "null::integer", "format": "'base'", "n_prefix_characters": "null::integer"},
    optional=frozenset({"format", "n_prefix_characters"}),
    columns="""
        prompt_id context_id task purpose string, n_demos demo_set row int32, instance_id gold string,
        labels string[], input_text string, n_demos_used int32, is_truncated bool, n_tokens int32, format string,
        n_prefix_characters int32
    """,
)

LABEL_SCORES = _table(
    "label_scores",
    "(prompt, label)",
    key="prompt_id label",
    kinds="label_bias majority_bias score",
    part_of="prompts",
    if_asked=frozenset({"majority_bias"}),
    columns="prompt_id label string, token_logprobs float32[], n_label_tokens int32",
)

GENERATIONS = _majority_bias_table(
    "generations",
    "(prompt, mode)",
    key="prompt_id mode",
    part_of="prompts",
    if_asked=frozenset({"majority_bias"}),
    columns="prompt_id mode text prediction string",
)

ADAPTED_SCORES = replace(
    LABEL_SCORES,
    name="adapted_scores",
    grain="(prompt, label), scored with the adapter of the prompt's context",
    kinds=frozenset({"label_bias", "majority_bias"}),
    if_asked=frozenset({"label_bias", "majority_bias"}),
)

ADAPTED_GENERATIONS = replace(
    GENERATIONS, name="adapted_generations", grain="(prompt, mode), written with the adapter of the prompt's context"
)

TRAINING_ROWS = _table(
    "training_rows",
    "(adapter, training example)",
    key="adapter row",
    kinds="label_bias majority_bias",
    also_unique=(("adapter", "instance_id"),),
    columns="""
        adapter task string, n_demos demo_set int32, setting string, instruction bool, row int32,
        instance_id prompt label string, labels string[], n_demos_used n_tokens int32
    """,
)

TRAINING = _table(
    "training",
    "(trained adapter or model, step)",
    key="model adapter step",
    kinds="instruct label_bias majority_bias qa_bias",
    null_keys=frozenset({"adapter"}),
    columns="""
        model adapter task string, n_demos demo_set int32, setting string, instruction bool, step epoch int32,
        loss grad_norm learning_rate seconds float64, n_tokens int64, eval_loss float64
    """,
)

TRAINED_MODELS = _qa_bias_table(
    "trained_models",
    "trained reader of a QA-bias run",
    key="model",
    later={"is_stopped": "false"},
    columns="""
        number int32, model base data method bias string, seed int64, standard path string,
        steps best_step int64, problem string, n_windows int64, n_workers int32, device string, is_stopped bool
    """,
)

EVALUATIONS = _qa_bias_table(
    "evaluations",
    "(trained reader, step, set of questions)",
    key="model step dataset",
    later={"seconds": "null::double"},
    columns="model string, step int32, dataset string, loss exact_match f1 seconds float64",
)

CONVERSATIONS = _table(
    "conversations",
    "conversation that a model is tuned on, or that is held out",
    key="number",
    kinds="instruct",
    columns="""
        number int32, conversation_id role string, turns {role string, text string}[], token_ids int32[],
        is_answer bool[]
    """,
)

BOOTSTRAP_DRAWS = _label_bias_table(
    "bootstrap_draws",
    "(suite, draw, task); draw 0 is the suite itself, each task once",
    key="suite draw task",
    columns="suite string, draw int32, task string, n_drawn int32",
)

ROW_DRAWS = _majority_bias_table(
    "row_draws",
    "draw; draw 0 is the test rows themselves, each once",
    key="draw",
    columns="draw int32, n_drawn int32[]",
)

SETTING_PERMUTATIONS = _majority_bias_table(
    "setting_permutations",
    "(draw, seed); draw 0 leaves the settings in their places",
    key="draw seed",
    columns="draw seed int32, numbers int32[]",
)

SIGN_FLIPS = _table(
    "sign_flips",
    "draw; draw 0 flips nothing, and the first 2^n are all patterns of n units, up to 12",
    key="draw",
    kinds="label_bias majority_bias qa_bias search",
    columns="draw int32, signs int8[]",
)

RUN_SETTINGS = _table(
    "run_settings", "run: what the metrics need of its spec, and of its environment (null where that does not say)",
    key="model", kinds="label_bias majority_bias",
    later={
        "adaptations": "['none']", "trained_parameters": "null::bigint", "scoring_seconds": "null::double",
        "formats": "['base']", "primary_metric": "null::varchar", "primary_method": "null::varchar",
        "family": "null::varchar", "tuned_from": "null::varchar", "prefix_mode": "'exact'",
    },
    columns="""
        model family tuned_from string, n_parameters trained_parameters int64, scoring_seconds float64, seed int64,
        normalization prefix_mode string, eos bool, predict calibration adaptations formats string[],
        primary_metric primary_method string
    """,
)  # fmt: skip

FAILED_PARTS = _table(
    "failed_parts",
    "part that failed, which no later command has tried again",
    key="table_name part",
    kinds="label_bias majority_bias qa_bias score",
    later={"rows_of": "null::varchar[]", "is_left_out": "false"},
    columns="table_name string, part int32, problem string, attempts int32, rows_of string[], is_left_out bool",
)

QA_EXAMPLES = _qa_bias_table(
    "qa_examples",
    "question of a QA-bias run",
    key="dataset example_id",
    also_unique=(("dataset", "row"),),
    columns="""
        dataset example_id string, row int32, role title question context string, answers string[],
        answer_starts int32[]
    """,
)

QA_TFIDF = _qa_bias_table(
    "qa_tfidf",
    "term of the contexts that TF-IDF is fitted on",
    key="term",
    columns="term string, document_frequency n_documents int64",
)

QA_ATTRIBUTES = _qa_bias_table(
    "qa_attributes",
    "(question, heuristic)",
    key="dataset example_id heuristic",
    part_of="qa_examples",
    columns="dataset example_id heuristic string, value float64, is_measured bool, closest_word string",
)

QA_PREDICTIONS = _qa_bias_table(
    "qa_predictions",
    "(model, question)",
    key="model dataset example_id",
    part_of="qa_examples",
    for_each=("models", "readers"),
    columns="""
        model dataset example_id prediction string, exact_match f1 score float64,
        n_best {text string, score float64}[]
    """,
)

QA_SETTINGS = _qa_bias_table(
    "qa_settings",
    "run: what the metrics need of its spec",
    key="seed",
    columns="seed int64, variant string, heuristics string[], trials sample int32, replacement bool",
)

QA_MODELS = _qa_bias_table(
    "qa_models",
    "measured model of a QA-bias run",
    key="model",
    later={"is_trained": "false", "is_people": "false"},
    columns="number int32, model on_missing string, datasets string[], is_trained is_people bool",
)

QA_THRESHOLDS = _qa_bias_table(
    "qa_thresholds",
    "(dataset, heuristic, threshold) that is tried",
    key="dataset heuristic threshold",
    columns="dataset heuristic string, threshold float64, is_fixed bool",
)

QA_DRAWS = _qa_bias_table(
    "qa_draws",
    "(model, dataset, heuristic, threshold, segment, trial)",
    key="model dataset heuristic threshold segment trial",
    columns="""
        model dataset heuristic string, threshold float64, segment string, trial int32, exact_match f1 float64
    """,
)

QA_SEARCH_NULLS = _qa_bias_table(
    "qa_search_nulls",
    "(model, dataset, heuristic, draw): a search on permuted answers; draw 0 is the observed one",
    key="model dataset heuristic draw",
    columns="model dataset heuristic string, draw int32, significance float64",
)

QA_BIAS_DRAWS = _qa_bias_table(
    "qa_bias_draws",
    "(model, dataset, heuristic, draw): a bootstrap sample of whole articles",
    key="model dataset heuristic draw",
    columns="model dataset heuristic string, draw int32, lower higher float64",
)

QA_TRAINING_EXAMPLES = replace(
    QA_EXAMPLES,
    name="qa_training_examples",
    grain="question that readers are trained on or validated with",
    key=("role", "dataset", "example_id"),
    also_unique=(),
)

QA_TRAINING_ATTRIBUTES = _qa_bias_table(
    "qa_training_attributes",
    "(question of training or validation, heuristic)",
    key="role dataset example_id heuristic",
    columns="role dataset example_id heuristic string, value float64, is_measured bool, closest_word string",
)

QA_VALIDATION_PREDICTIONS = replace(
    QA_PREDICTIONS,
    name="qa_validation_predictions",
    grain="(standard reader, question of validation)",
    part_of=None,
    for_each=(),
)

QA_SEGMENTS = _qa_bias_table(
    "qa_segments",
    "(base, training data, bias that is addressed)",
    key="base data bias",
    later={"bias_significance": "null::double"},
    columns="""
        base data bias string, threshold float64, source biased_segment judged_by string,
        lower_high higher_high bias_significance float64,
        n_lower n_higher n_undefined n_biased n_biased_validation n_other_validation int64
    """,
)

QA_FEATURES = _qa_bias_table(
    "qa_features",
    "(base, window of a training question)",
    key="base dataset example_id window",
    columns="""
        base dataset example_id string, window int32, token_ids int32[], token_types int8[],
        start_position end_position int32, has_answer bool
    """,
)

QA_GUIDE_LOGITS = _qa_bias_table(
    "qa_guide_logits",
    "(model that guides trainings, window of a training question)",
    key="guide dataset example_id window",
    columns="guide base dataset example_id string, window int32, start_logits end_logits float32[]",
)

QA_CHANGE_DRAWS = _qa_bias_table(
    "qa_change_draws",
    "(trained reader, dataset, heuristic, draw): a bootstrap sample of whole articles",
    key="model dataset heuristic draw",
    columns="model dataset heuristic string, draw int32, lower higher standard_lower standard_higher float64",
)

TRIALS = _search_table(
    "trials",
    "trial of a search",
    key="trial",
    columns="""
        trial int32, parameters state objectives evaluation string, steps int64, seconds float64, seed int64,
        run problem string
    """,
)

TRIAL_VALUES = _search_table(
    "trial_values",
    "(trial, objective, scope, sample, group of articles or rows left out)",
    key="trial objective scope sample left_out",
    later={"is_above_constant": "null::boolean"},
    null_keys=frozenset({"left_out"}),
    columns="trial int32, objective scope sample string, left_out int32, value float64, is_above_constant bool",
)

TRIAL_EVALUATIONS = _search_table(
    "trial_evaluations",
    "(trial, reader that it trained itself, evaluation)",
    key="trial model n_steps",
    columns="trial int32, model string, n_steps int64, f1 float64",
)

SEARCH_SETTINGS = _search_table(
    "search_settings",
    "search",
    key="name",
    later={"are_of_bias_score": "null::boolean[]"},
    columns="""
        name searched string, objectives string[], are_maximized bool[], keys per string[],
        algorithm choose_on string, batch int32, seed shared_steps int64, are_of_bias_score bool[]
    """,
)

TABLES: dict[str, TableSchema] = {
    table.name: table for table in list(globals().values()) if isinstance(table, TableSchema)
}
"""Every table that a run may have, by name."""

PLANNED = tuple(
    table.name
    for table in (
        *(TASKS, SPLITS, SETTINGS, CONTEXTS, PROMPTS, TRAINING_ROWS),
        *(CONVERSATIONS, QA_EXAMPLES, QA_TFIDF, QA_TRAINING_EXAMPLES),
    )
)
"""The tables that planning writes."""


ADAPTED = {"label_scores": "adapted_scores", "generations": "adapted_generations"}
"""Tables of a model's outputs to those of the same model with adapters."""


def tables_of(kind: str) -> dict[str, TableSchema]:
    """Return the tables that runs of a kind have; none for a kind that there is not."""
    return {name: table for name, table in TABLES.items() if kind in table.kinds}


def output_tables(predict: Collection[str]) -> tuple[str, ...]:
    """Return the tables that a model's outputs fill, each with a part for each part of ``prompts``.

    The ways of predicting are ``likelihood``, ``generate`` and ``constrained``, which is read from scores.
    """
    asked = {"label_scores": {"likelihood", "constrained"}, "generations": {"generate", "constrained"}}
    return tuple(table for table, ways in asked.items() if ways.intersection(predict))


def run_outputs(predict: Collection[str], *, has_adapters: bool) -> tuple[str, ...]:
    """Return the tables of `output_tables`, and with adapters those of `ADAPTED` too."""
    tables = output_tables(predict)
    return (*tables, *(ADAPTED[table] for table in tables)) if has_adapters else tables
