"""Turn the user's data sets into tasks: choose demonstrations, BiasScore rows and main rows.

A data set with at least as many rows as the smallest published task is split as P1 splits: 64 demonstrations, 32
BiasScore rows, and main rows. A smaller data set without a file for main rows gets only as many demonstrations as its
prompts show, and proportionally many BiasScore rows. BiasScore rows are balanced by label, and leftover rows add to
them. If a calibration permutes options, there are more demonstrations, so that each setting has as many unused ones as
BiasScore rows.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from biaseval import spec as specs
from biaseval.errors import InputError, Problems, refuse
from biaseval.inputs.files import Example, ExampleFile, Wanted
from biaseval.inputs.harness import read_lm_eval
from biaseval.inputs.options import Options, read_options
from biaseval.inputs.template import TextFormat, options_template
from biaseval.label_bias.prompts import INPUT
from biaseval.label_bias.splits import Sampler, Splits, generator_of, in_rounds, splits_of
from biaseval.prompting.calibration import permuting
from biaseval.prompting.task_files import Instance, Task

OptionFields = Mapping[str, Sequence[str]]
"""Label of each option, in the order of the options, to the prompt fields that show its text."""


def cyclic_orders(question: Instance, options: OptionFields) -> Iterator[Instance]:
    """Yield the question with its options in every cyclic order, the original order first.

    Labels stay in place, so that every option appears once after each label (Zheng et al. 2024). The label of a
    question is that of its right option, which moves with its text.
    """
    labels = list(options)
    texts = [question.texts[fields[0]] for fields in options.values()]
    right = labels.index(question.label)
    for shift in range(len(labels)):
        moved = {
            field: texts[(place + shift) % len(labels)]
            for place, fields in enumerate(options.values())
            for field in fields
        }
        label = labels[(right - shift) % len(labels)]
        yield replace(question, outputs=(label,), fields={**question.texts, **moved})


FEWEST_MAIN_ROWS = 10
"""The fewest main rows; fewer show nothing, because their intervals are too wide."""

_N_BIAS_SCORE = specs.POOL_SIZE - specs.N_DEMONSTRATIONS
_FEWEST_OF_A_LABEL = 2
"""The smallest average number of BiasScore rows per label in a small data set."""
_MOST_OF_A_LABEL = 32
"""The most BiasScore rows of a label, because every setting scores them.

The total is at most half of the number of test rows, or `_ENOUGH` of each label.
"""
_ENOUGH = 5
"""The fewest BiasScore rows of each label for a test of BiasScore (``preference_p``)."""
_ONE_IN = 3
"""One in so many rows of a label may be a BiasScore row; the others remain for demonstrations and measurement."""
_FEW_ROWS = 5
"""The number of test rows of a label below which macro-F1 and RSD have no interval (docs/statistics.md)."""
_MANY_LABELS = 20
"""The number of labels from which biaseval takes labels that nearly all occur once for names or texts."""
_MOSTLY = 0.9
_SHOWN = 3


@dataclass(frozen=True)
class Drawn:
    """A task and its rows."""

    task: Task
    splits: Splits
    notes: Sequence[str]
    """Notes for readers of the results."""
    has_fields: bool
    """Whether its examples have several fields, so that no template is inferred from its inputs."""
    form: TextFormat | None = None
    """The format of its prompts, if the task brings one."""
    options: OptionFields | None = None
    """Multiple choice: the fields of the options."""


@dataclass(frozen=True)
class DataSet:
    """A data set, which is one task of a run."""

    train_key: str
    """The source of the rows for demonstrations, in messages."""
    task: Task
    """The task; its instances are those of ``train``, then those of ``test``."""
    n_train: int
    labels: tuple[str, ...]
    """The labels in code-point order."""
    max_test: int
    notes: tuple[str, ...]
    """Notes for readers of the results."""
    form: TextFormat | None = None
    """The format of the prompts, if the data set brings one."""
    n_same: int = 0
    """Training rows dropped because another training row or a test row has the same text."""
    options: OptionFields | None = None
    """Multiple choice: the fields of the options."""
    kept: tuple[str, ...] | None = None
    """Ids of the BiasScore rows in a run that is extended; None: biaseval draws them."""

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task.name

    @property
    def has_test_file(self) -> bool:
        """Whether main rows have their own file."""
        return self.n_train < len(self.task.instances)

    @property
    def most_rows(self) -> int:
        """The largest number of its main rows."""
        return min(self.max_test, len(self.task.instances))

    def draw(self, spec: specs.LabelBiasSpec, sampler: Sampler) -> Drawn:
        """Return the data set as a task, with its rows; Raises InputError: there are too few rows for the spec."""
        splits = self._splits(spec, sampler.generator(self.name, "splits"))
        notes = [*self.notes, *_splits_notes(self.name, splits)]
        return Drawn(self.task, splits, notes, has_fields=True, form=self.form, options=self.options)

    def _splits(self, spec: specs.LabelBiasSpec, generator: np.random.Generator) -> Splits:
        order = [int(index) for index in generator.permutation(self.n_train)]
        n_demos, n_bias_score = self._sizes(spec)
        bias_score = self._bias_score_rows(order, n_bias_score, spec.seed)
        taken, end = set(bias_score), max(n_bias_score, len(order) - specs.N_DEMONSTRATIONS)
        # The rest of the first rows goes to the middle, which neither many test rows nor demonstrations reach.
        rest = [*order[n_bias_score:end], *order[:n_bias_score], *order[end:]]
        rest = [index for index in rest if index not in taken]
        # From the other end, so that more demonstrations do not change the first main rows.
        demos = rest[::-1]
        if spec.prompt.demos == "balanced":
            demos = in_rounds(demos, self._label, generator)
        demos = demos[:n_demos]
        shown = set(demos)
        main = [index for index in rest if index not in shown]
        if self.has_test_file:
            n_test = len(self.task.instances) - self.n_train
            main = [self.n_train + int(index) for index in generator.permutation(n_test)]
        drawn = splits_of(self.task, [*demos, *bias_score], main[: self.max_test], n_demos, self.labels)
        return replace(drawn, shuffled_by=spec.seed) if spec.prompt.demos == "balanced" else drawn

    def _label(self, index: int) -> str:
        return self.task.instances[index].label

    def _bias_score_rows(self, order: Sequence[int], n_fewest: int, seed: int) -> list[int]:
        """Return the BiasScore rows; they depend on neither demonstrations nor methods, so a run can be extended.

        Each label comes equally often, and leftover rows add to the first ``n_fewest``. A measured row or demonstration
        is taken only for a label that has too few other rows.
        """
        if self.kept is not None:
            index_of = {self.task.instances[index].id: index for index in order}
            return [index_of[name] for name in self.kept if name in index_of]
        n_test = min(self.max_test, len(self.task.instances) - self.n_train if self.has_test_file else self.n_train)
        begin = n_fewest + (0 if self.has_test_file else n_test)  # measured rows of another file are not in the order
        end = len(order) - specs.N_DEMONSTRATIONS
        left_over = order[begin:end] if end > begin else []
        others = [*order[n_fewest:begin][::-1], *order[max(begin, end) :]]
        candidates = [*order[:n_fewest], *left_over, *others]
        wanted = min(_MOST_OF_A_LABEL * len(self.labels), max(n_test // 2, _ENOUGH * len(self.labels)))
        n_rows = n_fewest + min(len(left_over), max(0, wanted - n_fewest))
        by_label: dict[str, list[int]] = {}
        for index in candidates:
            by_label.setdefault(self._label(index), []).append(index)
        most = {name: min(_MOST_OF_A_LABEL, max(1, len(own) // _ONE_IN)) for name, own in by_label.items()}
        allowed = {index for name, own in by_label.items() for index in own[: most[name]]}
        generator = generator_of(seed, self.name, "bias_score")
        chosen = in_rounds([index for index in candidates if index in allowed], self._label, generator)[:n_rows]
        return [*chosen, *(index for index in candidates if index not in allowed)][: max(n_fewest, len(chosen))]

    def _sizes(self, spec: specs.LabelBiasSpec) -> tuple[int, int]:
        """Return the number of possible demonstrations and the smallest number of BiasScore rows.

        Raises:
            InputError: too few main rows would be left.
        """
        n_rows = self.n_train
        asked = max(spec.prompt.n_demos) * spec.prompt.demo_sets
        share = round(n_rows * _N_BIAS_SCORE / specs.MIN_INSTANCES)
        n_bias_score = min(_N_BIAS_SCORE, max(share, _FEWEST_OF_A_LABEL * len(self.labels)))
        n_demos = specs.N_DEMONSTRATIONS if spec.lora is not None or n_rows >= specs.MIN_INSTANCES else asked
        if self.has_test_file:  # a larger pool takes no main rows
            n_demos = max(n_demos, min(specs.N_DEMONSTRATIONS, n_rows - n_bias_score))
        permuted = permuting(spec.calibration, spec.own_calibrations)
        n_beside = n_bias_score + max(spec.prompt.n_demos) + (spec.lora.n_examples if spec.lora else 0)
        n_demos = max(n_demos, n_beside) if permuted else n_demos
        n_main = 0 if self.has_test_file else FEWEST_MAIN_ROWS
        if n_demos + n_bias_score + n_main <= n_rows:
            return n_demos, n_bias_score
        most = (n_rows - n_bias_score - n_main) // spec.prompt.demo_sets
        shown = f"prompt.n_demos {max(spec.prompt.n_demos)} x prompt.demo_sets {spec.prompt.demo_sets}"
        why = "lora takes a pool of 64" if spec.lora is not None else shown
        remedy = f"lower prompt.n_demos to at most {most}, or demo_sets" if most >= 0 else "add rows"
        if permuted and n_demos == n_beside:
            why = f"{n_bias_score} of them questions for {permuted[0]}, which a setting does not show"
            remedy = f"add rows, or take {permuted[0]} out of calibration"
        main = f" and {n_main} test rows" if n_main else ""
        same = f" ({self.n_same:,} have the text of another row or of a test row)" if self.n_same else ""
        raise InputError(
            f"{self.train_key}: has {n_rows} rows that can be used{same}, and {n_demos} demonstrations ({why}), "
            f"{n_bias_score} BiasScore rows{main} are needed; {remedy}"
        )


def read_datasets(spec: specs.LabelBiasSpec) -> list[DataSet]:
    """Return the data sets of a spec.

    Raises:
        InputError: a file cannot be read, or has mistakes; the message lists those of all files.
    """
    problems = Problems()
    found = []
    for key, data in spec.datasets().items():
        with problems.noted():
            found.append(
                _of_lm_eval(spec, key, data) if isinstance(data, specs.LmEvalDataSpec) else _read(spec, key, data)
            )
    problems.refuse()
    return found


def _read(spec: specs.LabelBiasSpec, key: str, data: specs.LabelDataSpec) -> DataSet:
    uris = {role: uri for role, uri in (("train", data.train), ("test", data.test)) if uri}
    if data.test == data.train:
        raise InputError(f"{key}.test: is {key}.train; name another file, or leave it out: main rows are drawn")
    options = None if data.options is None else read_options(list(uris.values()), data.options, data.label, key)
    known = _known_fields(spec.prompt.item, options)
    refuse(list(_field_problems(spec.prompt, data, options, key)))
    wanted = Wanted(data=data, fields=known, labels=data.labels or {}, seed=spec.seed, key=key, options=options)
    files = [ExampleFile(uri, role, wanted) for role, uri in uris.items()]
    refuse([problem for file in files for problem in file.shown_problems()])
    notes = [note for file in files for note in file.notes]
    if options is not None and options.n_left_out:
        notes.append(f"{key}: {options.n_left_out:,} rows do not have {len(options.labels)} options and are left out")
    train, test = files[0].examples, files[1].examples if len(files) > 1 else []
    found = {*(data.labels or {}).values(), *(example.label for example in (*train, *test))}
    labels = tuple(sorted(found if options is None else options.labels))
    if len(labels) < 2:
        raise InputError(f"{data.train}: every row has the label {labels[0]!r}; a classification task needs two")
    definition = spec.prompt.instruction_text or files[0].definition or ""
    task = Task(data.name, definition, (), (), (), files[0].sha256)
    form, where = None, None
    if options is not None:
        shown_by = {field: data.fields.get(field, names[0]) for field, names in known.items()}
        where = {
            label: [field for field, column in shown_by.items() if column == own]
            for label, own in options.columns.items()
        }
        if spec.prompt.item is None:
            shown = {label: _option_field(label) for label in options.labels}
            form = options_template(INPUT, shown, spec.prompt.separator, definition.strip() or None)
    return _dataset(task, train, test, labels, data.max_test, notes, train_key=f"{key}.train", form=form, options=where)


def _option_field(label: str) -> str:
    """Return the field of an option if no template names one."""
    return f"option {label}"


def _known_fields(item: str | None, options: Options | None) -> dict[str, tuple[str, ...]]:
    """Return the prompt fields, each with its possible names in files."""
    if item is not None:
        return {field: (field,) for field in specs.template_fields(item)}
    if options is None:
        return {INPUT: (INPUT, "text")}
    columns = {_option_field(label): (column,) for label, column in options.columns.items()}
    return {INPUT: (INPUT, "text", "question"), **columns}


def _field_problems(
    prompt: specs.PromptSpec, data: specs.LabelDataSpec, options: Options | None, key: str
) -> Iterator[str]:
    item = prompt.item
    fields = (INPUT,) if item is None else specs.template_fields(item)
    for name in data.fields:
        if name not in fields:
            more = "" if item else "; write prompt.item for others"
            yield f"{key}.fields.{name}: the prompt has no such field; it has {', '.join(fields)}{more}"
    if item is not None and options is not None:
        shown = {data.fields.get(field, field) for field in fields}
        if hidden := [column for column in options.columns.values() if column not in shown]:
            yield f"prompt.item: does not show the option {hidden[0]}; write {{{hidden[0]}}} in it"
    if item is None and options is not None:
        for name in (name for name, form in prompt.formats.items() if form.item is not None):
            yield f"prompt.formats.{name}.item: cannot name options without prompt.item, which names them; write both"


def _of_lm_eval(spec: specs.LabelBiasSpec, key: str, data: specs.LmEvalDataSpec) -> DataSet:
    found = read_lm_eval(data.lm_eval)
    if 0 < (n_own := len(found.train)) < min(_N_BIAS_SCORE, _FEWEST_OF_A_LABEL * len(found.choices)):
        note = f"demonstrations are drawn from {found.test_split}, not from the {n_own} documents of the task"
        found = replace(found, train=[], fewshot_split=found.test_split, note=note)
    task = Task(data.name, found.form.instruction or "", (), (), (), found.sha256)
    notes = [f"{task.name}: {found.note}"] if found.note and any(spec.prompt.n_demos) else []
    return _dataset(
        task,
        # If demonstrations come from the measured documents, these are split like rows.
        found.train or found.test,
        found.test if found.train else [],
        tuple(sorted(found.choices)),
        data.max_test,
        notes,
        train_key=f"{key}.lm_eval (its split {found.fewshot_split})",
        form=found.form,
    )


def _dataset(
    task: Task,
    train: Sequence[Example],
    test: Sequence[Example],
    labels: tuple[str, ...],
    max_test: int,
    notes: Sequence[str],
    *,
    train_key: str,
    form: TextFormat | None,
    options: OptionFields | None = None,
) -> DataSet:
    """Return the data set of a task without instances yet, after dropping duplicates from ``train``."""
    kept, noted = _distinct(train, test), list(notes)
    if n_same := len(train) - len(kept):
        where = "another row's, or a test row's," if test else "another row's"
        noted.append(f"{train_key}: {n_same:,} of {len(train):,} rows have {where} text and are left out")
    instances = tuple(_instance(example) for example in (*kept, *test))
    counts = Counter(instance.label for instance in instances)
    n_once = sum(counts[label] == 1 for label in labels)
    # Names or texts, which differ in nearly every row, are no labels.
    if len(labels) > _MANY_LABELS and n_once > _MOSTLY * len(labels):
        raise InputError(
            f"{train_key}: {len(labels):,} labels in {len(instances):,} rows, {n_once:,} of which occur once; that is "
            "hardly the column of the label: name it in data.label"
        )
    noted += [f"{task.name}: {note}" for note in _label_notes(instances, labels)]
    whole = replace(task, instances=instances)
    return DataSet(train_key, whole, len(kept), labels, max_test, tuple(noted), form, n_same, options)


def _distinct(train: Sequence[Example], test: Sequence[Example]) -> list[Example]:
    """Return the rows of ``train`` whose text occurs in no test row and no earlier row."""
    seen = {tuple(example.fields.values()) for example in test}
    kept = []
    for example in train:
        text = tuple(example.fields.values())
        if text not in seen:
            seen.add(text)
            kept.append(example)
    return kept


def _instance(example: Example) -> Instance:
    shown = [text if len(example.fields) == 1 else f"{field}: {text}" for field, text in example.fields.items()]
    return Instance(example.id, "\n".join(shown), (example.label,), example.fields)


def _splits_notes(task: str, splits: Splits) -> Iterator[str]:
    """Yield notes about the rows of each role for readers of the results, one sentence each."""
    counts = Counter(instance.label for instance in splits.main)
    n_main = len(splits.main)
    if absent := [label for label in splits.labels if not counts[label]]:
        yield (
            f"{task}: no test row has the label {', '.join(map(repr, absent[:_SHOWN]))}: RSD and macro-F1 leave it "
            "out; fewer demonstrations, sets or BiasScore rows would leave it some"
        )
    if rare := [f"{label!r} ({counts[label]})" for label in splits.labels if 0 < counts[label] < _FEW_ROWS]:
        more = f" and {len(rare) - _SHOWN:,} more" if len(rare) > _SHOWN else ""
        yield (
            f"{task}: fewer than {_FEW_ROWS} of {n_main:,} test rows have the label {', '.join(rare[:_SHOWN])}{more}: "
            "RSD and macro-F1 hang on them, and have no interval"
        )
    counts = Counter(instance.label for instance in splits.bias_score)
    rarest = min(splits.labels, key=lambda label: counts[label])
    if splits.bias_score and counts[rarest] < _ENOUGH:
        yield (
            f"{task}: {counts[rarest]} of {len(splits.bias_score):,} BiasScore rows have the label {rarest!r}: "
            f"BiasScore cannot be tested below {_ENOUGH} of each label"
        )
    shown = {instance.label for instance in splits.demonstrations}
    if splits.demonstrations and (never := [label for label in splits.labels if label not in shown]):
        yield f"{task}: no demonstration has the label {', '.join(map(repr, never[:_SHOWN]))}"


def _label_notes(instances: Sequence[Instance], labels: Sequence[str]) -> Iterator[str]:
    counts = Counter(instance.label for instance in instances)
    if absent := [label for label in labels if not counts[label]]:
        yield f"no row has the label {', '.join(map(repr, absent[:_SHOWN]))}: models may answer it, and are never right"
    if rare := [label for label in labels if counts[label] == 1]:
        more = f" and {len(rare) - _SHOWN:,} more" if len(rare) > _SHOWN else ""
        yield f"the label {', '.join(map(repr, rare[:_SHOWN]))}{more} occurs once: nothing can be said about it"
    for label in labels:
        if inside := [other for other in labels if other != label and other.startswith(label)]:
            yield (
                f"the label {label!r} is the beginning of {inside[0]!r}; only the end of text after the "
                "label separates their scores, and not every model has learnt that"
            )
