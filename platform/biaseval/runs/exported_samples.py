"""Gives the scores of a finished run to tools that read what lm-evaluation-harness writes."""

import json
from itertools import groupby

from biaseval.analysis import query
from biaseval.environment import date_of
from biaseval.errors import InputError
from biaseval.outputs.export import ExportedRow, ExportedTask, results_of
from biaseval.pipelines.directory import read_spec
from biaseval.spec import ImportedSpec, LabelBiasSpec, of_kind
from biaseval.store import Run

_ROWS = """
select
    prompts.n_demos,
    prompts.demo_set,
    prompts.task,
    prompts.row,
    any_value(prompts.instance_id) as instance_id,
    any_value(prompts.gold) as gold,
    any_value(contexts.text || prompts.input_text) as prompt,
    any_value(splits.input) as input,
    log_likelihoods(label_scores.label, token_logprobs, n_label_tokens, normalization, eos) as log_likelihoods
from prompts
inner join label_scores using (prompt_id)
inner join contexts using (context_id)
left join splits
    on prompts.task = splits.task and prompts.purpose = splits.role and prompts.instance_id = splits.instance_id
cross join run_settings
where purpose = 'main' and prompts.format = 'base'
group by prompts.n_demos, prompts.demo_set, prompts.task, prompts.row
order by all
"""


def export_samples(run_uri: str, out_uri: str) -> list[str]:
    """Write the test rows of a label-bias run as the harness logs samples, in the base format: a folder a setting.

    A task's name gives its file's name, so that / in it becomes __.
    A label's log-likelihood is the one by which the run predicts (``scoring``), without calibration; the harness's is
    the sum without EOS.

    Args:
        run_uri: a finished run.
        out_uri: an empty or new folder.

    Returns:
        The URIs of the files, the results of each setting after its samples.

    Raises:
        InputError: the run is of another kind, or the folder holds something.
        BiasevalError: the run is not finished.
    """
    run, out = Run.open(run_uri), Run.open(out_uri)
    other = f"{run.uri}: is of the kind {{kind}}; export takes runs of label_bias"
    spec = of_kind(read_spec(run), other, LabelBiasSpec, ImportedSpec)
    if out.names():
        raise InputError(f"{out.uri}: is not empty; choose another folder, nothing is written over")
    about = {row["task"]: row for row in query([run.uri], "from tasks").to_pylist()}
    if len({_name(task) for task in about}) < len(about):
        raise InputError(f"{run.uri}: two names of tasks differ only by / and __; rename one in the spec and run again")
    [settings] = query([run.uri], "from run_settings").to_pylist()
    facts = {
        "model_name": spec.name,
        "model_num_parameters": settings["n_parameters"],
        "date": date_of(run),
        "scoring": {"normalization": settings["normalization"], "eos": settings["eos"]},
    }
    written = []
    rows = query([run.uri], _ROWS).to_pylist()
    for (n_demos, demo_set), own in groupby(rows, key=lambda row: (row["n_demos"], row["demo_set"])):
        tasks = [
            ExportedTask(
                _name(task),
                about[task]["definition"] or "",
                about[task]["labels"],
                [ExportedRow(**{key: row[key] for key in ExportedRow.__dataclass_fields__}) for row in of_task],
            )
            for task, of_task in groupby(own, key=lambda row: row["task"])
        ]
        folder = f"k{n_demos}.s{demo_set}"
        stamp = f"{facts['date']}T00-00-00.000000"
        for task in tasks:
            lines = "".join(json.dumps(task.sample(row), ensure_ascii=False) + "\n" for row in task.rows)
            written.append(_write(out, f"{folder}/samples_{task.task}_{stamp}.jsonl", lines))
        results = json.dumps(results_of(tasks, n_demos, demo_set, facts), indent=2, ensure_ascii=False)
        written.append(_write(out, f"{folder}/results_{stamp}.json", results + "\n"))
    return written


def _name(task: str) -> str:
    return task.replace("/", "__")


def _write(out: Run, name: str, text: str) -> str:
    out.write_text(name, text)
    return f"{out.uri}/{name}"
