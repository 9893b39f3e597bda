"""Everything that a majority-bias run scores, as tables: settings, contexts and prompts, one setting at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from biaseval.errors import InputError
from biaseval.label_bias.calibration import CC_INPUTS, domain_context
from biaseval.label_bias.plan import PlannedPart, label_problem
from biaseval.label_bias.prompts import TokenCounter, merge_margin
from biaseval.label_bias.templates import SLOT
from biaseval.majority_bias.data import Dataset, Example, stream
from biaseval.majority_bias.prompts import item_fields, template_of
from biaseval.majority_bias.proportions import Setting, same_counts, settings_of
from biaseval.spec import N_NEW_TOKENS, MajorityBiasSpec
from biaseval.tables import CONTEXTS, PROMPTS, SETTINGS, TRAINING_ROWS

_ROWS_PER_PART = 512
_SCORES_PER_PART = 2048
_JOINT_MARGIN = 8


@dataclass(frozen=True)
class SettingPlan:
    """What one setting adds to the run."""

    setting: str
    settings: pa.Table
    contexts: pa.Table
    training_rows: pa.Table
    """Of all its adapters, in their order, without ``n_tokens``; none in a run without adapters."""
    parts: list[PlannedPart]
    notes: list[str]
    """What a reader of the results should know, in words."""

    @property
    def n_prompts(self) -> int:
        """Scored inputs."""
        return sum(part.prompts.num_rows for part in self.parts)

    @property
    def n_scores(self) -> int:
        """(prompt, label) pairs."""
        return sum(int(pa.compute.list_value_length(part.prompts["labels"]).to_numpy().sum()) for part in self.parts)


def plan_settings(
    spec: MajorityBiasSpec, dataset: Dataset, tokenizer: Any, window: int | None
) -> Iterator[SettingPlan]:
    """Yield the plan of each setting, in the order of the grid; one setting is in memory at a time.

    The demonstrations of a (setting, seed) are drawn and put in order once: they are the context of every test row,
    with and without instruction.

    Args:
        spec: the run's spec.
        dataset: what `read_dataset` found for it.
        tokenizer: the model's Hugging Face tokenizer.
        window: tokens that the model can take; None if unknown.

    Raises:
        InputError: the grid does not fit the labels, a label has too few examples, an instruction is missing; after
            the last setting, labels that the tokenizer does not tell apart, and prompts that do not fit the window.
    """
    planner = _Planner(spec, dataset, tokenizer, window)
    settings = settings_of(spec, dataset.labels, dataset.available())
    duplicates = {names[0]: names for names in same_counts(settings)}
    for setting in settings:
        plan = planner.plan(setting)
        if setting.name in duplicates:
            *names, last = duplicates[setting.name]
            plan.notes.append(
                f"with n_demos {spec.prompt.n_demos}, {', '.join(names)} and {last} have the same counts of "
                f"demonstrations ({'/'.join(map(str, setting.counts))}); they count as several settings and are one"
            )
        yield plan
    if problems := planner.problems():
        raise InputError.of(problems)


def draw_demonstrations(dataset: Dataset, setting: Setting, *, seed: int, run_seed: int) -> tuple[Example, ...]:
    """Return the demonstrations of a setting, in the order of the prompt.

    Each label's are drawn without replacement from its training examples; then all are shuffled, as where a label
    stands matters (recency).

    Args:
        dataset: with at least the setting's number of examples of each label.
        setting: how many of each label.
        seed: one of ``seeds``.
        run_seed: the spec's ``seed``.
    """
    generator = np.random.default_rng([seed, run_seed, setting.number])
    drawn: list[Example] = []
    for label, count in zip(setting.labels, setting.counts, strict=True):
        of_label = [example for example in dataset.train if example.label == label]
        drawn += [of_label[index] for index in generator.choice(len(of_label), count, replace=False)]
    return tuple(drawn[index] for index in generator.permutation(len(drawn)))


def draw_examples(
    dataset: Dataset, demos: Sequence[Example], n_examples: int, *, seed: int, run_seed: int
) -> tuple[Example, ...]:
    """Return what an adapter is trained on beside these demonstrations, none of which is among it.

    The examples are the first of an order of ``train`` that depends on the seeds alone. So adapters of a seed differ by
    their contexts, and by an example only where that is one of the demonstrations.

    Args:
        dataset: with more training examples than there are demonstrations.
        demos: the demonstrations of the adapter's context.
        n_examples: how many to return, at most.
        seed: one of ``seeds``.
        run_seed: the spec's ``seed``.
    """
    order = stream(run_seed, "lora", seed).permutation(len(dataset.train))
    shown = {demo.id for demo in demos}
    free = (dataset.train[index] for index in order if dataset.train[index].id not in shown)
    return tuple(islice(free, n_examples))


def _adapter_name(setting: Setting, seed: int, *, instruction: bool) -> str:
    """Return the adapter's folder below ``adapters/``."""
    return f"{setting.name.replace('/', '-')}/s{seed}.{'with' if instruction else 'without'}"


@dataclass(frozen=True)
class _Context:
    """A prompt prefix and the inputs behind it."""

    row: dict[str, object]
    n_demos: int
    tokens: int
    demo_tokens: int
    """Of ``tokens``, without instruction and special tokens."""
    prompts: list[dict[str, object]] = field(default_factory=list)
    prompt_tokens: list[int] = field(default_factory=list)
    """Of context and input."""


class _Planner:
    def __init__(self, spec: MajorityBiasSpec, dataset: Dataset, tokenizer: Any, window: int | None) -> None:
        self._spec = spec
        self._dataset = dataset
        self._template = template_of(spec.prompt, dataset.definition)
        self._tokenizer = tokenizer
        self._lengths = _Lengths(TokenCounter(tokenizer))
        self._test_items = [self._template.test_item(example.fields) for example in dataset.test]
        self._free_items = self._calibration_items()
        self._window = _Window(spec, dataset.labels, tokenizer, window)
        self._label_tokens = sum(self._lengths.of(f" {label}") + 1 for label in dataset.labels)
        self._n_missing_examples = 0

    def plan(self, setting: Setting) -> SettingPlan:
        """Return the plan of one setting, and remember what keeps its prompts from being scored."""
        groups = {}
        training: list[dict[str, object]] = []
        for seed in self._spec.seeds:
            demos = draw_demonstrations(self._dataset, setting, seed=seed, run_seed=self._spec.seed)
            for instruction in self._spec.prompt.instruction:
                own = self._contexts(setting, seed, demos, instruction=instruction)
                adapter = _adapter_name(setting, seed, instruction=instruction)
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
        """Return what keeps the run from being scored."""
        problem = label_problem(self._tokenizer, self._test_items[0], self._dataset.labels)
        problems = [
            problem
            and f"{self._spec.name}: {problem}, so its scores would say nothing; change data.labels, or choose a model "
            "whose tokenizer tells its labels apart",
            self._window.problem(),
            self._examples_problem(),
        ]
        return [problem for problem in problems if problem]

    def _examples_problem(self) -> str | None:
        if not self._n_missing_examples:
            return None
        return (
            f"lora.n_examples: {self._n_missing_examples} training examples are missing beside the demonstrations: "
            f"data.train has {len(self._dataset.train)} that may be either; lower lora.n_examples or prompt.n_demos"
        )

    def _calibration_items(self) -> dict[str, list[str]]:
        """Return the inputs of cc and dc, the same for every context; each field of the prompt gets such a text."""
        fields = item_fields(self._spec.prompt)
        items: dict[str, list[str]] = {}
        if "cc" in self._spec.calibration:
            items["cc"] = [self._template.test_item(dict.fromkeys(fields, text)) for text in CC_INPUTS]
        if "dc" in self._spec.calibration:
            generator = stream(self._spec.seed, "dc")
            by_field = {name: [example.fields[name] for example in self._dataset.test] for name in fields}
            drawn = {
                name: domain_context(self._spec.name, SLOT, texts).draw(generator) for name, texts in by_field.items()
            }
            items["dc"] = [
                self._template.test_item(dict(zip(fields, texts, strict=True)))
                for texts in zip(*drawn.values(), strict=True)
            ]
        return items

    def _contexts(self, setting: Setting, seed: int, demos: Sequence[Example], *, instruction: bool) -> list[_Context]:
        """Return the contexts of one (setting, seed, instruction) with their prompts."""
        place = f"{self._spec.name}/{setting.name.replace('/', '-')}/s{seed}/{'with' if instruction else 'without'}"
        shared = {
            "task": self._spec.name,
            "n_demos": self._spec.prompt.n_demos,
            "demo_set": seed,
        }
        shown = [self._template.demonstration(demo.fields, demo.label) for demo in demos]
        lengths = [self._lengths.of(item + self._template.separator) for item in shown]
        head = self._lengths.n_special + self._lengths.of(self._template.context((), instruction=instruction))

        def context(name: str, kept: Sequence[int]) -> _Context:
            demo_tokens = sum(lengths[index] for index in kept)
            row = {
                "context_id": f"{place}/{name}",
                **shared,
                "setting": setting.name,
                "instruction": instruction,
                "text": self._template.context([shown[index] for index in kept], instruction=instruction),
                "demo_ids": [demos[index].id for index in kept],
                "demo_labels": [demos[index].label for index in kept],
                "n_tokens": head + demo_tokens,
            }
            return _Context(row, len(kept), head + demo_tokens, demo_tokens)

        def add(to: _Context, purpose: str, row: int, text: str, example: Example | None = None) -> None:
            n_tokens = to.tokens + self._lengths.of(text)
            to.prompts.append(
                {
                    "prompt_id": f"{place}/{purpose}/{row}",
                    "context_id": to.row["context_id"],
                    **shared,
                    "purpose": purpose,
                    "row": row,
                    "instance_id": example.id if example else None,
                    "gold": example.label if example else None,
                    "labels": list(self._dataset.labels),
                    "input_text": text,
                    "n_demos_used": to.n_demos,
                    "is_truncated": False,
                    "n_tokens": n_tokens,
                }
            )
            to.prompt_tokens.append(n_tokens)

        everything = list(range(len(demos)))
        full = context("all", everything)
        for row, (text, example) in enumerate(zip(self._test_items, self._dataset.test, strict=True)):
            add(full, "majority", row, text, example)
        for purpose, items in self._free_items.items():
            for row, text in enumerate(items):
                add(full, purpose, row, text)
        contexts = [full]
        for row in everything if "looc" in self._spec.calibration else ():
            contexts.append(context(f"without{row}", everything[:row] + everything[row + 1 :]))
            add(contexts[-1], "looc", row, self._template.test_item(demos[row].fields), demos[row])
        return contexts

    def _training_rows(
        self, adapter: str, context: _Context, seed: int, demos: Sequence[Example], n_examples: int
    ) -> Iterator[dict[str, object]]:
        """Yield the rows of the table ``training_rows`` of one adapter; ``context`` is that of its test rows."""
        examples = draw_examples(self._dataset, demos, n_examples, seed=seed, run_seed=self._spec.seed)
        if len(examples) < n_examples:
            self._n_missing_examples = max(self._n_missing_examples, n_examples - len(examples))
        for row, example in enumerate(examples):
            yield {
                "adapter": adapter,
                **{name: context.row[name] for name in ("task", "n_demos", "demo_set", "setting", "instruction")},
                "row": row,
                "instance_id": example.id,
                "prompt": f"{context.row['text']}{self._template.test_item(example.fields)}",
                "label": example.label,
                "labels": list(self._dataset.labels),
                "n_demos_used": context.n_demos,
            }

    def _parts(self, groups: Mapping[str, Sequence[_Context]]) -> list[PlannedPart]:
        """Return the prompts in parts; those of one draw stay together where a part holds them.

        With adapters, no part has prompts of two draws.
        """
        asked = self._spec.execution.part_rows
        automatic = max(32, min(_ROWS_PER_PART, _SCORES_PER_PART // len(self._dataset.labels)))
        limit = automatic if asked == "auto" else asked
        parts: list[PlannedPart] = []
        rows: list[tuple[_Context, int]] = []
        for adapter, group in groups.items():
            own = [(context, index) for context in group for index in range(len(context.prompts))]
            if rows and len(rows) + len(own) > limit:
                parts.append(self._part(rows))
                rows = []
            rows += own
            is_own = self._spec.lora is not None
            while len(rows) > limit or (is_own and rows):
                parts.append(self._part(rows[:limit], adapter if is_own else None))
                rows = rows[limit:]
        if rows:
            parts.append(self._part(rows))
        return parts

    def _part(self, rows: Sequence[tuple[_Context, int]], adapter: str | None = None) -> PlannedPart:
        contexts = {str(context.row["context_id"]): context.tokens for context, _ in rows}
        tokens = [context.prompt_tokens[index] for context, index in rows]
        labels = len(rows) * self._label_tokens
        return PlannedPart(
            prompts=PROMPTS.rows([context.prompts[index] for context, index in rows]),
            tokens=sum(contexts.values()) + sum(tokens) - sum(context.tokens for context, _ in rows) + labels,
            tokens_unshared=len(self._dataset.labels) * sum(tokens) + labels,
            adapter=adapter,
        )


class _Lengths:
    """Tokens of the pieces of prompts, each counted once."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._known: dict[str, int] = {"": 0}
        self.n_special = counter.count("x") - counter.count_bare(["x"])[0]

    def of(self, piece: str) -> int:
        """Return the number of tokens of a piece, special tokens left out."""
        if piece not in self._known:
            (self._known[piece],) = self._counter.count_bare([piece])
        return self._known[piece]


class _Window:
    """Finds the prompts that do not fit the model's window together with their answer."""

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

        Lengths summed over pieces decide, except near the window: there the error of the sum is measured on the
        longest prompt, and prompts that come within a joint of the window are tokenised whole.
        """
        guesses = [tokens + self._n_new for tokens in context.prompt_tokens]
        if self._window is None or max(guesses) + merge_margin(context.n_demos) <= self._window:
            return
        longest = max(range(len(guesses)), key=guesses.__getitem__)
        offset = self._needed(context, longest) - guesses[longest]
        worst = 0
        for index, guess in enumerate(guesses):
            needed = guess + offset
            if abs(needed - self._window) <= _JOINT_MARGIN:
                needed = self._needed(context, index)
            if needed > self._window:
                self._n_over += 1
                self._first = self._first or str(context.prompts[index]["prompt_id"])
                worst = max(worst, needed)
        self._worst = max(self._worst, worst)
        if worst and context.n_demos:
            n_too_many = math.ceil((worst - self._window) * context.n_demos / context.demo_tokens)
            self._n_fitting = min(self._n_fitting, context.n_demos - n_too_many)

    def problem(self) -> str | None:
        """Return what to do about the prompts that do not fit, or None."""
        if not self._n_over:
            return None
        remedy = f"prompt.n_demos to about {self._n_fitting}" if self._n_fitting > 0 else "prompt.n_demos"
        return (
            f"prompt.n_demos {self._spec.prompt.n_demos}: {self._n_over} prompts need up to {self._worst} tokens with "
            f"their answer (first: {self._first}) and the model's window has {self._window}; lower {remedy}, take long "
            "examples out, or choose a model with a longer window"
        )

    def _needed(self, context: _Context, index: int) -> int:
        """Return the tokens of a prompt with its longest label and EOS, or with the tokens generated."""
        from biaseval.scoring.encoding import separator

        text = f"{context.row['text']}{context.prompts[index]['input_text']}"
        labelled = f"{text}{separator(text, self._longest_label)}{self._longest_label}"
        return max(self._counter.count(labelled) + 1, self._counter.count(text) + N_NEW_TOKENS)
