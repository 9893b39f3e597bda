"""Plan everything that a label-bias run scores, as tables: splits, contexts and prompts, one task at a time."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, islice
from os.path import commonprefix
from typing import Any

import pyarrow as pa

from biaseval.errors import InputError
from biaseval.inputs.chat import ChatFormat, asked_format, chat_cautions
from biaseval.inputs.template import PromptFormat
from biaseval.label_bias import suites
from biaseval.label_bias.begin import Begun, Start
from biaseval.label_bias.data import Drawn, cyclic_orders
from biaseval.label_bias.formats import measured, ordered, same_prompts, worded
from biaseval.label_bias.prompts import PromptFitter
from biaseval.label_bias.splits import Splits, generator_of
from biaseval.prompting.beginnings import bos_cautions
from biaseval.prompting.calibration import Inputs, leaves_one_out, permuting, purposes_of
from biaseval.prompting.labels import label_problem
from biaseval.prompting.lengths import PieceLengths, TokenCounter, merge_margin
from biaseval.prompting.parts import Cutting, PlannedPart
from biaseval.prompting.task_files import Instance, Task
from biaseval.spec import BASE, N_DEMONSTRATIONS, POOL_SIZE, FormatSpec, LabelBiasSpec, training_positions
from biaseval.tables import CONTEXTS, SPLITS, TASKS, TRAINING_ROWS


@dataclass(frozen=True)
class TaskPlan:
    """The rows that one task adds to the run."""

    task: str
    sha256: str = ""
    tasks: pa.Table = field(default_factory=TASKS.empty)
    splits: pa.Table = field(default_factory=SPLITS.empty)
    contexts: pa.Table = field(default_factory=CONTEXTS.empty)
    training_rows: pa.Table = field(default_factory=TRAINING_ROWS.empty)
    """The rows of all its adapters, in their order, without ``n_tokens``; empty in a run without adapters."""
    parts: list[PlannedPart] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes for readers of the results."""
    problems: list[str] = field(default_factory=list)
    """Reasons why the task cannot be scored; a task that cannot be planned has no rows."""

    @property
    def n_shortened(self) -> int:
        """The number of prompts with fewer demonstrations than requested, because of the length limit."""
        columns = ["purpose", "n_demos", "n_demos_used"]
        rows = (row for part in self.parts for row in part.prompts.select(columns).to_pylist())
        return sum(row["n_demos_used"] < row["n_demos"] - leaves_one_out(row["purpose"]) for row in rows)

    @property
    def n_cut(self) -> int:
        """The number of prompts that are too long even without demonstrations, so that they are truncated."""
        return sum(sum(part.prompts["is_truncated"].to_pylist()) for part in self.parts)


@dataclass
class _Rows:
    """Rows of the tables under construction."""

    prompts: list[dict[str, Any]] = field(default_factory=list)
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Contexts by their ids."""
    training: list[dict[str, object]] = field(default_factory=list)


def plan_task(spec: LabelBiasSpec, begun: Begun, tokenizer: Any, window: int | None) -> TaskPlan:
    """Return the plan of a begun task, with its problems.

    Those are a template that does not fit, a single label in all remaining instances, labels with the same tokens, and
    prompts that exceed the model's window (in tokens; None if unknown). ``tokenizer`` is a Hugging Face tokenizer.
    """
    if begun.start is None:
        return TaskPlan(begun.name, problems=list(begun.problems))
    try:
        return _TaskPlanner(spec, tokenizer, window, begun.n_tasks).plan(begun.start)
    except InputError as error:
        return TaskPlan(begun.name, problems=error.problems)


def _is_uneven(demos: Sequence[Instance], splits: Splits) -> bool:
    """Return whether the counts of two labels in the demonstrations differ by more than one."""
    counts = Counter(demo.label for demo in demos)
    numbers = [counts[label] for label in splits.labels]
    return max(numbers) - min(numbers) > 1


def _blocks(prompts: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the sizes of blocks of prompts with one context (except its length); leave-one-out rows are one block."""
    settings = [(row.get("format"), row["n_demos"], row["demo_set"], leaves_one_out(row["purpose"])) for row in prompts]
    return [len(list(rows)) for _, rows in groupby(settings)]


def _note_prefixes(rows: _Rows) -> None:
    """Note how many characters the prompts of a setting and purpose share, but one, as P1's code cuts them."""

    def group(row: Mapping[str, Any]) -> tuple[Any, ...]:
        return row.get("format"), row["n_demos"], row["demo_set"], row["purpose"]

    for _, own in groupby(rows.prompts, group):
        prompts = list(own)
        texts = [rows.contexts[row["context_id"]]["text"] + row["input_text"] for row in prompts]
        shared = commonprefix(texts)  # noqa: RUF071
        for row in prompts:
            row["n_prefix_characters"] = max(len(shared) - 1, 0)


class _TaskPlanner:
    def __init__(self, spec: LabelBiasSpec, tokenizer: Any, window: int | None, n_tasks: int) -> None:
        self._spec = spec
        self._n_tasks = n_tasks
        self._tokenizer = tokenizer
        self._counter = TokenCounter(tokenizer)
        self._window = window
        self._formats = spec.prompt.all_formats

    def plan(self, start: Start) -> TaskPlan:
        """Return the task's plan; Raises InputError: the model's chat template does not fit prompts."""
        splits = replace(start.drawn.splits, noise=(self._spec.prompt.flip, self._spec.seed))
        drawn = replace(start.drawn, splits=splits)
        task = drawn.task
        notes = list(start.notes)
        forms = {name: self._form(form, drawn) for name, form in self._formats.items()}
        rows = self._rows(drawn, forms, start.inputs)
        if self._spec.prompt.prefix_mode == "reference":
            _note_prefixes(rows)
        notes += [caution for form in forms.values() for caution in chat_cautions(form)]
        begins = (rows.contexts[prompt["context_id"]]["text"] or prompt["input_text"] for prompt in rows.prompts)
        notes += bos_cautions(self._tokenizer, begins)
        if drawn.has_fields:
            notes += self._one_label_notes(task, splits)
        problems = [
            self._label_problem(task, splits, rows),
            self._window_problem(task, splits, rows),
            self._cut_problem(task, forms[BASE], rows),
            *same_prompts(task.name, rows.prompts, rows.contexts),
        ]
        return TaskPlan(
            task=task.name,
            sha256=task.sha256,
            tasks=TASKS.rows([_task_row(start)]),
            splits=splits.table(task.name),
            contexts=CONTEXTS.rows(list(rows.contexts.values())),
            training_rows=TRAINING_ROWS.rows(rows.training),
            parts=self._parts(splits, rows),
            notes=notes,
            problems=[problem for problem in problems if problem],
        )

    def _form(self, form: FormatSpec, drawn: Drawn) -> PromptFormat:
        sample = drawn.splits.main[0]
        return asked_format(self._spec.model, worded(form, drawn), self._tokenizer, (sample.texts, sample.label))

    def _settings(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the set of the demonstrations of each setting."""
        for n_demos in self._spec.prompt.n_demos:
            for demo_set in range(self._spec.prompt.demo_sets if n_demos else 1):
                yield n_demos, demo_set

    def _measured(self) -> Iterator[tuple[str, int, int]]:
        """Yield each format with its settings, those of the default wording first."""
        for name in self._formats:
            for n_demos, demo_set in self._settings():
                if name in measured(self._formats, n_demos):
                    yield name, n_demos, demo_set

    def _one_label_notes(self, task: Task, splits: Splits) -> Iterator[str]:
        sets = [splits.demonstration_set(n_demos, demo_set) for n_demos, demo_set in self._settings() if n_demos > 1]
        if n_alike := sum(len({demo.label for demo in demos}) == 1 for demos in sets):
            yield (
                f"{task.name}: {n_alike} of {len(sets)} demonstration sets show one label only, which models follow"
                + ("; prompt.demos: balanced shows all" if self._spec.prompt.demos == "random" else "")
            )
        clean = replace(splits, noise=(0, 0))
        sets = [clean.demonstration_set(n_demos, demo_set) for n_demos, demo_set in self._settings() if n_demos > 1]
        if self._spec.prompt.demos == "balanced" and (n_uneven := sum(_is_uneven(demos, splits) for demos in sets)):
            yield (
                f"{task.name}: {n_uneven} of {len(sets)} demonstration sets do not show each label as often: of some "
                "there are too few rows; lower prompt.n_demos or demo_sets"
            )

    def _unseen(self, splits: Splits, n_demos: int, demo_set: int) -> Iterator[tuple[int, Instance]]:
        """Yield the pool's rows, with positions, that a setting neither shows nor trains on."""
        seen = set(range(n_demos * demo_set, n_demos * (demo_set + 1)))
        if (lora := self._spec.lora) is not None and lora.is_trained(n_demos, demo_set):
            seen.update(training_positions(n_demos, demo_set, lora.n_examples))
        for row, instance in enumerate(splits.demonstrations):
            if row not in seen and instance.label in splits.labels:
                yield row, instance

    def _questions(self, drawn: Drawn, n_demos: int, demo_set: int) -> Iterator[Instance]:
        """Yield the questions with permuted options in a setting, each in every cyclic order before the next."""
        if drawn.options is not None:
            unseen = self._unseen(drawn.splits, n_demos, demo_set)
            n_questions = min(len(drawn.splits.bias_score), POOL_SIZE - N_DEMONSTRATIONS)
            for _, question in islice(unseen, n_questions):
                yield from cyclic_orders(question, drawn.options)

    def _rows(self, drawn: Drawn, forms: Mapping[str, PromptFormat], inputs: Mapping[str, Inputs]) -> _Rows:
        task, splits = drawn.task, drawn.splits
        rows = _Rows()
        fitter = PromptFitter(self._counter, self._spec.prompt.max_tokens)
        planned = purposes_of(self._spec.calibration, self._spec.own_calibrations)
        left_out = [one.name for one in planned if leaves_one_out(one.name)]
        # Every setting of a format has the same item for an instance.
        drawn_instances = (*splits.main, *splits.bias_score, *splits.demonstrations)
        tests = {
            name: {instance.id: form.test(instance.texts) for instance in drawn_instances}
            for name, form in forms.items()
        }
        for own_tests in tests.values():
            fitter.lengths.measure(own_tests.values())
        for name, n_demos, demo_set in self._measured():
            use = f"{self._formats[name].order}/{n_demos}/{demo_set}"
            form, order = forms[name], generator_of(self._spec.seed, task.name, use)
            demos = ordered(splits.demonstration_set(n_demos, demo_set), self._formats[name], order)
            shown = [form.demonstration(demo.texts, demo.label) for demo in demos]
            fitter.lengths.measure(shown)
            shared = {"task": task.name, "n_demos": n_demos, "demo_set": demo_set}
            if self._spec.prompt.formats:
                shared["format"] = name
            place = adapter_name(task.name, n_demos, demo_set) + ("" if name == BASE else f".{name}")
            golds = {demo.id: demo.label for demo in splits.demonstrations} if self._spec.prompt.flip else {}
            setting = _Setting(place, shared, list(splits.labels), demos, shown, form.head, fitter, rows, golds)
            given: dict[str, Iterable[tuple[int, Instance]]] = {
                "main": enumerate(splits.main),
                "bias_score": enumerate(splits.bias_score),
            }
            if self._spec.held_out:
                given["held_out"] = self._unseen(splits, n_demos, demo_set)
            for purpose, instances in given.items():
                for row, instance in instances:
                    setting.add(purpose, row, tests[name][instance.id], instance)
            for method, own in inputs.items():
                for row, fields in enumerate(own):
                    setting.add(method, row, form.test(fields))
            for method in permuting(self._spec.calibration, self._spec.own_calibrations):
                for row, instance in enumerate(self._questions(drawn, n_demos, demo_set)):
                    setting.add(method, row, form.test(instance.texts), instance)
            for method in left_out:
                for row, instance in enumerate(demos):
                    setting.add(method, row, tests[name][instance.id], instance, left_out=row)
            if (lora := self._spec.lora) is not None and lora.is_trained(n_demos, demo_set):
                n_examples = lora.n_examples
                rows.training += training_rows(task, splits, n_demos, demo_set, n_examples, form=form, fitter=fitter)
        return rows

    def _parts(self, splits: Splits, rows: _Rows) -> list[PlannedPart]:
        """Return the prompts in parts; a part with prompts of an adapter has those of one setting."""
        part_rows = self._spec.execution.part_rows
        groups: dict[str | None, list[dict[str, Any]]] = {}
        by_setting = groupby(rows.prompts, key=lambda row: (row["task"], row["n_demos"], row["demo_set"]))
        for setting, own in by_setting:
            is_trained = (lora := self._spec.lora) is not None and lora.is_trained(*setting[1:])
            groups.setdefault(adapter_name(*setting) if is_trained else None, []).extend(own)
        cutting = Cutting(
            part_rows=part_rows,
            n_groups=self._n_tasks * len(groups),
            n_labels=len(splits.labels),
            label_tokens=PieceLengths(self._counter).with_eos(splits.labels),
            context_tokens={name: row["n_tokens"] for name, row in rows.contexts.items()},
        )
        return [
            part
            for adapter, own in groups.items()
            for part in cutting.parts(own, _blocks(own) if part_rows == "auto" else [len(own)], adapter)
        ]

    def _label_problem(self, task: Task, splits: Splits, rows: _Rows) -> str | None:
        """Return advice if labels share their tokens after a whole or a truncated prompt of the task, else None."""
        ends = {(row.get("format"), row["is_truncated"]): row["input_text"] for row in reversed(rows.prompts)}
        for end in ends.values():
            if problem := label_problem(self._tokenizer, end, splits.labels):
                return (
                    f"{task.name}: {problem}, so its scores would say nothing; leave the task out with tasks.include, "
                    "or choose a model whose tokenizer tells its labels apart"
                )
        return None

    def _cut_problem(self, task: Task, form: PromptFormat, rows: _Rows) -> str | None:
        """Return advice if chats exceed the length limit, because a chat cannot be truncated, else None."""
        if not isinstance(form, ChatFormat) or not (n_cut := sum(row["is_truncated"] for row in rows.prompts)):
            return None
        return (
            f"{task.name}: {n_cut:,} prompts are longer than prompt.max_tokens {self._spec.prompt.max_tokens} without "
            "any demonstration, and a chat cannot be cut; raise prompt.max_tokens, or set model.chat: off"
        )

    def _window_problem(self, task: Task, splits: Splits, rows: _Rows) -> str | None:
        """Return advice if a prompt with its longest label exceeds the model's window, else None."""
        if self._window is None:
            return None
        counts = self._counter.count_bare([f" {label}" for label in splits.labels])
        longest_tokens, longest = max(zip(counts, splits.labels, strict=True))
        n_over, worst, first = 0, 0, ""
        for prompt in rows.prompts:
            needed = prompt["n_tokens"] + longest_tokens + 1
            if needed + merge_margin(prompt["n_demos"]) <= self._window:
                continue
            text = rows.contexts[prompt["context_id"]]["text"] + prompt["input_text"]
            needed = self._counter.count(f"{text} {longest}") + 1
            if needed > self._window:
                n_over += 1
                first = first or prompt["prompt_id"]
                worst = max(worst, needed)
        if not n_over:
            return None
        return (
            f"{task.name}: {n_over} prompts with label and EOS need up to {worst} tokens (first: {first}) and the "
            f"model's window has {self._window}; choose a model with a longer window, or set prompt.max_tokens to at "
            f"most {max(self._window - longest_tokens - 1, 1)}: longer prompts then lose demonstrations, or their end"
        )


@dataclass(frozen=True)
class _Setting:
    """One (task, format, n_demos, demo_set) that collects its prompts."""

    place: str
    """The start of the identifiers of its contexts and prompts."""
    shared: Mapping[str, Any]
    """Columns that its contexts and prompts share."""
    labels: list[str]
    demos: tuple[Instance, ...]
    shown: list[str]
    """The demonstrations as a prompt shows them."""
    head: str
    """The text before the demonstrations."""
    fitter: PromptFitter
    rows: _Rows
    golds: Mapping[str, str]
    """The labels of demonstrations in the file, by id; empty if no label is flipped."""

    def add(
        self, purpose: str, row: int, test: str, instance: Instance | None = None, *, left_out: int | None = None
    ) -> None:
        """Add the prompt of one item; ``left_out`` is the demonstration that is removed from its context."""
        demos, shown = self.demos, self.shown
        if left_out is not None:
            demos, shown = demos[:left_out] + demos[left_out + 1 :], shown[:left_out] + shown[left_out + 1 :]
        fitted = self.fitter.fit(self.head, shown, test)
        n_used, is_cut = fitted.n_demos_used, fitted.text is not None
        name = "all" if left_out is None else f"without{left_out}"
        if n_used < len(demos):
            name += f".first{n_used}"
        context_id = f"{self.place}/{'cut' if is_cut else name}"
        if context_id not in self.rows.contexts:
            kept = () if is_cut else demos[:n_used]
            self.rows.contexts[context_id] = {
                "context_id": context_id,
                **self.shared,
                "setting": None,
                "instruction": True,
                "text": "" if is_cut else self.head + "".join(shown[:n_used]),
                "demo_ids": [demo.id for demo in kept],
                "demo_labels": [demo.label for demo in kept],
                "n_tokens": 0 if is_cut else fitted.n_tokens - self.fitter.lengths.of(test),
                **({"demo_golds": [self.golds[demo.id] for demo in kept]} if self.golds else {}),
            }
        self.rows.prompts.append(
            {
                "prompt_id": f"{self.place}/{purpose}/{row}", "context_id": context_id, **self.shared,
                "purpose": purpose, "row": row, "instance_id": instance.id if instance else None,
                "gold": instance.label if instance else None, "labels": self.labels,
                "input_text": test if fitted.text is None else fitted.text, "n_demos_used": n_used,
                "is_truncated": is_cut, "n_tokens": fitted.n_tokens,
            }
        )  # fmt: skip


def _task_row(start: Start) -> dict[str, object]:
    task, splits = start.drawn.task, start.drawn.splits
    return {
        "task": task.name, "number": task.number, "run_key": task.run_key,
        "category": task.categories[0] if task.categories else None, "definition": task.definition,
        "labels": list(splits.labels), "n_instances": len(task.instances), "n_main": len(splits.main),
        "template": start.template, "template_source": start.template_source,
        "is_semantically_equivalent": task.name in suites.SEMANTICALLY_EQUIVALENT,
    }  # fmt: skip


def adapter_name(task: str, n_demos: int, demo_set: int) -> str:
    """Return the adapter's folder below ``adapters/``; the identifiers of its contexts have the same start."""
    return f"{task}/k{n_demos}.s{demo_set}"


def training_rows(
    task: Task,
    splits: Splits,
    n_demos: int,
    demo_set: int,
    n_examples: int,
    *,
    form: PromptFormat,
    fitter: PromptFitter,
) -> Iterator[dict[str, object]]:
    """Yield an adapter's rows of the table ``training_rows``, in the order of their positions in the pool.

    Prompts are those of evaluation: definition, as many of the set's demonstrations as the length limit allows, and the
    example's input. The ``n_examples`` are held out: none is a demonstration of the set (P1, section 3.3;
    protocol section 8).
    """
    shown = [form.demonstration(demo.texts, demo.label) for demo in splits.demonstration_set(n_demos, demo_set)]
    for row, position in enumerate(training_positions(n_demos, demo_set, n_examples)):
        example = splits.demonstrations[position]
        test = form.test(example.texts)
        fitted = fitter.fit(form.head, shown, test)
        whole = form.head + "".join(shown[: fitted.n_demos_used]) + test
        yield {
            "adapter": adapter_name(task.name, n_demos, demo_set), "task": task.name, "n_demos": n_demos,
            "demo_set": demo_set, "instruction": True, "row": row, "instance_id": example.id,
            "prompt": whole if fitted.text is None else fitted.text, "label": example.label,
            "labels": list(splits.labels), "n_demos_used": fitted.n_demos_used,
        }  # fmt: skip
