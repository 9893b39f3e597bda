"""The command line: parses, calls one function, prints one result.

Results go to standard output, chatter to standard error.

Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 130 interrupted (run the same command again to resume).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from biaseval.errors import BiasevalError, InputError
from biaseval.progress import say
from biaseval.spec import MIN_INSTANCES, InstructSpec, QaBiasSpec

app = typer.Typer(
    help="Measure biases of language models (labels, majority labels, QA shortcuts): every number a SQL query.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
tasks_app = typer.Typer(help="Work with task files.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")
train_app = typer.Typer(help="Train adapters and models.", no_args_is_help=True)
app.add_typer(train_app, name="train")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"biaseval {version('biaseval')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hold what comes before a command."""


SpecArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec: a YAML file that says what to measure.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the spec, e.g. tasks.max_eval=100; repeatable."),
]
RunDirOption = Annotated[
    str | None, typer.Option("--run-dir", metavar="DIR", help="Where the run lies; runs/NAME if left out.")
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, local or s3://.")]
RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN...", help="Run directories, local or s3://.")]


class Format(StrEnum):
    """How `sql` prints its result."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


@app.command()
def run(
    spec: SpecArgument,
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
) -> None:
    """Plan, score, analyse and report what a spec asks for. Run it again to resume: only what is missing is computed.

    Example: biaseval run jobs/specs/quickstart.yaml --run-dir runs/quickstart --set tasks.max_eval=100
    """
    _run(spec, run_dir, overrides or ())


@app.command()
def plan(spec: SpecArgument, overrides: SetOption = None) -> None:
    """Say what a spec would run: tasks or questions, prompts, tokens with and without shared prefixes, GPU-hours.

    With a section lora, and of a spec of the kind instruct, what training needs: steps, time, memory by ZeRO stage,
    GPUs.

    Loads no weights and writes nothing.

    Example: biaseval plan jobs/specs/mistral-7b.yaml
    """
    from biaseval.pipelines import summarize_instruct, summarize_plan, summarize_questions
    from biaseval.spec import load_spec

    loaded = load_spec(spec, overrides or ())
    if isinstance(loaded, QaBiasSpec):
        _print_questions_plan(summarize_questions(loaded))
        return
    if isinstance(loaded, InstructSpec):
        _print_instruct_plan(summarize_instruct(loaded))
        return
    summary, facts, training = summarize_plan(loaded)
    _print_plan(summary, facts)
    if training is not None:
        _print_training_cost(training)


@app.command()
def score(
    model: Annotated[str, typer.Option("--model", metavar="M", help="A local model directory or Hugging Face name.")],
    prompts: Annotated[
        Path,
        typer.Option("--prompts", metavar="FILE", help="Parquet or JSONL with prompt_id, text and labels (a list)."),
    ],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Where label_scores/part-*.parquet go.")],
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or float16.")] = "float32",
    adapter: Annotated[str | None, typer.Option("--adapter", help="A PEFT adapter for the model.")] = None,
    quantization: Annotated[str | None, typer.Option("--quantization", help="8bit or 4bit (CUDA).")] = None,
    revision: Annotated[str | None, typer.Option("--revision", help="Of a Hugging Face model.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus-per-actor", help="GPUs that share one model.")] = None,
) -> None:
    """Score labels after any prompts: the log-probability of each token of each label, and of EOS.

    Example: biaseval score --model models/tiny --prompts prompts.jsonl --out scores
    """
    from pydantic import ValidationError

    from biaseval.pipelines import score_prompts
    from biaseval.spec import ExecutionSpec, ModelSpec

    content = {"path": _model_path(model), "dtype": dtype, "quantization": quantization, "revision": revision}
    content["adapter"] = None if adapter is None else _model_path(adapter)
    try:
        spec = ModelSpec.model_validate(content)
        execution = ExecutionSpec(gpus_per_actor="auto" if gpus is None else gpus)
    except ValidationError as error:
        problems = [f"--{detail['loc'][0]}: {detail['msg']}, found {detail['input']!r}" for detail in error.errors()]
        raise InputError.of(problems) from error
    with _resumable():
        finished = score_prompts(spec, execution, prompts, out)
    typer.echo(f"scores: {finished.uri}/label_scores")


@app.command()
def status(run: RunArgument) -> None:
    """Say how far a run is, from its directory alone; works from any machine, also while the run goes on.

    Example: biaseval status runs/quickstart
    """
    from biaseval.pipelines import run_status

    found = run_status(run)
    is_complete = found.n_parts_done == found.n_parts
    if found.kind == "instruct":
        typer.echo(f"steps   {found.n_rows_done:,} of {found.n_rows:,} made")
        typer.echo(f"result  {'complete' if is_complete else 'not yet'}")
    else:
        if found.n_adapters:
            typer.echo(f"adapters {found.n_adapters_done:,} of {found.n_adapters:,} trained")
        typer.echo(f"parts   {found.n_parts_done:,} of {found.n_parts:,} scored")
        typer.echo(f"rows    {found.n_rows_done:,} of {found.n_rows:,} scored")
    if found.kind not in ("score", "instruct"):
        typer.echo(f"marts   {'complete' if found.has_marts else 'not yet'}")
        typer.echo(f"report  {'complete' if found.has_report else 'not yet'}")
        is_complete = is_complete and found.has_marts and found.has_report
    if not is_complete:
        say("run the same command again to go on")


@app.command()
def sql(
    arguments: Annotated[
        list[str], typer.Argument(metavar="RUN... QUERY", help="One or more run directories, then the query.")
    ],
    output: Annotated[Format, typer.Option("--format", help="json is one array of objects.")] = Format.table,
) -> None:
    """Ask DuckDB about one or many runs: every table and mart is a view; several runs get a column `run`.

    Example: biaseval sql runs/quickstart "from label_bias_by_model order by n_demos, method" --format csv
    """
    from biaseval.analysis import query

    if len(arguments) < 2:
        raise InputError('sql: give a run directory and a query, for example biaseval sql runs/x "from tasks"')
    *runs, question = arguments
    result = query(runs, question)
    _print_result(result, output)


@app.command()
def report(
    runs: RunsArgument,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="One .html page over several majority-bias runs, instead."),
    ] = None,
) -> None:
    """Compute the metrics of finished runs anew and write their report.html; or, with --out, one page over all of them.

    Example: biaseval report runs/boolq-7b runs/boolq-13b runs/rte-7b runs/rte-13b --out majority.html
    """
    from biaseval.analysis import build_marts
    from biaseval.report import write_comparison, write_report
    from biaseval.store import absolute_uri

    if out is not None:
        typer.echo(f"report: {write_comparison(runs, out)}")
        return
    for directory in runs:
        build_marts(directory)
    write_report(runs)
    for directory in runs:
        typer.echo(f"report: {absolute_uri(directory)}/report.html")


@app.command()
def demo(
    run_dir: Annotated[str, typer.Option("--run-dir", metavar="DIR", help="Where the run lies.")] = "runs/demo",
) -> None:
    """Run the quickstart: a bundled tiny model on generated tasks, from prompts to report, in about a minute.

    Example: biaseval demo
    """
    from biaseval.demo import SPEC_PATH

    _run(SPEC_PATH, run_dir, ())


@tasks_app.command("check")
def tasks_check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder of task files, or one file.")],
    min_instances: Annotated[int, typer.Option("--min-instances", help="Fewer make a task unusable.")] = MIN_INSTANCES,
) -> None:
    """Validate task files: say which are usable, which a run would leave out and why, and all that is wrong.

    Exit code 2 if a file is bad.

    Example: biaseval tasks check natural-instructions/tasks
    """
    from biaseval.label_bias.tasks import check_tasks

    checked = check_tasks(path, min_instances=min_instances)
    for name, reason in checked.left_out.items():
        typer.echo(f"left out  {name}: {reason}")
    for name, problems in checked.bad.items():
        for problem in problems:
            typer.echo(f"bad       {name}: {problem}")
    typer.echo(f"{len(checked.usable)} usable, {len(checked.left_out)} left out, {len(checked.bad)} bad")
    if checked.bad:
        raise typer.Exit(2)


@train_app.command("lora")
def train_lora(
    spec: SpecArgument,
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
) -> None:
    """Train one LoRA adapter for each context of a run, as the section lora of its spec says.

    Contexts are (task, number of demonstrations, set) of label bias, (setting, seed, instruction) of majority bias.

    They go to RUN/adapters in PEFT's layout, their steps to the table training. Run it again to resume: only what is
    missing is trained.

    Example: biaseval train lora jobs/specs/mistral-7b.yaml --run-dir runs/lora --set lora.preset=reif2024
    """
    from biaseval.pipelines import refuse_stopped, train_lora
    from biaseval.spec import load_spec

    loaded = load_spec(spec, overrides or ())
    with _resumable():
        summary = train_lora(loaded, run_dir or f"runs/{loaded.name}")
    _print_training(summary)
    refuse_stopped(summary)


@train_app.command("instruct")
def train_instruct(
    spec: SpecArgument,
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
) -> None:
    """Tune a model on conversations (OASST1, Alpaca, Dolly, chat messages): all its parameters, or a LoRA adapter.

    The result is RUN/model, to be named by model.path, or RUN/adapter, by model.adapter; its steps are the table
    training. Run it again to resume behind the last checkpoint.

    Example: biaseval train instruct jobs/specs/instruct-oasst-7b.yaml --run-dir runs/oasst --set training.workers=4
    """
    from biaseval.pipelines import train_instruct
    from biaseval.spec import load_spec

    loaded = load_spec(spec, overrides or ())
    with _resumable():
        _print_tuned(train_instruct(loaded, run_dir or f"runs/{loaded.name}"))


def main() -> None:
    """Run the command line; our own errors become one message and an exit code."""
    try:
        app()
    except BiasevalError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)


def _run(spec: Path, run_dir: str | None, overrides: Sequence[str]) -> None:
    from biaseval.pipelines import run_spec
    from biaseval.spec import load_spec

    loaded = load_spec(spec, overrides)
    with _resumable():
        finished = run_spec(loaded, run_dir or f"runs/{loaded.name}")
    _print_metrics(finished.uri, _OVER_ALL[loaded.kind])
    typer.echo(f"report: {finished.uri}/report.html")


@contextmanager
def _resumable() -> Iterator[None]:
    """Say, when a person interrupts, that nothing complete is lost."""
    try:
        yield
    except KeyboardInterrupt:
        say("interrupted; complete parts are kept, run the same command again to resume")
        raise


def _model_path(name: str) -> str:
    """Return an absolute path for a local directory, and a Hugging Face name as it is."""
    local = Path(name).expanduser()
    return str(local.resolve()) if local.exists() else name


def _print_plan(summary: Any, facts: dict[str, Any]) -> None:
    flops = 2 * facts["n_parameters"] * summary.tokens
    saved = summary.tokens_unshared / max(summary.tokens, 1)
    lines = [
        ("tasks", f"{summary.n_tasks:,}"),
        *([] if summary.n_settings is None else [("settings", f"{summary.n_settings:,}")]),
        ("prompts", f"{summary.n_prompts:,}"),
    ]
    if summary.n_settings is None:
        lines += [
            ("with fewer demonstrations", f"{summary.n_shortened:,} (prompt.max_tokens)"),
            ("cut at their end", f"{summary.n_cut:,} (prompt.max_tokens)"),
        ]
    lines += [
        ("label scores", f"{summary.n_scores:,}"),
        ("tokens, shared prefixes", f"{summary.tokens:,}"),
        ("tokens, one text a label", f"{summary.tokens_unshared:,} ({saved:.1f} times as many)"),
        ("parameters", f"{facts['n_parameters']:,} ({facts['family']})"),
        ("FLOPs", f"{flops:.3g}"),
        ("GPU-hours at 100 TFLOP/s", f"{hours:.3g}" if (hours := flops / 1e14 / 3600) >= 0.01 else "under 0.01"),
    ]
    for name, value in lines:
        typer.echo(f"{name:27}{value}")
    for name, reason in summary.left_out.items():
        typer.echo(f"left out: {name}: {reason}")
    for note in summary.notes:
        typer.echo(f"note: {note}")


def _print_training(summary: Any) -> None:
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
    for name, value in lines:
        typer.echo(f"{name:27}{value}")
    typer.echo(f"adapters: {summary.uri}/adapters")


def _print_tuned(summary: Any) -> None:
    lines = [
        ("steps", f"{summary.n_steps:,} ({summary.n_made:,} made now)"),
        ("loss, first to last step", f"{summary.first_loss:.4f} to {summary.last_loss:.4f}"),
    ]
    if summary.eval_losses:
        lines.append(("held-out loss, by epoch", ", ".join(f"{loss:.4f}" for loss in summary.eval_losses)))
    if summary.n_made:
        lines.append(("seconds", f"{summary.seconds:,.1f}"))
    for name, value in lines:
        typer.echo(f"{name:27}{value}")
    typer.echo(f"{summary.folder}: {summary.uri}/{summary.folder}")


def _print_instruct_plan(plan: Any) -> None:
    hours = plan.cost.flops / 1e14 / 3600
    packed = "one conversation each" if plan.n_rows == plan.n_conversations else f"of {plan.cost.row_tokens:,} tokens"
    lines = [
        ("conversations", f"{plan.n_conversations:,} ({plan.n_held_out:,} more held out)"),
        ("tokens", f"{plan.n_tokens:,} (longest conversation {plan.longest:,})"),
        ("answer tokens", f"{plan.n_answer_tokens:,}, which the loss is of"),
        ("rows of an epoch", f"{plan.n_rows:,}, {packed}"),
        ("optimizer steps", f"{plan.n_steps:,}"),
        ("training FLOPs", f"{plan.cost.flops:.3g}"),
        ("GPU-hours at 100 TFLOP/s", f"{hours:.3g}" if hours >= 0.01 else "under 0.01"),
    ]
    for name, value in lines:
        typer.echo(f"{name:27}{value}")
    for note in plan.notes:
        typer.echo(f"note: {note}")
    if plan.why_not_packed is not None:
        typer.echo(f"note: rows are not packed: {plan.why_not_packed}")
    _print_memory(plan.cost)


def _print_training_cost(cost: Any) -> None:
    hours = cost.flops / 1e14 / 3600
    lines = [
        ("adapters to train", f"{cost.n_adapters:,}"),
        ("optimizer steps", f"{cost.n_steps:,}"),
        ("tokens of training rows", f"{cost.tokens:,} (longest row {cost.longest:,})"),
        ("training FLOPs", f"{cost.flops:.3g}"),
        ("GPU-hours at 100 TFLOP/s", f"{hours:.3g}" if hours >= 0.01 else "under 0.01"),
    ]
    for name, value in lines:
        typer.echo(f"{name:27}{value}")
    _print_memory(cost)


def _print_memory(cost: Any) -> None:
    """Print what a worker needs, by model and ZeRO stage."""
    table = Table(title="memory of one worker while it trains, GiB, about", title_justify="left")
    names = ["weights", "adapter", "gradients", "optimizer", "activations", "total"]
    if any(memory.offloaded for by_stage in cost.memory for memory in by_stage.values()):
        names.append("offloaded")
    for name in ("model", "trainable", "ZeRO", *names, "GPUs of 80 GiB needed"):
        table.add_column(Text(name), justify="left" if name == "model" else "right")
    for shape, n_trainable, by_stage, gpus in zip(cost.shapes, cost.n_trainable, cost.memory, cost.gpus, strict=True):
        for number, (stage, memory) in enumerate(by_stage.items()):
            head = ["", "", stage] if number else [shape.name, f"{n_trainable:,}", stage]
            values = [f"{getattr(memory, name) / 2**30:.2f}" for name in names]
            needed = "" if number else str(gpus or "more than 64")
            table.add_row(*map(Text, (*head, *values, needed)))
    Console(highlight=False, width=None if sys.stdout.isatty() else 10_000).print(table)


def _print_questions_plan(plan: Any) -> None:
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
    for name, value in lines:
        typer.echo(f"{name:27} {value}")
    for note in plan.notes:
        typer.echo(f"note: {note}")


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


def _print_metrics(run_uri: str, over_all: str) -> None:
    """Print the metrics of a whole run as a table, methods in the order of reports."""
    from biaseval.analysis import query
    from biaseval.report.methods import METHODS

    _print_result(query([run_uri], over_all.format(methods=list(METHODS))), Format.table)


def _print_result(result: Any, output: Format) -> None:
    if output is Format.parquet:
        import pyarrow.parquet as pq

        pq.write_table(result, sys.stdout.buffer)
    elif output is Format.csv:
        import pyarrow.csv as pacsv

        pacsv.write_csv(_printable(result), sys.stdout.buffer)
    elif output is Format.json:
        rows = [{name: _plain(value) for name, value in row.items()} for row in result.to_pylist()]
        sys.stdout.write(json.dumps(rows, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        table = Table()
        for field in result.schema:
            is_number = str(field.type).startswith(("int", "uint", "float", "double", "decimal"))
            table.add_column(Text(field.name), justify="right" if is_number else "left")
        for row in result.to_pylist():
            table.add_row(*(Text(_cell(value)) for value in row.values()))
        # Off a terminal nothing may be cut: a table is as wide as its cells.
        Console(highlight=False, width=None if sys.stdout.isatty() else 10_000).print(table)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: sums as numbers, what is not finite as null, dates as text."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _printable(result: Any) -> Any:
    """Return the table with nested columns as JSON text, which CSV can hold."""
    import pyarrow as pa

    for index, field in enumerate(result.schema):
        if pa.types.is_nested(field.type):
            texts = [
                None if v is None else json.dumps(_plain(v), ensure_ascii=False) for v in result[index].to_pylist()
            ]
            result = result.set_column(index, field.name, pa.array(texts, pa.string()))
    return result


if __name__ == "__main__":
    main()
