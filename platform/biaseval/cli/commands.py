"""The commands: each parses, calls one function, prints one result.

Results go to standard output, chatter to standard error.

Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 130 interrupted (run the same command again to resume).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from biaseval.cli.printing import (
    Format,
    print_comparison,
    print_json,
    print_lines,
    print_metrics,
    print_plan,
    print_result,
    print_status,
    print_tasks,
)
from biaseval.errors import BiasevalError, InputError
from biaseval.progress import say

if TYPE_CHECKING:
    from biaseval.pipelines import Trained
    from biaseval.spec import Spec

NOT_YET: Mapping[str, str] = {
    "init": "README.md shows a spec to begin with",
    "doctor": "biaseval plan SPEC says what is wrong with a spec, its files and its model",
    "analyse": "biaseval sql RUN QUERY asks anything of what is stored",
    "check": "biaseval sql RUN QUERY --format json gives the numbers to check",
    "import lm-eval": "biaseval score scores prompts anew",
    "figures": "biaseval report RUN writes RUN/figures",
}
"""The commands that are to come, and what there is in their place."""


class Demo(StrEnum):
    """What the quickstart shows."""

    labels = "labels"
    qa = "qa"


class _Commands(TyperGroup):
    """The commands; one that is to come says so, and is not taken for another that was mistyped."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that ``args`` begin with, and its arguments."""
        for name, instead in NOT_YET.items():
            words = name.split()
            is_named = args[: len(words)] == words or (args[0] == words[0] and args[0] not in self.commands)
            if is_named and not ctx.resilient_parsing:
                raise InputError(f"biaseval {name} is not part of this version; {instead}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    help="Measure biases of language models (labels, majority labels, QA shortcuts): every number a SQL query.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage or bad input, 130 interrupted (run it again to resume).",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
tasks_app = typer.Typer(help="Check task files.", no_args_is_help=True)
app.add_typer(tasks_app, name="tasks")
train_app = typer.Typer(help="Train adapters and models.", no_args_is_help=True)
app.add_typer(train_app, name="train")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

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
TrainingArgument = Annotated[Path, typer.Argument(metavar="SPEC", help="A spec: a YAML file that says what to train.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key of the spec, e.g. tasks.max_eval=100; the value is YAML; repeatable.",
    ),
]
RunDirOption = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="The run's directory, local or s3://; if left out, runs/NAME with the spec's name.",
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run directory, local or s3://.")]
RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN", help="Run directories, local or s3://.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")]


@app.command()
def run(
    spec: SpecArgument,
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
) -> None:
    """Plan, score, analyse and report what a spec asks for. Run it again to resume: only what is missing is computed.

    The key kind of the spec says what is measured: label_bias, majority_bias or qa_bias.

    Example: biaseval run jobs/specs/quickstart.yaml --run-dir runs/quickstart --set tasks.max_eval=100
    """
    _make(_load(spec, overrides), run_dir)


@app.command()
def tune(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec of the kind search: which keys, and for what.")],
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
) -> None:
    """Search keys of another spec for what a query returns. Run it again to resume: trials that ended are kept.

    Every trial is a row of the table trials, and those that run a model are runs in RUN/trials. RUN/best.yaml is the
    chosen spec, ready for `biaseval run`; where one is chosen for each task or model, ask the mart search_best.

    Example: biaseval tune jobs/specs/search-planted-mixin.yaml --run-dir runs/mixin --set trials=8 --set spec.seed=7
    """
    from biaseval.spec import SearchSpec

    loaded = _load(spec, overrides)
    if not isinstance(loaded, SearchSpec):
        raise InputError(f"{spec}: is of the kind {loaded.kind}; biaseval tune takes a search, biaseval run the others")
    _make(loaded, run_dir)


@app.command()
def plan(spec: SpecArgument, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Say what a spec would run: tasks or questions, prompts, tokens with and without shared prefixes, GPU-hours.

    Where it would train (a section lora, or the kind instruct), also the steps, time, memory and GPUs of training.

    Checks all that a run would read; loads no weights and writes nothing.

    Example: biaseval plan jobs/specs/mistral-7b.yaml
    """
    from biaseval.pipelines import describe

    loaded = _load(spec, overrides)
    found = describe(loaded)
    if as_json:
        print_json({"kind": loaded.kind, "name": loaded.name, "plan": found.facts, "training": found.training})
    else:
        print_plan(found)


@app.command()
def score(
    model: Annotated[str, typer.Option("--model", metavar="M", help="A local model directory or Hugging Face name.")],
    prompts: Annotated[
        Path,
        typer.Option("--prompts", metavar="FILE", help="Parquet or JSONL with prompt_id, text and labels (a list)."),
    ],
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="Where label_scores/part-*.parquet go.")],
    dtype: Annotated[
        str, typer.Option("--dtype", help="What the model computes in: float32, bfloat16 or float16.")
    ] = "float32",
    adapter: Annotated[
        str | None, typer.Option("--adapter", metavar="DIR", help="A PEFT adapter to put on the model.")
    ] = None,
    quantization: Annotated[
        str | None, typer.Option("--quantization", help="Load the weights as 8bit or 4bit (CUDA).")
    ] = None,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Branch, tag or commit of a Hugging Face name.")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(
            "--gpus-per-actor", help="GPUs that share one copy of the model; if left out, 1 where there is one."
        ),
    ] = None,
) -> None:
    """Score labels after any prompts: the log-probability of each token of each label, and of the end of the text.

    Run it again to resume: only what is missing is scored.

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
def status(run: RunArgument, as_json: JsonOption = False) -> None:
    """Say how far a run is, from its directory alone; works from any machine, also while the run goes on.

    Example: biaseval status runs/quickstart
    """
    from biaseval.pipelines import run_status

    found = run_status(run)
    if as_json:
        print_json(found)
        return
    print_status(found)
    if not found.is_complete:
        say("run the same command again to go on")


@app.command()
def sql(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="RUN... QUERY", help="Run directories, local or s3://, then one statement that reads."),
    ],
    output: Annotated[Format, typer.Option("--format", help="json is one array of objects.")] = Format.table,
) -> None:
    """Ask DuckDB about one or many runs: every table and mart is a view; several runs get a column `run`.

    The query "show tables" lists the views, "describe NAME" the columns of one.

    Example: biaseval sql runs/quickstart "from label_bias_by_model order by n_demos, method" --format csv
    """
    from biaseval.analysis import query

    if len(arguments) < 2:
        raise InputError('sql: give a run directory and a query, for example biaseval sql runs/x "from tasks"')
    *runs, question = arguments
    print_result(query(runs, question), output)


@app.command()
def report(
    runs: RunsArgument,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="One .html page over several runs of one kind, instead."),
    ] = None,
) -> None:
    """Compute the metrics of finished runs anew and write their report.html; or, with --out, one page over all of them.

    Loads no model. Needed where a run was moved (results.duckdb holds paths), or a newer version has more metrics.

    Example: biaseval report runs/boolq-7b runs/boolq-13b runs/rte-7b runs/rte-13b --out majority.html
    """
    if out is not None:
        from biaseval.report import write_comparison

        typer.echo(f"report: {write_comparison(runs, out)}")
        return
    from biaseval.pipelines import report_run

    for directory in runs:
        typer.echo(f"report: {report_run(directory).uri}/report.html")


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN RUN...", help="Runs of one kind; the others are compared with the first."),
    ],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write an .html page too, with figures and rows.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether models differ: each run against the first, on exactly what both share, with a verdict per metric.

    Paired by task, by row or by article of questions, simultaneous over methods and metrics. Says what the runs do not
    share (data, seeds, demonstrations, scoring, versions), and refuses where nothing can be compared. Loads no model.

    Example: biaseval compare runs/mistral-7b runs/llama-8b --out compared.html
    """
    from biaseval.analysis.comparing import compare_runs
    from biaseval.report.compare_page import refuse_other_names, write_page

    if out is not None:
        refuse_other_names(out)
    compared = compare_runs(runs)
    if as_json:
        print_json(compared)
    else:
        print_comparison(compared)
    if out is not None:
        page = write_page(compared, runs, out)
        if as_json:
            say(f"page: {page}")
        else:
            typer.echo(f"page: {page}")


@app.command()
def demo(
    what: Annotated[
        Demo, typer.Argument(help="labels: a tiny language model on generated tasks; qa: a reader with a shortcut.")
    ] = Demo.labels,
    run_dir: Annotated[
        str | None,
        typer.Option(
            "--run-dir", metavar="DIR", help="The run's directory, local or s3://; left out, runs/demo or runs/demo-qa."
        ),
    ] = None,
) -> None:
    """Run the quickstart, from data to report: label bias in about a minute, qa in about five on two cores.

    qa plants a shortcut in generated questions, fine-tunes a bundled tiny reader on them, as it is and against the
    shortcut, and measures on questions without it what the readers rely on.

    Example: biaseval demo qa
    """
    from biaseval.demo import QA_SPEC_PATH, SPEC_PATH

    if what is Demo.qa:
        _make(_load(QA_SPEC_PATH, ()), run_dir or "runs/demo-qa")
    else:
        _make(_load(SPEC_PATH, ()), run_dir or "runs/demo")


@tasks_app.command("check")
def tasks_check(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A folder of task files, or one file.")],
    min_instances: Annotated[
        int | None,
        typer.Option("--min-instances", help="Instances that a task must have; 396, as in the paper, if not given."),
    ] = None,
) -> None:
    """Validate task files: say which are usable, which a run would leave out and why, and all that is wrong.

    Exit code 2 if a file is bad.

    Example: biaseval tasks check natural-instructions/tasks
    """
    from biaseval.label_bias.tasks import check_tasks
    from biaseval.spec import MIN_INSTANCES

    checked = check_tasks(path, min_instances=MIN_INSTANCES if min_instances is None else min_instances)
    print_tasks(checked)
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

    Adapters go to RUN/adapters in PEFT's layout, their steps to the table training. Run it again to resume: only
    what is missing is trained; `biaseval run` on the same directory scores with them.

    Example: biaseval train lora jobs/specs/mistral-7b.yaml --run-dir runs/lora --set lora.preset=reif2024
    """
    from biaseval.pipelines import train_lora

    _train(train_lora, spec, run_dir, overrides)


@train_app.command("instruct")
def train_instruct(
    spec: TrainingArgument,
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
) -> None:
    """Tune a model on conversations (OASST1, Alpaca, Dolly, chat messages): all its parameters, or a LoRA adapter.

    The result is RUN/model, to be named by model.path, or RUN/adapter, by model.adapter; its steps are the table
    training. Run it again to resume behind the last checkpoint.

    Example: biaseval train instruct jobs/specs/instruct-oasst-7b.yaml --run-dir runs/oasst --set training.workers=4
    """
    from biaseval.pipelines import train_instruct

    _train(train_instruct, spec, run_dir, overrides)


@train_app.command("qa")
def train_qa(
    spec: SpecArgument,
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
) -> None:
    """Train the readers of a QA-bias run, as the section train of its spec says: standard ones, and against shortcuts.

    Models go to RUN/models in Hugging Face's layout, what they are to the table trained_models, steps to training, how
    they do on the way to evaluations. Run it again to resume: each goes on behind its last checkpoint; `biaseval run`
    on the same directory then measures them.

    Example: biaseval train qa jobs/specs/qa-debiasing-squad.yaml --run-dir runs/debiasing --set train.seeds=[1,2,3]
    """
    from biaseval.pipelines import train_qa

    _train(train_qa, spec, run_dir, overrides)


def main() -> None:
    """Run the command line; our own errors become one message and an exit code."""
    try:
        app()
    except BiasevalError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)


def _make(loaded: Spec, run_dir: str | None) -> None:
    from biaseval.pipelines import headline, run_spec

    with _resumable():
        finished = run_spec(loaded, run_dir or f"runs/{loaded.name}")
    print_metrics(finished.uri, headline(loaded))
    typer.echo(f"report: {finished.uri}/report.html")


def _train(
    train: Callable[[Spec, str], Trained], spec: Path, run_dir: str | None, overrides: Sequence[str] | None
) -> None:
    loaded = _load(spec, overrides)
    with _resumable():
        trained = train(loaded, run_dir or f"runs/{loaded.name}")
    print_lines(trained.lines)
    typer.echo(f"{trained.folder}: {trained.uri}/{trained.folder}")
    trained.refuse_given_up()


def _load(spec: Path, overrides: Sequence[str] | None) -> Spec:
    from biaseval.spec import load_spec

    return load_spec(spec, overrides or ())


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
