"""Label bias of scores that somebody else made: files in, a finished run out. Nothing is loaded, nothing is scored."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biaseval.analysis.causal_draws import derive_label_bias
from biaseval.errors import InputError
from biaseval.outputs.lm_eval import read_samples
from biaseval.outputs.plan import Tables, plan_outputs
from biaseval.outputs.scored import Outputs
from biaseval.outputs.table import read_table
from biaseval.pipelines.kind import Description, Kind, Plan
from biaseval.pipelines.labels.label_bias import HEADLINE, LABEL_BIAS
from biaseval.prompting.labels import label_cautions
from biaseval.spec import ImportedSection, ImportedSpec, OnBadRow, Source
from biaseval.store import Run


def _read_outputs(source: Source, files: Sequence[Path], on_bad_row: OnBadRow) -> Outputs:
    return read_table(files, on_bad_row=on_bad_row) if source == "table" else read_samples(files)


_SUMS = "A label's score is the sum over its tokens, without EOS, so that longer labels tend to be less likely."
_NO_BIAS_SCORE = (
    "BiasScore is not measured: it needs rows apart from the test rows, and all are test rows here, so that accuracy "
    "is that of the source."
)


@dataclass(frozen=True)
class ImportedInputs:
    """What planning starts from, validated."""

    tasks: Sequence[Tables]
    notes: Sequence[str]
    facts: Mapping[str, Any]
    subject: str


def imported_spec(
    source: Source, files: Sequence[Path], name: str | None, on_bad_row: OnBadRow = "error"
) -> ImportedSpec:
    """Return the spec of files of scores (at least one): it names them by content.

    Without a name the run is called as the files call the model, or else as the first file. ``on_bad_row`` is that of a
    table: ``drop`` leaves prompts out that lack their right label.

    Raises:
        InputError: a file cannot be read, or does not have the format; the message lists the mistakes.
    """
    outputs = _read_outputs(source, files, on_bad_row)
    called = name or _name_of(outputs.model or files[0].stem)
    try:
        return ImportedSpec(
            name=called,
            imported=ImportedSection(source=source, model=outputs.model, sha256=outputs.sha256, on_bad_row=on_bad_row),
            files_read=tuple(map(str, files)),
        )
    except ValueError as error:
        raise InputError(f"--name {called}: use letters, digits, '.', '_' and '-', a letter or digit first") from error


def _name_of(model: str) -> str:
    """Return what a run of a model is called: the last part of its path, of letters that a name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model.rstrip("/").rpartition("/")[2]).lstrip("._-")[:100] or "imported"


def _read(spec: ImportedSpec) -> ImportedInputs:
    files = [Path(file) for file in spec.files_read]
    outputs = _read_outputs(spec.imported.source, files, spec.imported.on_bad_row)
    if outputs.sha256 != spec.imported.sha256:
        raise InputError(f"{spec.files_read[0]}: changed while it was read; run the same command again")
    tasks = plan_outputs(outputs)
    n_prompts = sum(tables["prompts"].num_rows for tables in tasks)
    has_bias_score = any(prompt.purpose == "bias_score" for prompt in outputs.prompts)
    notes = [_SUMS, *([] if has_bias_score else [_NO_BIAS_SCORE]), *outputs.notes]
    rows = [row for tables in tasks for row in tables["tasks"].to_pylist()]
    notes += [f"{row['task']}: {caution}." for row in rows for caution in label_cautions(row["labels"])]
    return ImportedInputs(tasks, notes, outputs.facts, f"{n_prompts:,} scored prompts")


def _describe(spec: ImportedSpec, inputs: ImportedInputs) -> Description:
    return Description([("tasks", f"{len(inputs.tasks):,}")], list(inputs.notes), {"n_tasks": len(inputs.tasks)})


def _write(run: Run, spec: ImportedSpec, inputs: ImportedInputs) -> Plan:
    """Write every table, the scores with them: a planned import is a scored run."""
    for number, tables in enumerate(inputs.tasks):
        for table, rows in tables.items():
            run.write_part(table, number, rows)
    return {
        "n_tasks": len(inputs.tasks),
        "n_prompts": sum(tables["prompts"].num_rows for tables in inputs.tasks),
        "notes": list(inputs.notes),
    }


IMPORTED = Kind(
    read=_read,
    describe=_describe,
    write=_write,
    stages=lambda run, spec, plan: [],
    derive=derive_label_bias,
    page=LABEL_BIAS.page,
    headline=lambda spec: HEADLINE,
)
