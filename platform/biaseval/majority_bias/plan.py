"""Plan everything that a majority-bias run scores, as tables: settings, contexts and prompts, one setting at a time."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from biaseval.inputs.chat import asked_format, chat_cautions
from biaseval.inputs.files import Example
from biaseval.inputs.template import PromptFormat
from biaseval.majority_bias.data import Dataset, stream
from biaseval.majority_bias.prompts import item_fields, template_of
from biaseval.majority_bias.proportions import Setting, same_counts, settings_of
from biaseval.prompting.beginnings import bos_cautions
from biaseval.prompting.calibration import SLOT, Inputs, domain_context, leaves_one_out, purposes_of, shared_inputs
from biaseval.prompting.labels import flipped, label_problem, separator
from biaseval.prompting.lengths import JOINT_MARGIN, PieceLengths, TokenCounter, merge_margin
from biaseval.prompting.matching import N_NEW_TOKENS
from biaseval.prompting.parts import Cutting, PlannedPart
from biaseval.spec import MajorityBiasSpec
from biaseval.tables import CONTEXTS, SETTINGS, TRAINING_ROWS


@dataclass(frozen=True)
class SettingPlan:
    """The rows that one setting adds to the run."""

    setting: str
    settings: pa.Table
    contexts: pa.Table
    training_rows: pa.Table
    """The rows of all its adapters, in their order, without ``n_tokens``; empty in a run without adapters."""
    parts: list[PlannedPart]
    notes: list[str]
    """Notes for readers of the results."""
    problems: list[str] = field(default_factory=list)
    """Reasons why the run cannot be scored, in the plan of the last setting."""


def plan_settings(
    spec: MajorityBiasSpec, dataset: Dataset, tokenizer: Any, window: int | None
) -> Iterator[SettingPlan]:
    """Yield the plan of each setting, in the order of the grid, with one setting in memory at a time.

    The demonstrations of a (setting, seed) are drawn and ordered once: they are the context of every test row, with and
    without instruction. ``tokenizer`` is a Hugging Face tokenizer, and ``window`` the model's limit in tokens, None if
    it is unknown.

    Raises:
        InputError: before the first plan: the grid does not fit the labels, a label has too few examples, or an
            instruction is missing. The last plan has the other problems: labels with the same tokens, and prompts that
            exceed the window.
    """
    settings = settings_of(spec, dataset.labels, dataset.available())
    planner = _Planner(spec, dataset, tokenizer, window, len(settings))
    duplicates = {names[0]: names for names in same_counts(settings)}
    for setting in settings:
        plan = planner.plan(setting)
        if setting.name in duplicates:
            *names, last = duplicates[setting.name]
            plan.notes.append(
                f"with n_demos {spec.prompt.n_demos}, {', '.join(names)} and {last} have the same counts of "
                f"demonstrations ({'/'.join(map(str, setting.counts))}); they count as several settings and are one"
            )
        if setting is settings[-1]:
            plan.problems.extend(planner.problems())
            plan.notes.extend(planner.cautions())
        yield plan


def draw_demonstrations(dataset: Dataset, setting: Setting, *, seed: int, run_seed: int) -> tuple[Example, ...]:
    """Return the demonstrations of a setting, in the order of the prompt.

    Each label's demonstrations are drawn without replacement from its training examples. Then all are shuffled, because
    the position of a label matters (recency). ``seed`` is one of the spec's ``seeds``, and ``run_seed`` its ``seed``.
    The data set has at least the setting's number of examples of each label.
    """
    generator = np.random.default_rng([seed, run_seed, setting.number])
    drawn: list[Example] = []
    for label, count in zip(setting.labels, setting.counts, strict=True):
        of_label = [example for example in dataset.train if example.label == label]
        drawn += [of_label[index] for index in generator.choice(len(of_label), count, replace=False)]
    return tuple(drawn[index] for index in generator.permutation(len(drawn)))


@dataclass(frozen=True)
class _Context:
    """A prompt prefix and the inputs after it."""

    row: dict[str, Any]
    demo_tokens: int
    """The number of its tokens without instruction and special tokens."""
    prompts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def n_demos(self) -> int:
        """The number of its demonstrations."""
        return len(self.row["demo_ids"])


class _Planner:
    def __init__(
        self, spec: MajorityBiasSpec, dataset: Dataset, tokenizer: Any, window: int | None, n_settings: int
    ) -> None:
        self._spec = spec
        self._n_settings = n_settings
        self._dataset = dataset
        self._tokenizer = tokenizer
        self._formats = {instruction: self._format(instruction=instruction) for instruction in spec.prompt.instruction}
        self._lengths = PieceLengths(TokenCounter(tokenizer))
        self._test_items = {
            instruction: [own.test(example.fields) for example in dataset.test]
            for instruction, own in self._formats.items()
        }
        self._free_inputs = self._calibration_inputs()
        self._window = _Window(spec, dataset.labels, tokenizer, window)
        self._label_tokens = self._lengths.with_eos(dataset.labels)
        self._n_missing_examples = 0
        self._golds = {example.id: example.label for example in dataset.train} if spec.prompt.flip else {}

    def plan(self, setting: Setting) -> SettingPlan:
        """Return the plan of one setting, and remember problems of its prompts."""
        groups = {}
        training: list[dict[str, object]] = []
        for seed in self._spec.seeds:
            demos = draw_demonstrations(self._dataset, setting, seed=seed, run_seed=self._spec.seed)
            if share := self._spec.prompt.flip:
                flips = stream(self._spec.seed, f"flip/{setting.name}", seed)
                shown = flipped([demo.label for demo in demos], self._dataset.labels, share, flips)
                demos = tuple(replace(demo, label=label) for demo, label in zip(demos, shown, strict=True))
            for instruction in self._spec.prompt.instruction:
                own = self._contexts(setting, seed, demos, instruction=instruction)
                # The adapter's folder below ``adapters/``.
                adapter = f"{setting.name.replace('/', '-')}/s{seed}.{'with' if instruction else 'without'}"
                groups[adapter] = own
                if self._spec.lora is not None:
                    training += self._training_rows(adapter, own[0], seed, demos, self._spec.lora.n_examples)
        contexts = [context for group in groups.values() for context in group]
        for context in contexts:
            self._window.check(context)
        notes = []
        if setting.counts != setting.counts_asked:
            notes.append(
                f"setting {setting.name}: {sum(setting.counts)} of {sum(setting.counts_asked)} demonstrations, as "
                "data.train has too few examples of a label"
            )
        return SettingPlan(
            setting=setting.name,
            settings=SETTINGS.rows([setting.row()]),
            contexts=CONTEXTS.rows([context.row for context in contexts]),
            training_rows=TRAINING_ROWS.rows(training),
            parts=self._parts(groups),
            notes=notes,
        )

    def problems(self) -> list[str]:
        """Return the reasons why the run cannot be scored."""
        problems = []
        if problem := label_problem(self._tokenizer, next(iter(self._test_items.values()))[0], self._dataset.labels):
            problems.append(
                f"{self._spec.name}: {problem}, so its scores would say nothing; change data.labels, or choose a model "
                "whose tokenizer tells its labels apart"
            )
        if problem := self._window.problem():
            problems.append(problem)
        if self._n_missing_examples:
            problems.append(
                f"lora.n_examples: {self._n_missing_examples} training examples are missing beside the demonstrations: "
                f"data.train has {len(self._dataset.train)} that may be either; lower lora.n_examples or prompt.n_demos"
            )
        return problems

    def cautions(self) -> list[str]:
        """Return cautions about the prompts for readers of the results."""
        begins = (form.head or test for name, form in self._formats.items() for test in self._test_items[name])
        chats = dict.fromkeys(caution for form in self._formats.values() for caution in chat_cautions(form))
        return [*chats, *bos_cautions(self._tokenizer, begins)]

    def _format(self, *, instruction: bool) -> PromptFormat:
        template = template_of(self._spec.prompt, self._dataset.definition, instruction=instruction)
        sample = self._dataset.test[0]
        return asked_format(self._spec.model, template, self._tokenizer, (sample.fields, sample.label))

    def _calibration_inputs(self) -> dict[str, Inputs]:
        """Return the calibration inputs that every context shares, by method."""
        asked, own = self._spec.calibration, self._spec.own_calibrations
        seed, fields = self._spec.seed, item_fields(self._spec.prompt)
        words = {}
        if any(purpose.needs_words for purpose in purposes_of(asked, own)):
            texts = {name: [example.fields[name] for example in self._dataset.test] for name in fields}
            words = {name: domain_context(self._spec.name, SLOT, own) for name, own in texts.items()}
        return shared_inputs(asked, fields, words, lambda method: stream(seed, method), own)

    def _contexts(self, setting: Setting, seed: int, demos: Sequence[Example], *, instruction: bool) -> list[_Context]:
        """Return the contexts of one (setting, seed, instruction) with their prompts."""
        place = f"{self._spec.name}/{setting.name.replace('/', '-')}/s{seed}/{'with' if instruction else 'without'}"
        shared = {"task": self._spec.name, "n_demos": self._spec.prompt.n_demos, "demo_set": seed}
        own = self._formats[instruction]
        shown = [own.demonstration(demo.fields, demo.label) for demo in demos]
        lengths = [self._lengths.of(item) for item in shown]
        head = self._lengths.n_special + self._lengths.of(own.head)

        def context(name: str, kept: Sequence[int]) -> _Context:
            demo_tokens = sum(lengths[index] for index in kept)
            row = {
                "context_id": f"{place}/{name}",
                **shared,
                "setting": setting.name,
                "instruction": instruction,
                "text": own.head + "".join(shown[index] for index in kept),
                "demo_ids": [demos[index].id for index in kept],
                "demo_labels": [demos[index].label for index in kept],
                "n_tokens": head + demo_tokens,
                **({"demo_golds": [self._golds[demos[index].id] for index in kept]} if self._golds else {}),
            }
            return _Context(row, demo_tokens)

        def add(to: _Context, purpose: str, row: int, text: str, example: Example | None = None) -> None:
            to.prompts.append(
                {
                    "prompt_id": f"{place}/{purpose}/{row}", "context_id": to.row["context_id"], **shared,
                    "purpose": purpose, "row": row, "instance_id": example.id if example else None,
                    "gold": example.label if example else None, "labels": list(self._dataset.labels),
                    "input_text": text, "n_demos_used": to.n_demos, "is_truncated": False,
                    "n_tokens": to.row["n_tokens"] + self._lengths.of(text),
                }
            )  # fmt: skip

        everything = list(range(len(demos)))
        full = context("all", everything)
        for row, (text, example) in enumerate(zip(self._test_items[instruction], self._dataset.test, strict=True)):
            add(full, "majority", row, text, example)
        for purpose, inputs in self._free_inputs.items():
            for row, fields in enumerate(inputs):
                add(full, purpose, row, own.test(fields))
        contexts = [full]
        planned = purposes_of(self._spec.calibration, self._spec.own_calibrations)
        left_out = [one.name for one in planned if leaves_one_out(one.name)]
        for row in everything if left_out else ():
            contexts.append(context(f"without{row}", everything[:row] + everything[row + 1 :]))
            for method in left_out:
                add(contexts[-1], method, row, own.test(demos[row].fields), demos[row])
        return contexts

    def _training_rows(
        self, adapter: str, context: _Context, seed: int, demos: Sequence[Example], n_examples: int
    ) -> Iterator[dict[str, object]]:
        """Yield an adapter's rows of the table ``training_rows``; ``context`` is that of its test rows.

        The examples are the first that no demonstration shows, in an order that depends only on the seeds. So adapters
        of a seed differ by their contexts, and by an example only if a context shows that example.
        """
        own, train = self._formats[context.row["instruction"]], self._dataset.train
        order = stream(self._spec.seed, "lora", seed).permutation(len(train))
        shown = {demo.id for demo in demos}
        examples = list(islice((train[index] for index in order if train[index].id not in shown), n_examples))
        self._n_missing_examples = max(self._n_missing_examples, n_examples - len(examples))
        for row, example in enumerate(examples):
            yield {
                "adapter": adapter,
                **{name: context.row[name] for name in ("task", "n_demos", "demo_set", "setting", "instruction")},
                "row": row,
                "instance_id": example.id,
                "prompt": f"{context.row['text']}{own.test(example.fields)}",
                "label": example.label,
                "labels": list(self._dataset.labels),
                "n_demos_used": context.n_demos,
            }

    def _parts(self, groups: Mapping[str, Sequence[_Context]]) -> list[PlannedPart]:
        """Return the prompts in parts; those of one draw stay together if a part can hold them.

        With adapters, no part has prompts of two draws.
        """
        draws = [
            (adapter, [prompt for context in group for prompt in context.prompts]) for adapter, group in groups.items()
        ]
        together: list[tuple[str | None, list[list[dict[str, Any]]]]] = [(None, [rows for _, rows in draws])]
        if self._spec.lora is not None:
            together = [(adapter, [rows]) for adapter, rows in draws]
        cutting = Cutting(
            part_rows=self._spec.execution.part_rows,
            n_groups=self._n_settings * len(together),
            n_labels=len(self._dataset.labels),
            label_tokens=self._label_tokens,
            context_tokens={
                context.row["context_id"]: context.row["n_tokens"] for group in groups.values() for context in group
            },
        )
        return [
            part
            for adapter, blocks in together
            for part in cutting.parts(list(chain.from_iterable(blocks)), list(map(len, blocks)), adapter)
        ]


class _Window:
    """Find the prompts that exceed the model's window together with their answer."""

    def __init__(self, spec: MajorityBiasSpec, labels: Sequence[str], tokenizer: Any, window: int | None) -> None:
        self._spec = spec
        self._counter = TokenCounter(tokenizer)
        self._window = window
        counts = self._counter.count_bare([f" {label}" for label in labels])
        longest, self._longest_label = max(zip(counts, labels, strict=True))
        self._n_new = max(longest + 1, N_NEW_TOKENS)
        self._n_over = self._worst = 0
        self._first = ""
        self._n_fitting = spec.prompt.n_demos

    def check(self, context: _Context) -> None:
        """Count the prompts of one context that do not fit.

        Lengths summed over pieces decide, except near the window. There the error of the sum is measured on the longest
        prompt, and prompts within a joint's error of the window are tokenised whole.
        """
        guesses = [prompt["n_tokens"] + self._n_new for prompt in context.prompts]
        if self._window is None or max(guesses) + merge_margin(context.n_demos) <= self._window:
            return
        longest = max(range(len(guesses)), key=guesses.__getitem__)
        offset = self._needed(context, longest) - guesses[longest]
        worst = 0
        for index, guess in enumerate(guesses):
            needed = guess + offset
            if abs(needed - self._window) <= JOINT_MARGIN:
                needed = self._needed(context, index)
            if needed > self._window:
                self._n_over += 1
                self._first = self._first or context.prompts[index]["prompt_id"]
                worst = max(worst, needed)
        self._worst = max(self._worst, worst)
        if worst and context.n_demos:
            n_too_many = math.ceil((worst - self._window) * context.n_demos / context.demo_tokens)
            self._n_fitting = min(self._n_fitting, context.n_demos - n_too_many)

    def problem(self) -> str | None:
        """Return advice about the prompts that do not fit, or None."""
        if not self._n_over:
            return None
        remedy = f"prompt.n_demos to about {self._n_fitting}" if self._n_fitting > 0 else "prompt.n_demos"
        return (
            f"prompt.n_demos {self._spec.prompt.n_demos}: {self._n_over} prompts need up to {self._worst} tokens with "
            f"their answer (first: {self._first}) and the model's window has {self._window}; lower {remedy}, take long "
            "examples out, or choose a model with a longer window"
        )

    def _needed(self, context: _Context, index: int) -> int:
        """Return the tokens of a prompt with its longest label and EOS, or with its generated tokens."""
        text = f"{context.row['text']}{context.prompts[index]['input_text']}"
        labelled = f"{text}{separator(text, self._longest_label)}{self._longest_label}"
        return max(self._counter.count(labelled) + 1, self._counter.count(text) + N_NEW_TOKENS)
