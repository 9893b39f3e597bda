"""What commands print on standard output: results in four formats, plans, and what came of a run."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import Any

import typer


class Format(StrEnum):
    """How `sql` prints its result."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


_OVER_TASKS = """
select n_demos, method, macro_f1, accuracy, rsd, bias_score, n_tasks, n_demo_sets, n_rows
from label_bias_by_model
where suite = 'all'
order by n_demos, array_position({methods}, method)
"""

_OVER_SETTINGS = """
select instruction, predict, method, mean_f1, sd_f1, max_f1, rb_at_10, share_majority, share_last, share_no_label,
    n_settings, n_seeds, n_rows
from majority_by_model
order by instruction, predict, array_position({methods}, method)
"""

_OVER_QUESTIONS = """
select model, dataset, heuristic, threshold, bias_significance, bias_significance_f1, n_lower, n_higher, status
from qa_bias_by_heuristic
order by model, dataset, heuristic
"""

_OVER_ALL = {"label_bias": _OVER_TASKS, "majority_bias": _OVER_SETTINGS, "qa_bias": _OVER_QUESTIONS}
"""The query whose rows are the metrics of a whole run, by its kind."""


def print_json(value: Any) -> None:
    """Print a value as one JSON document: data classes as objects, what is not finite as null, dates as text."""
    sys.stdout.write(json.dumps(_plain(value), ensure_ascii=False, allow_nan=False) + "\n")


def print_result(result: Any, output: Format) -> None:
    """Print the rows of an Arrow table."""
    if output is Format.parquet:
        import pyarrow.parquet as pq

        pq.write_table(result, sys.stdout.buffer)
    elif output is Format.csv:
        import pyarrow.csv as pacsv

        pacsv.write_csv(_without_nesting(result), sys.stdout.buffer)
    elif output is Format.json:
        print_json(result.to_pylist())
    else:
        columns = [
            (field.name, str(field.type).startswith(("int", "uint", "float", "double", "decimal")))
            for field in result.schema
        ]
        _print_table(columns, ([_cell(value) for value in row.values()] for row in result.to_pylist()))


def print_metrics(run_uri: str, kind: str) -> None:
    """Print the metrics of a whole run as a table, methods in the order of reports."""
    from biaseval.analysis import query
    from biaseval.report.methods import METHODS

    print_result(query([run_uri], _OVER_ALL[kind].format(methods=list(METHODS))), Format.table)


def print_status(status: Any) -> bool:
    """Print how far a run is, and return whether it is complete."""
    is_complete: bool = status.n_parts_done == status.n_parts
    if status.kind == "instruct":
        typer.echo(f"steps   {status.n_rows_done:,} of {status.n_rows:,} made")
        typer.echo(f"result  {'complete' if is_complete else 'not yet'}")
    else:
        if status.n_adapters:
            typer.echo(f"adapters {status.n_adapters_done:,} of {status.n_adapters:,} trained")
        typer.echo(f"parts   {status.n_parts_done:,} of {status.n_parts:,} scored")
        typer.echo(f"rows    {status.n_rows_done:,} of {status.n_rows:,} scored")
    if status.kind not in ("score", "instruct"):
        typer.echo(f"marts   {'complete' if status.has_marts else 'not yet'}")
        typer.echo(f"report  {'complete' if status.has_report else 'not yet'}")
        is_complete = is_complete and status.has_marts and status.has_report
    return is_complete


def print_tasks(checked: Any) -> None:
    """Print which task files are usable, and why others are not."""
    for name, reason in checked.left_out.items():
        typer.echo(f"left out  {name}: {reason}")
    for name, problems in checked.bad.items():
        for problem in problems:
            typer.echo(f"bad       {name}: {problem}")
    typer.echo(f"{len(checked.usable)} usable, {len(checked.left_out)} left out, {len(checked.bad)} bad")


def print_plan(plan: Any, model: Mapping[str, Any], training: Any) -> None:
    """Print what a run of a causal LM would score, and what training its adapters would cost, if it has any."""
    flops = 2 * model["n_parameters"] * plan.tokens
    saved = plan.tokens_unshared / max(plan.tokens, 1)
    lines = [
        ("tasks", f"{plan.n_tasks:,}"),
        *([] if plan.n_settings is None else [("settings", f"{plan.n_settings:,}")]),
        ("prompts", f"{plan.n_prompts:,}"),
    ]
    if plan.n_settings is None:
        lines += [
            ("with fewer demonstrations", f"{plan.n_shortened:,} (prompt.max_tokens)"),
            ("cut at their end", f"{plan.n_cut:,} (prompt.max_tokens)"),
        ]
    lines += [
        ("label scores", f"{plan.n_scores:,}"),
        ("tokens, shared prefixes", f"{plan.tokens:,}"),
        ("tokens, one text a label", f"{plan.tokens_unshared:,} ({saved:.1f} times as many)"),
        ("parameters", f"{model['n_parameters']:,} ({model['family']})"),
        ("FLOPs", f"{flops:.3g}"),
        ("GPU-hours at 100 TFLOP/s", _gpu_hours(flops)),
    ]
    _print_lines(lines)
    for name, reason in plan.left_out.items():
        typer.echo(f"left out: {name}: {reason}")
    _print_notes(plan.notes)
    if training is not None:
        _print_lines(
            [
                ("adapters to train", f"{training.n_adapters:,}"),
                ("optimizer steps", f"{training.n_steps:,}"),
                ("tokens of training rows", f"{training.tokens:,} (longest row {training.longest:,})"),
                ("training FLOPs", f"{training.flops:.3g}"),
                ("GPU-hours at 100 TFLOP/s", _gpu_hours(training.flops)),
            ]
        )
        _print_memory(training)


def print_instruct_plan(plan: Any) -> None:
    """Print what a model would be tuned on, and what that would cost."""
    packed = "one conversation each" if plan.n_rows == plan.n_conversations else f"of {plan.cost.row_tokens:,} tokens"
    _print_lines(
        [
            ("conversations", f"{plan.n_conversations:,} ({plan.n_held_out:,} more held out)"),
            ("tokens", f"{plan.n_tokens:,} (longest conversation {plan.longest:,})"),
            ("answer tokens", f"{plan.n_answer_tokens:,}, which the loss is of"),
            ("rows of an epoch", f"{plan.n_rows:,}, {packed}"),
            ("optimizer steps", f"{plan.n_steps:,}"),
            ("training FLOPs", f"{plan.cost.flops:.3g}"),
            ("GPU-hours at 100 TFLOP/s", _gpu_hours(plan.cost.flops)),
        ]
    )
    _print_notes(plan.notes)
    if plan.why_not_packed is not None:
        _print_notes([f"rows are not packed: {plan.why_not_packed}"])
    _print_memory(plan.cost)


def print_questions_plan(plan: Any) -> None:
    """Print which questions models would answer, and what that would cost."""
    lines = [(f"questions, {name}", f"{n_questions:,}") for name, n_questions in plan.datasets.items()]
    for model in plan.models:
        answered = f"{model.n_questions:,} questions"
        if model.n_parameters is None:
            lines.append((f"model {model.name}", f"predictions for {answered}"))
            continue
        facts = [answered, f"{model.n_parameters:,} parameters"]
        if model.tokens is not None:
            flops = 2 * model.n_parameters * model.tokens
            facts += [f"{model.n_windows:,} windows", f"{model.tokens:,} tokens", f"{flops:.3g} FLOPs"]
        lines.append((f"model {model.name}", ", ".join(facts)))
    _print_lines(lines)
    _print_notes(plan.notes)


def print_trained(summary: Any) -> None:
    """Print what came of training adapters."""
    lines = [
        ("adapters", f"{summary.n_adapters:,} of {summary.n_planned:,} ({summary.n_trained:,} trained now)"),
        ("steps", f"{summary.n_steps:,}"),
    ]
    if summary.first_loss is not None:
        lines.append(("loss, first to last step", f"{summary.first_loss:.4f} to {summary.last_loss:.4f}"))
    if summary.overhead_share is not None:
        lines += [
            ("seconds", f"{summary.seconds:,.1f}"),
            ("outside optimizer steps", f"{summary.overhead_share:.1%} of them"),
        ]
    _print_lines(lines)
    typer.echo(f"adapters: {summary.uri}/adapters")


def print_tuned(summary: Any) -> None:
    """Print what came of tuning a model."""
    lines = [
        ("steps", f"{summary.n_steps:,} ({summary.n_made:,} made now)"),
        ("loss, first to last step", f"{summary.first_loss:.4f} to {summary.last_loss:.4f}"),
    ]
    if summary.eval_losses:
        lines.append(("held-out loss, by epoch", ", ".join(f"{loss:.4f}" for loss in summary.eval_losses)))
    if summary.n_made:
        lines.append(("seconds", f"{summary.seconds:,.1f}"))
    _print_lines(lines)
    typer.echo(f"{summary.folder}: {summary.uri}/{summary.folder}")


def _print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print names and values, values below each other; a name that is too long is followed by its value."""
    for name, value in lines:
        typer.echo(f"{name:26} {value}")


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}")


def _gpu_hours(flops: float) -> str:
    hours = flops / 1e14 / 3600
    return f"{hours:.3g}" if hours >= 0.01 else "under 0.01"


def _print_memory(cost: Any) -> None:
    """Print what a worker needs, by model and ZeRO stage."""
    names = ["weights", "adapter", "gradients", "optimizer", "activations", "total"]
    if any(memory.offloaded for by_stage in cost.memory for memory in by_stage.values()):
        names.append("offloaded")
    columns = [(name, name != "model") for name in ("model", "trainable", "ZeRO", *names, "GPUs of 80 GiB needed")]
    rows = []
    for shape, n_trainable, by_stage, gpus in zip(cost.shapes, cost.n_trainable, cost.memory, cost.gpus, strict=True):
        for number, (stage, memory) in enumerate(by_stage.items()):
            head = ["", "", stage] if number else [shape.name, f"{n_trainable:,}", stage]
            values = [f"{getattr(memory, name) / 2**30:.2f}" for name in names]
            rows.append([*head, *values, "" if number else str(gpus or "more than 64")])
    _print_table(columns, rows, title="memory of one worker while it trains, GiB, about")


def _print_table(columns: Iterable[tuple[str, bool]], rows: Iterable[list[str]], title: str | None = None) -> None:
    """Print rows of text below (name, whether it holds numbers) of each column."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for name, is_number in columns:
        table.add_column(Text(name), justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    # Off a terminal nothing may be cut: a table is as wide as its cells.
    Console(highlight=False, width=None if sys.stdout.isatty() else 10_000).print(table)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: sums as numbers, what is not finite as null, dates as text."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _without_nesting(result: Any) -> Any:
    """Return the table with nested columns as JSON text, which CSV can hold."""
    import pyarrow as pa

    for index, field in enumerate(result.schema):
        if pa.types.is_nested(field.type):
            texts = [
                None if v is None else json.dumps(_plain(v), ensure_ascii=False) for v in result[index].to_pylist()
            ]
            result = result.set_column(index, field.name, pa.array(texts, pa.string()))
    return result
