"""Measures a model on generated tasks by plain forward passes, for the model card and as a check on the platform.

One whole forward pass per prompt and label, metrics in NumPy: slow, short, and free of the platform's own scoring.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from biaseval.label_bias.templates import infer_template
from biaseval.prompting.calibration import CC_INPUTS, domain_context
from tests.bench.demo_models.tasks import DEMO_TASKS, DemoInstance, DemoTask, build_prompt, demo_instances

Probs = npt.NDArray[np.float64]
"""``[n_prompts, n_labels]``, each row sums to 1."""

METHODS = ("none", "cc", "dc", "looc")


@dataclass(frozen=True)
class Measured:
    """The metrics of one task, number of demonstrations, set and method (protocol of Reif & Schwartz 2024)."""

    task: str
    kind: str
    n_demos: int
    demo_set: int
    method: str
    macro_f1: float
    accuracy: float
    rsd: float
    bias_score: float


def measure(
    model: Any,
    tokenizer: Any,
    *,
    seed: int = 0,
    n_main: int = 96,
    n_demos: Sequence[int] = (0, 2, 4, 8, 16),
    demo_sets: int = 2,
    methods: Sequence[str] = METHODS,
) -> list[Measured]:
    """Return metrics on tasks generated with ``seed``; leave-one-out needs demonstrations and is absent without.

    Args:
        model: a causal LM.
        tokenizer: its tokenizer.
        seed: of the tasks.
        n_main: test instances per task.
        n_demos: numbers of demonstrations.
        demo_sets: sets of demonstrations for each of them.
        methods: which of ``METHODS``.
    """
    return [
        row
        for task in DEMO_TASKS
        for k in n_demos
        for demo_set in range(demo_sets if k else 1)
        for row in _measure_setting(model, tokenizer, task, seed, n_main, k, demo_set, methods)
    ]


def label_probs(model: Any, tokenizer: Any, prompts: Sequence[str], labels: Sequence[str]) -> Probs:
    """Return the probabilities of labels: mean log-probability of label tokens and EOS, normalised over labels."""
    import torch

    texts = [(prompt, f"{prompt} {label}{tokenizer.eos_token}") for prompt in prompts for label in labels]
    rows = [(len(tokenizer(prompt)["input_ids"]), tokenizer(text)["input_ids"]) for prompt, text in texts]
    means = np.zeros(len(rows))
    order = sorted(range(len(rows)), key=lambda index: len(rows[index][1]))
    for first in range(0, len(order), 16):
        chosen = order[first : first + 16]
        width = len(rows[chosen[-1]][1])
        # Padding stands on the right, where a causal model does not look.
        ids = torch.tensor([rows[index][1] + [0] * (width - len(rows[index][1])) for index in chosen])
        with torch.inference_mode():
            hidden = model.model(ids).last_hidden_state
            for place, index in enumerate(chosen):
                n_context, text_ids = rows[index]
                logits = model.lm_head(hidden[place, n_context - 1 : len(text_ids) - 1]).float()
                targets = torch.tensor(text_ids[n_context:])
                means[index] = float(logits.log_softmax(-1)[range(len(targets)), targets].mean())
    probs = np.exp(means.reshape(len(prompts), len(labels)))
    return np.asarray(probs / probs.sum(axis=1, keepdims=True))


def table(rows: Iterable[Measured], *, by: Sequence[str] = ("kind", "n_demos", "method")) -> str:
    """Return a Markdown table of means over tasks and sets."""
    metrics = ("macro_f1", "accuracy", "rsd", "bias_score")
    groups: dict[tuple[object, ...], list[Measured]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in by), []).append(row)
    lines = ["| " + " | ".join((*by, *metrics)) + " |", "|---" * (len(by) + len(metrics)) + "|"]
    for group, members in groups.items():
        means = [f"{np.mean([getattr(member, metric) for member in members]):.3f}" for metric in metrics]
        lines.append("| " + " | ".join([*map(str, group), *means]) + " |")
    return "\n".join(lines)


def _measure_setting(
    model: Any,
    tokenizer: Any,
    task: DemoTask,
    seed: int,
    n_main: int,
    n_demos: int,
    demo_set: int,
    methods: Sequence[str],
) -> list[Measured]:
    instances = demo_instances(task, seed=seed)
    demos = instances[n_demos * demo_set : n_demos * (demo_set + 1)]
    held_out, main = instances[64:96], instances[96 : 96 + n_main]
    labels = sorted(task.labels)

    def probs(inputs: Sequence[str], shown: Sequence[DemoInstance] = demos) -> Probs:
        pairs = [(demo.input, demo.label) for demo in shown]
        return label_probs(model, tokenizer, [build_prompt(task.definition, pairs, text) for text in inputs], labels)

    main_inputs = [row.input for row in main]
    main_probs, held_out_probs = probs(main_inputs), probs([row.input for row in held_out])
    measured = []
    for method in methods:
        if method == "none":
            prior = np.ones(len(labels))
        elif method == "cc":
            prior = probs(CC_INPUTS).mean(axis=0)
        elif method == "dc":
            template = task.template or infer_template(main_inputs)
            context = domain_context(task.name, template, main_inputs)
            prior = probs(context.draw(np.random.default_rng(seed))).mean(axis=0)
        elif n_demos:
            left_out = [probs([demo.input], [*demos[:j], *demos[j + 1 :]])[0] for j, demo in enumerate(demos)]
            prior = _mean_of_classes(np.array(left_out), [demo.label for demo in demos])
        else:
            continue
        measured.append(
            Measured(
                task.name,
                task.kind,
                n_demos,
                demo_set,
                method,
                *_performance(_calibrated(main_probs, prior), labels, [row.label for row in main]),
                _bias_score(_calibrated(held_out_probs, prior), [row.label for row in held_out]),
            )
        )
    return measured


def _calibrated(probs: Probs, prior: npt.NDArray[np.float64]) -> Probs:
    weighted = probs / prior
    return np.asarray(weighted / weighted.sum(axis=1, keepdims=True))


def _mean_of_classes(probs: Probs, gold: Sequence[str]) -> npt.NDArray[np.float64]:
    classes = sorted(set(gold))
    means = [probs[[label == wanted for label in gold]].mean(axis=0) for wanted in classes]
    return np.asarray(np.mean(means, axis=0))


def _performance(probs: Probs, labels: Sequence[str], gold: Sequence[str]) -> tuple[float, float, float]:
    """Return macro-F1, accuracy and RSD over the labels present in ``gold``."""
    predicted = np.array(labels)[probs.argmax(axis=1)]
    truth = np.array(gold)
    present = sorted(set(gold))
    hits = np.array([np.sum((predicted == label) & (truth == label)) for label in present])
    n_true = np.array([np.sum(truth == label) for label in present])
    n_predicted = np.array([np.sum(predicted == label) for label in present])
    accuracy = float(hits.sum() / len(gold))
    rsd = float(np.std(hits / n_true) / accuracy) if accuracy else 0.0
    return float(np.mean(2 * hits / (n_true + n_predicted))), accuracy, rsd


def _bias_score(probs: Probs, gold: Sequence[str]) -> float:
    """Return half the L1 distance of the class-balanced mean probabilities from uniform."""
    return float(0.5 * np.abs(_mean_of_classes(probs, gold) - 1 / probs.shape[1]).sum())
