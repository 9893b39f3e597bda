"""Training alone: the stages of a run that train, without those that measure."""

from biaseval.errors import InputError
from biaseval.pipelines.directory import read_plan
from biaseval.pipelines.instruct import instruct_summary
from biaseval.pipelines.kind import Trained
from biaseval.pipelines.labels.adapters import lora_of, training_summary
from biaseval.pipelines.qa.kind import readers_summary
from biaseval.pipelines.qa.training_stages import TrainingStages
from biaseval.pipelines.run import make_missing, planned_run
from biaseval.runs.commands import claimed_run
from biaseval.runs.kinds import kind_of
from biaseval.spec import AnySpec, InstructSpec, QaBiasSpec, of_kind


def train_lora(spec: AnySpec, run_uri: str) -> Trained:
    """Plan a run as `run_spec` does, and train its adapters; on a directory that has it, only those that are missing.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed; the same call resumes.
    """
    lora_of(spec)
    kind = kind_of(spec)
    with planned_run(kind, spec, run_uri) as run:
        stage, *_ = kind.stages(run, spec, read_plan(run))
        return training_summary(run, stage, make_missing(run, [stage], spec.execution))


def train_instruct(spec: AnySpec, run_uri: str) -> Trained:
    """Tune a model on conversations; on a directory that has begun to, go on behind its last checkpoint.

    Raises:
        InputError: bad input, before any weights are loaded.
        BiasevalError: training failed, or a loss or gradient was not finite; the same call resumes.
    """
    spec = of_kind(spec, "kind: {kind} is a measurement; name a spec of the kind instruct", InstructSpec)
    kind = kind_of(spec)
    with planned_run(kind, spec, run_uri) as run:
        made = make_missing(run, kind.stages(run, spec, read_plan(run)), spec.execution, kind)
        return instruct_summary(run, spec, made)


def train_qa(spec: AnySpec, run_uri: str) -> Trained:
    """Plan a run as `run_spec` does, and train its readers; on a directory that has it, only those that are missing.

    Raises:
        InputError: bad input, before any weights are loaded; or segments with too few questions to train on.
        BiasevalError: training failed; the same call resumes.
    """
    spec = of_kind(spec, "kind: {kind} trains no readers; name a qa_bias spec with a section train", QaBiasSpec)
    if spec.train is None:
        raise InputError("train: the spec has no such section, which says what to train; add bases, data, validation")
    with claimed_run(spec, run_uri) as run:
        stages = TrainingStages(run, spec, spec.train, read_plan(run))
        return readers_summary(stages, make_missing(run, stages, spec.execution))
