"""Commands that make runs and plans."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from biaseval.cli.arguments import JsonOption, RunDirOption, RunsArgument, SetOption, SpecArgument, load, resumable
from biaseval.cli.printing import print_json, print_plans, say_files, say_made, show_finished
from biaseval.errors import BiasevalError, InputError

if TYPE_CHECKING:
    from biaseval.spec import Spec


def run(
    spec: SpecArgument, run_dir: RunDirOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Plan, score, analyse and report the run of a spec. The same command resumes a run that was interrupted.

    The key kind of the spec names the measurement: label_bias, majority_bias or qa_bias. A longer spec (more
    demonstrations, sets, methods, models …) extends a finished run and keeps its results.

    A spec with the key models makes a run DIR/NAME for each model, and then DIR/report.html over all models.

    Example: biaseval run jobs/specs/quickstart.yaml --run-dir runs/quickstart --set tasks.max_eval=100
    """
    _make(spec, load(spec, overrides, run_dir), as_json=as_json)


def tune(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="A spec of the kind search: which keys, and for what.")],
    run_dir: RunDirOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search keys of another spec for the best value of a query. The same command resumes and keeps finished trials.

    Every trial is a row of the table trials, and those that run a model are runs in RUN/trials. RUN/best.yaml is the
    chosen spec, ready for `biaseval run`; where one is chosen for each task or model, ask the mart search_best.

    Example: biaseval tune jobs/specs/search-planted-mixin.yaml --run-dir runs/mixin --set trials=8 --set spec.seed=7
    """
    from biaseval.spec import SearchSpec, of_kind

    other = f"{spec}: is of the kind {{kind}}; biaseval tune takes a search, biaseval run the others"
    specs = load(spec, overrides, run_dir)
    _make(spec, {uri: of_kind(own, other, SearchSpec) for uri, own in specs.items()}, as_json=as_json)


def plan(
    spec: SpecArgument, run_dir: RunDirOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Say what a spec would run: tasks or questions, prompts, tokens with and without shared prefixes, GPU-hours.

    Where it would train (a section lora, or the kind instruct), also the steps, time, memory and GPUs of training.

    Where the run has begun in its directory, also the hours by the rate at which it was scored there.

    Checks all that a run would read but weights, which need not be there; writes nothing.

    Example: biaseval plan jobs/specs/mistral-7b.yaml
    """
    from biaseval.runs.commands import describe, for_each
    from biaseval.runs.measured_rate import rate_so_far

    specs = load(spec, overrides, run_dir)
    with resumable(spec):
        found, rates = for_each(specs, describe), dict.fromkeys(specs)
    for uri, own in specs.items():
        with nullcontext() if run_dir else suppress(BiasevalError):  # the default place may hold an incomplete run
            rates[uri] = rate_so_far(own, uri)
    if as_json:
        named = [(own.kind, own.name, found[uri].facts, found[uri].training, rates[uri]) for uri, own in specs.items()]
        every = [dict(zip(("kind", "name", "plan", "training", "measured"), own, strict=True)) for own in named]
        print_json(every[0] if len(every) == 1 else {"models": every})
    else:
        print_plans(found, rates)


def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Examples with labels.")],
    model: Annotated[
        str | None, typer.Option("--model", metavar="M", help="A local model directory or Hugging Face name.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="SPEC", help="The spec to write; if left out, named as the file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a first spec of the kind label_bias for a data file, and list the problems of the file.

    Reads CSV, TSV, JSON, JSON lines, Parquet and data sets of Hugging Face, plain or gzipped, local or s3://.

    Example: biaseval init reviews.csv --model models/tiny
    """
    from biaseval.runs.new_spec import first_spec, init_name
    from biaseval.store import write_file

    path = out or Path(f"{init_name(file)}.yaml")
    if path.exists():
        raise InputError(
            f"{path}: is there already; go on with it (biaseval plan {path}), or name another file with --out"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.parent}; make it, or name another file with --out")
    first = first_spec(file, model, path.parent)
    write_file(str(path), first.text)
    if as_json:
        print_json({"spec": str(path), "found": first.found, "cautions": first.cautions})
        return
    for line in (*first.found, *(f"caution: {own}" for own in first.cautions), f"spec: {path}"):
        typer.echo(line)
    typer.echo(f"next: {'' if model else 'name a model in it, then '}biaseval plan {path} and biaseval run {path}")


def analyse(runs: RunsArgument, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Change keys of the analysis of a finished run, and compute its metrics and report again; loads no model.

    Label and majority bias take scoring and calibrations whose prompts are scored. Label bias also takes suites,
    primary and analysis; QA bias takes thresholds and bootstrap. RUN/specs keeps earlier specs. Changes that need
    new scores belong into the spec of `biaseval run`.

    Example: biaseval analyse runs/quickstart --set scoring.normalization=sum
    """
    from biaseval.pipelines.directory import read_spec
    from biaseval.runs.commands import reanalyse_run

    for run in runs:
        finished = reanalyse_run(run, overrides or ())
        show_finished(finished, read_spec(finished), as_json=as_json)


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
    as_json: JsonOption = False,
) -> None:
    """Score labels after any prompts: the log-probability of each token of each label, and of the end of the text.

    The same command resumes: it scores only missing prompts.

    Example: biaseval score --model models/tiny --prompts prompts.jsonl --out scores
    """
    from pydantic import ValidationError

    from biaseval.runs.commands import score_prompts
    from biaseval.spec import ExecutionSpec, ModelSpec

    content = {"path": _model_path(model), "dtype": dtype, "quantization": quantization, "revision": revision}
    content["adapter"] = None if adapter is None else _model_path(adapter)
    try:
        spec = ModelSpec.model_validate(content)
        execution = ExecutionSpec(gpus_per_actor="auto" if gpus is None else gpus)
    except ValidationError as error:
        problems = [f"--{detail['loc'][0]}: {detail['msg']}, found {detail['input']!r}" for detail in error.errors()]
        raise InputError.of(problems) from error
    with resumable():
        finished = score_prompts(spec, execution, prompts, out)
    say_made({"scores": f"{finished.uri}/label_scores"}, as_json=as_json)


def demo(
    what: Annotated[
        Literal["labels", "qa"],
        typer.Argument(help="labels: a tiny language model on generated tasks; qa: a reader with a shortcut."),
    ] = "labels",
    run_dir: Annotated[
        str | None,
        typer.Option(
            "--run-dir", metavar="DIR", help="The run's directory, local or s3://; left out, runs/demo or runs/demo-qa."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run the quickstart, from data to report: label bias in about a minute, qa in about five on two cores.

    qa plants a shortcut in generated questions, fine-tunes a bundled tiny reader on them, as it is and against the
    shortcut, and measures on questions without it what the readers rely on.

    Example: biaseval demo qa
    """
    from biaseval.demo import QA_SPEC_PATH, SPEC_PATH

    path, folder = (QA_SPEC_PATH, "runs/demo-qa") if what == "qa" else (SPEC_PATH, "runs/demo")
    _make(path, load(path, (), run_dir or folder), as_json=as_json)


def _make(file: Path, specs: Mapping[str, Spec], *, as_json: bool) -> None:
    from biaseval.runs.commands import run_each, run_spec

    with resumable(file):
        if len(specs) > 1:
            say_files(run_each(specs), as_json=as_json)
            return
        [(uri, loaded)] = specs.items()
        finished = run_spec(loaded, uri)
    show_finished(finished, loaded, as_json=as_json)


def _model_path(name: str) -> str:
    """Return an absolute path for a local directory, and a Hugging Face name unchanged."""
    local = Path(name).expanduser()
    return str(local.resolve()) if local.exists() else name
