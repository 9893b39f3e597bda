"""Training alone: the stages of a run that train, without those that measure."""

from __future__ import annotations

from biaseval.errors import InputError
from biaseval.pipelines.adapters import TrainingSummary, lora_of, training_summary
from biaseval.pipelines.directory import read_plan
from biaseval.pipelines.instruct import InstructSummary, instruct_summary
from biaseval.pipelines.kinds import kind_of
from biaseval.pipelines.run import make_missing, planned_run
from biaseval.spec import AnySpec, InstructSpec
from biaseval.units import Done


def train_lora(spec: AnySpec, run_uri: str) -> tuple[TrainingSummary, list[Done]]:
    """Plan a run as `run_spec` does, and train its adapters; on a directory that has it, only those that are missing.

    Returns:
        What there is now, and what was made: an adapter whose loss was not finite is given up, and has a problem.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed; the same call resumes.
    """
    lora_of(spec)
    with planned_run(spec, run_uri) as run:
        stage, *_ = kind_of(spec).stages(run, spec, read_plan(run))
        made = make_missing(run, [stage], spec.execution, needed_only=False)
        return training_summary(run, stage, made), made


def train_instruct(spec: AnySpec, run_uri: str) -> InstructSummary:
    """Tune a model on conversations; on a directory that has begun to, go on behind its last checkpoint.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed, or a loss or gradient was not finite; the same call resumes.
    """
    if not isinstance(spec, InstructSpec):
        raise InputError(f"kind: {spec.kind} is a measurement; name a spec of the kind instruct")
    with planned_run(spec, run_uri) as run:
        made = make_missing(run, kind_of(spec).stages(run, spec, read_plan(run)), spec.execution)
        return instruct_summary(run, made)
