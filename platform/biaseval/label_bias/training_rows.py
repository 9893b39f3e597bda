"""The training rows of each adapter of a label-bias run: evaluation prompts with their labels (protocol section 8)."""

from collections.abc import Iterator

from biaseval.inputs.template import PromptFormat
from biaseval.label_bias.prompts import PromptFitter
from biaseval.label_bias.splits import Splits
from biaseval.prompting.task_files import Task
from biaseval.spec import training_positions


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
    example's input. The ``n_examples`` are held out: none is a demonstration of the set (P1, section 3.3).
    """
    shown = [form.demonstration(demo.texts, demo.label) for demo in splits.demonstration_set(n_demos, demo_set)]
    for row, position in enumerate(training_positions(n_demos, demo_set, n_examples)):
        example = splits.demonstrations[position]
        test = form.test(example.texts)
        fitted = fitter.fit(form.head, shown, test)
        whole = form.head + "".join(shown[: fitted.n_demos_used]) + test
        yield {
            "adapter": adapter_name(task.name, n_demos, demo_set),
            "task": task.name,
            "n_demos": n_demos,
            "demo_set": demo_set,
            "instruction": True,
            "row": row,
            "instance_id": example.id,
            "prompt": whole if fitted.text is None else fitted.text,
            "label": example.label,
            "labels": list(splits.labels),
            "n_demos_used": fitted.n_demos_used,
        }
