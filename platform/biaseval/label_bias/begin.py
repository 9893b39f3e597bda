"""Begin a task: draw its rows and choose its calibration inputs, before any prompt exists and without a tokenizer.

Everything from random streams that tasks share is drawn here, in suite order. Prompts depend only on a begun task, so
any process can make them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from biaseval.errors import InputError
from biaseval.label_bias.data import Drawn
from biaseval.label_bias.sources import Sources
from biaseval.label_bias.splits import Sampler
from biaseval.label_bias.templates import template_of
from biaseval.prompting.calibration import SLOT, Inputs, domain_context, purposes_of, shared_inputs
from biaseval.prompting.labels import label_cautions
from biaseval.spec import LabelBiasSpec


@dataclass(frozen=True)
class Start:
    """The input of a task's prompts."""

    drawn: Drawn
    template: str | None
    """The template of the task's inputs, if a method takes words from them."""
    template_source: str | None
    inputs: Mapping[str, Inputs]
    """The inputs of calibration methods that have the same inputs in every context, by method."""
    notes: tuple[str, ...]
    """Notes for readers of the results."""


@dataclass(frozen=True)
class Begun:
    """A begun task of a run, which can be sent to another process."""

    name: str
    n_tasks: int
    """The number of tasks of the run."""
    start: Start | None
    """None if the task cannot be planned."""
    problems: tuple[str, ...] = ()
    """The reasons why the task cannot be planned."""


def begin_tasks(spec: LabelBiasSpec, sources: Sources) -> Iterator[Begun]:
    """Yield each task in suite order, with one in memory at a time."""
    sampler = Sampler(spec.sampling, spec.seed)
    for source in sources.tasks:
        try:
            start = _start(spec, source.draw(spec, sampler), sampler, sources.templates)
        except InputError as error:
            yield Begun(source.name, len(sources.tasks), None, tuple(error.problems))
        else:
            yield Begun(source.name, len(sources.tasks), start)


def _start(spec: LabelBiasSpec, drawn: Drawn, sampler: Sampler, templates: Mapping[str, str]) -> Start:
    task, main = drawn.task, drawn.splits.main
    notes = [*drawn.notes, *(f"{task.name}: {caution}" for caution in label_cautions(drawn.splits.labels))]
    if n_blank := sum(not "".join(instance.texts.values()).strip() for instance in task.instances):
        notes.append(f"{task.name}: {n_blank} inputs are blank; take them out of the file, or leave the task out")
    own = spec.own_calibrations
    with_words = [purpose.name for purpose in purposes_of(spec.calibration, own) if purpose.needs_words]
    template, source = None, None
    if with_words and not drawn.has_fields:
        template, source = template_of(task, dict(templates))
    words = {}
    for field in main[0].texts if with_words else ():
        words[field] = domain_context(task.name, template or SLOT, [instance.texts[field] for instance in main])
        if n_unfit := words[field].n_unfit:
            methods = " and ".join(with_words)
            notes.append(f"{task.name}: {n_unfit} inputs do not fit the template and give no words to {methods}")
    inputs = shared_inputs(
        spec.calibration, tuple(main[0].texts), words, lambda method: sampler.words_generator(task.name, method), own
    )
    return Start(drawn, template, source, inputs, tuple(notes))
