"""What the kinds that score labels by a causal LM share: planning, their stages, and what a plan says."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from biaseval.analysis.own_sql import own_sql_problems
from biaseval.environment import amend_environment
from biaseval.errors import InputError, Problems
from biaseval.pipelines.cost_lines import cost_lines, costs, reference_hours
from biaseval.pipelines.kind import Description, Plan, Stage
from biaseval.pipelines.labels.adapters import adapter_cost, adapter_lines, adapter_stage, check_lora
from biaseval.pipelines.labels.label_scores import scoring_stage
from biaseval.pipelines.planning import CausalInputs
from biaseval.progress import say
from biaseval.prompting.parts import PlannedPart
from biaseval.prompting.power import CHANGED, FAMILY_FACTOR, SPREAD, smallest_detectable
from biaseval.spec import CausalSpec, ModelSpec, Prediction
from biaseval.store import Run
from biaseval.training.rows import rows_of, with_tokens


def model_inputs(model: ModelSpec) -> tuple[Any, Any]:
    """Return the model's facts and its tokenizer; Raises InputError: it has none that can be used."""
    from biaseval.models import ModelSource, describe_model, load_tokenizer

    source = ModelSource.of(model)
    return describe_model(source), load_tokenizer(source)


def section_problems(spec: CausalSpec) -> list[str]:
    """Return what of a spec's section ``lora`` does not fit its model or DeepSpeed file, and which SQL of it fails."""
    problems = Problems()
    with problems.noted():
        if spec.lora is not None:
            check_lora(spec, spec.lora)
    return [*problems.found, *own_sql_problems(spec)]


def scored(parts: Sequence[PlannedPart]) -> list[PlannedPart]:
    """Return the parts as often as they are scored: by the model itself, and once more by an adapted model."""
    return [*parts, *(part for part in parts if part.adapter is not None)]


def with_training_rows(
    spec: CausalSpec, rows: pa.Table, tokenizer: Any, window: int | None
) -> tuple[dict[str, pa.Table], list[str]]:
    """Return the part of ``training_rows`` where the spec asks for adapters, and what keeps them from being trained."""
    if spec.lora is None:
        return {}, []
    counted, problems = with_tokens(tokenizer, rows, spec.lora, window)
    return {"training_rows": counted}, problems


def write_causal(run: Run, spec: CausalSpec, inputs: CausalInputs) -> Plan:
    """Write contexts, prompts and the other planned tables, and return the content of ``plan.json``.

    Raises:
        InputError: the plan has mistakes; the message lists all.
    """
    summary = inputs.start
    parts: list[dict[str, Any]] = []
    adapters: list[dict[str, Any]] = []
    sha256: dict[str, str] = {}
    for number, (outline, write) in enumerate(inputs.outlined(spec, with_files=True)):
        run.guard()
        write(run, number, len(parts))
        for part in outline.parts:
            parts.append(part_entry(len(parts), number, *part))
        for adapter in outline.adapters:
            adapters.append({"part": len(adapters), "rows_part": number, **adapter})
        summary += outline.summary
        sha256 |= outline.sha256
    amend_environment(run, data=sha256)
    plan = {**summary.facts(), "n_parts": len(parts), "parts": parts}
    if spec.lora is None:
        return plan
    amend_environment(run, trained_parameters=adapter_cost(spec, spec.lora, adapters, inputs.model).n_trainable[0])
    return {**plan, "adapters": adapters}


def extend_causal(run: Run, spec: CausalSpec, inputs: CausalInputs, plan: Plan) -> Plan:
    """Write the contexts and prompts of a spec that the plan lacks, in parts after its own.

    Raises:
        InputError: the plan has mistakes, or existing parts would change.
    """
    for _ in inputs.all_planned():  # mistakes stop the plan before anything is written
        pass
    contexts_part: dict[str, int] = {}
    for where in sorted(run.parts("contexts")):
        contexts_part |= dict.fromkeys(run.read_part("contexts", where)["context_id"].to_pylist(), where)
    made = {table: run.parts(table) for table in ("tasks", "splits", "settings")}
    prompts = _stored_prompts(run)
    gone = set(prompts)
    parts: list[dict[str, Any]] = [*plan["parts"]]
    n_contexts = 1 + max(contexts_part.values())
    adapters: list[dict[str, Any]] = [*plan.get("adapters", ())]
    known = {adapter["adapter"] for adapter in adapters}
    n_rows = 1 + max(run.parts("training_rows"), default=-1)
    adapter_of: dict[str, str] = {}
    summary = inputs.start
    sha256: dict[str, str] = {}
    for number, planned in enumerate(inputs.all_planned()):
        contexts = planned.tables["contexts"]
        _refuse_other_contexts(run, contexts, contexts_part)
        for table, rows in planned.tables.items():
            if table not in made:
                continue
            if number not in made[table]:
                run.write_part(table, number, rows)
            elif not rows.equals(run.read_part(table, number).cast(rows.schema)):
                raise _other_rows(run, table)
        new = contexts.filter(pc.invert(pc.is_in(contexts["context_id"], pa.array(list(contexts_part), pa.string()))))
        if new.num_rows:
            run.write_part("contexts", n_contexts, new)
        for adapter in planned.adapters:
            if adapter["adapter"] not in known:
                run.write_part("training_rows", n_rows, rows_of(adapter["adapter"], planned.tables["training_rows"]))
                adapters.append({"part": len(adapters), "rows_part": n_rows, **adapter})
                n_rows += 1
        lengths = dict(zip(*(contexts[name].to_pylist() for name in ("context_id", "n_tokens")), strict=True))
        for part in planned.parts:
            rows = part.prompts.to_pylist()
            if any(prompts.get(row["prompt_id"], text := _text(row)) != text for row in rows):
                raise _other_rows(run, "prompts")
            gone.difference_update(row["prompt_id"] for row in rows)
            added = [row for row in rows if row["prompt_id"] not in prompts]
            if part.adapter is not None:
                unscored = added if part.adapter in known else rows
                adapter_of |= dict.fromkeys((row["prompt_id"] for row in unscored), part.adapter)
            rows = added
            rows.sort(key=lambda row: contexts_part.get(row["context_id"], n_contexts))
            for where, own in groupby(rows, key=lambda row: contexts_part.get(row["context_id"], n_contexts)):
                new_part = part.of(list(own), lengths)
                run.write_part("prompts", len(parts), new_part.prompts)
                parts.append(part_entry(len(parts), where, new_part.prompts.num_rows, new_part.tokens))
        n_contexts += bool(new.num_rows)
        summary += planned.summary
        sha256 |= planned.sha256
    if gone:  # rows that an adapter is trained on are not held out
        raise _other_rows(run, "prompts")
    amend_environment(run, data=sha256)
    plan = {**plan, **summary.facts(), "n_parts": len(parts), "parts": parts}
    if spec.lora is None:
        return plan
    amend_environment(run, trained_parameters=adapter_cost(spec, spec.lora, adapters, inputs.model).n_trainable[0])
    return {**plan, "adapters": adapters, "adapted_parts": _adapted_parts(run, plan, adapter_of)}


def _adapted_parts(run: Run, plan: Plan, adapter_of: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the pieces of parts that adapters score, beside the parts: those of the plan, then of more prompts."""
    pieces = [*plan.get("adapted_parts", ())]
    for part in plan["parts"]:
        first_row = 0
        prompts = run.read_part("prompts", part["part"])["prompt_id"].to_pylist()
        for adapter, own in groupby(prompts, key=adapter_of.get):
            n_prompts = len(list(own))
            if adapter is not None:
                number, tokens = len(plan["parts"]) + len(pieces), part["tokens"] * n_prompts // part["n_prompts"]
                piece = part_entry(number, part["contexts_part"], n_prompts, tokens, adapter)
                pieces.append({**piece, "prompts_part": part["part"], "first_row": first_row})
            first_row += n_prompts
    return pieces


def _stored_prompts(run: Run) -> dict[str, int]:
    """Return what tells the text of each prompt from others, by its id."""
    columns = ["prompt_id", "context_id", "input_text"]
    return {
        row["prompt_id"]: _text(row)
        for number in sorted(run.parts("prompts"))
        for row in run.read_part("prompts", number).select(columns).to_pylist()
    }


def _text(prompt: Mapping[str, Any]) -> int:
    return hash((prompt["context_id"], prompt["input_text"]))


def _refuse_other_contexts(run: Run, contexts: pa.Table, contexts_part: Mapping[str, int]) -> None:
    """Make sure that existing contexts have the same texts as a new plan; Raises InputError if not."""
    texts = dict(zip(contexts["context_id"].to_pylist(), contexts["text"].to_pylist(), strict=True))
    for part in sorted({contexts_part[name] for name in texts if name in contexts_part}):
        stored = run.read_part("contexts", part)
        for name, text in zip(stored["context_id"].to_pylist(), stored["text"].to_pylist(), strict=True):
            if texts.get(name, text) != text:
                raise _other_rows(run, "contexts")


def _other_rows(run: Run, table: str) -> InputError:
    return InputError(
        f"{run.uri}: with this spec {table} would have other rows than it has, so that nothing can be added: of fewer "
        "than 396 rows in one file, a larger n_demos x demo_sets takes test rows, and so do pride and lora (smaller "
        "numbers and other methods may be added), lora takes rows of held_out and pride, new data sets come after the "
        "existing ones, and a chat template that writes the date writes another on another day; start a run in another "
        "directory"
    )


def part_entry(
    part: int, contexts_part: int, n_prompts: int, tokens: int, adapter: str | None = None
) -> dict[str, Any]:
    """Return what ``plan.json`` says of a part of ``prompts``; a part without adapter has no such key."""
    entry: dict[str, Any] = {"part": part, "contexts_part": contexts_part, "n_prompts": n_prompts, "tokens": tokens}
    return entry if adapter is None else {**entry, "adapter": adapter}


def causal_stages(run: Run, spec: CausalSpec, plan: Plan, predict: Sequence[Prediction]) -> list[Stage]:
    """Return the stages of a planned run: its adapters where it has some, then its scores."""
    scoring = scoring_stage(run, plan, spec.model, spec.execution, predict)
    return [scoring] if spec.lora is None else [adapter_stage(run, spec, spec.lora, plan, scoring.units), scoring]


def describe_causal(spec: CausalSpec, inputs: CausalInputs) -> Description:
    """Return the description of a spec for `biaseval plan`.

    Raises:
        InputError: the plan would have mistakes; the message lists all.
    """
    summary = inputs.start
    adapters: list[Mapping[str, Any]] = []
    for outline, _ in inputs.outlined(spec, with_files=False):
        summary += outline.summary
        adapters += outline.adapters
    lines = [("tasks", f"{summary.n_tasks:,}")]
    if summary.n_settings is not None:
        lines.append(("settings", f"{summary.n_settings:,}"))
    if summary.n_pool_rows is not None:
        lines.append(
            (
                "rows",
                f"{summary.n_test_rows:,} measured, {summary.n_bias_score_rows:,} for BiasScore, "
                f"{summary.n_pool_rows:,} that demonstrations are drawn from",
            )
        )
    lines.append(("prompts", f"{summary.n_prompts:,}"))
    if summary.n_settings is None:
        lines += [
            ("with fewer demonstrations", f"{summary.n_shortened:,} (prompt.max_tokens)"),
            ("cut at their end", f"{summary.n_cut:,} (prompt.max_tokens)"),
        ]
    flops = 2 * inputs.model.n_parameters * summary.tokens
    saved = summary.tokens_unshared / max(summary.tokens, 1)
    smallest = smallest_detectable(summary.n_tasks, summary.n_test_rows / max(summary.n_tasks, 1))
    spread = "" if summary.n_tasks == 1 else f", by {SPREAD} more or less from task to task"
    lines += [
        ("label scores", f"{summary.n_scores:,}"),
        ("tokens, shared prefixes", f"{summary.tokens:,}"),
        ("tokens, one text a label", f"{summary.tokens_unshared:,} ({saved:.1f} times as many)"),
        ("parameters", f"{inputs.model.n_parameters:,} ({inputs.model.family})"),
        *cost_lines("FLOPs", flops, spec.execution),
        ("smallest change found", f"{smallest:.3f} of accuracy, in four of five such runs"),
        (
            "",
            f"if two methods answer {CHANGED:.0%} of the rows otherwise{spread}; by one test alone, and by those of a "
            f"whole page if it is {FAMILY_FACTOR} times as large",
        ),
    ]
    notes = [f"left out: {name}: {reason}" for name, reason in summary.left_out.items()]
    notes += [f"note: {note}" for note in summary.notes]
    facts = {
        **summary.facts(),
        "model": asdict(inputs.model),
        "flops": flops,
        "gpu_hours_at_100_tflops": reference_hours(flops),
        "costs": costs(flops, spec.execution),
        "smallest_detectable": smallest,
    }
    if spec.lora is None:
        return Description(lines, notes, facts)
    cost = adapter_cost(spec, spec.lora, adapters, inputs.model)
    return Description(lines, notes, facts, adapter_lines(cost, adapters, spec.lora, spec.execution), cost)


def say_what_is_cut(spec_max_tokens: int, plan: Plan) -> None:
    """Print how many prompts are cut or have fewer demonstrations than requested, if any."""
    if plan["n_cut"] or plan["n_shortened"]:
        say(
            f"prompt.max_tokens {spec_max_tokens}: of {plan['n_prompts']:,} prompts {plan['n_shortened']:,} "
            f"keep fewer demonstrations than asked for, {plan['n_cut']:,} lose their end"
        )
