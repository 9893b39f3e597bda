"""Turn imported scores into the tables of a label-bias run, one task at a time. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import pyarrow as pa

from biaseval.errors import first_of, refuse
from biaseval.label_bias.suites import SEMANTICALLY_EQUIVALENT
from biaseval.outputs.scored import Outputs, ScoredPrompt, Setting
from biaseval.prompting.calibration import PURPOSES as PLANNED_PURPOSES
from biaseval.prompting.calibration import leaves_one_out
from biaseval.tables import CONTEXTS, LABEL_SCORES, PROMPTS, SPLITS, TASKS

PURPOSES = ("main", "bias_score", *(one.name for one in PLANNED_PURPOSES.values() if not one.permutes))
"""Purposes of a prompt, in the order of rows; a table cannot hold the orders of a question's options."""

_ROLES = ("main", "bias_score")
"""Purposes whose rows are instances of the task, the same in every setting."""

Tables = Mapping[str, pa.Table]
"""Table name to a task's part of the table."""

_Groups = Mapping[tuple[Setting, str], Sequence[ScoredPrompt]]
"""The prompts of a task by setting and purpose."""


def plan_outputs(outputs: Outputs) -> list[Tables]:
    """Return the tables of every task, in the order of task names.

    Rows of a purpose have the same numbers in every setting, in the order of the first setting's prompts. Label scores
    have one number, the sum over the label's tokens.

    Raises:
        InputError: prompts of a task have different labels, or a gold label outside them; held-out rows are also test
            rows; or settings differ in rows, or tasks in settings. The message lists the mistakes.
    """
    by_task: dict[str, list[ScoredPrompt]] = {}
    for prompt in outputs.prompts:
        by_task.setdefault(prompt.task, []).append(prompt)
    problems = [problem for task, prompts in sorted(by_task.items()) for problem in _problems(task, prompts)]
    refuse(first_of(problems or list(_other_settings(by_task))))
    return [
        _tables(number, task, prompts, outputs.definitions.get(task))
        for number, (task, prompts) in enumerate(sorted(by_task.items()))
    ]


def needs_gold(purpose: str) -> bool:
    """Return whether prompts of a purpose need their right label."""
    return purpose in _ROLES or leaves_one_out(purpose)


def _problems(task: str, prompts: Sequence[ScoredPrompt]) -> Iterator[str]:
    first = prompts[0]
    labels = sorted(first.logprobs)
    if len(labels) < 2:
        yield f"{first.place}: {task} has the label {labels[0]!r} alone; a preference needs two labels or more"
    for prompt in prompts:
        if prompt.logprobs.keys() != first.logprobs.keys():
            yield (
                f"{prompt.place}: {task} has labels {sorted(prompt.logprobs)}, at {first.place} {labels}; "
                "all prompts of a task need the same"
            )
        elif prompt.gold is None and needs_gold(prompt.purpose):
            yield (
                f"{prompt.place}: {task}: gold is missing, which rows of the purpose {prompt.purpose} need; add it, or "
                "leave such prompts of a table out with --on-bad-row drop"
            )
        elif prompt.purpose == "main" and prompt.gold not in first.logprobs:
            yield f"{prompt.place}: {task}: gold {prompt.gold!r} is none of the labels {labels}; mend it"
        if prompt.setting[1] and not prompt.setting[0]:
            yield f"{prompt.place}: {task}: demo_set {prompt.setting[1]} has no demonstrations; use demo_set 0"
    yield from _other_rows(task, _grouped(prompts))


def _other_rows(task: str, groups: _Groups) -> Iterator[str]:
    """Yield the settings of a task whose instances differ from those of its first setting."""
    settings = sorted({setting for setting, _ in groups})
    named = [{one.instance for setting in settings for one in groups.get((setting, role), ())} for role in _ROLES]
    if both := sorted(set.intersection(*named)):
        yield (
            f"{task}: {len(both):,} rows are both main and bias_score (first: {both[0]!r}); held-out rows are others "
            "than the test rows: name them differently, or leave them out"
        )
    for role in _ROLES:
        rows = {setting: {(one.instance, one.gold) for one in groups.get((setting, role), ())} for setting in settings}
        if role == "main" and not rows[settings[0]]:
            yield f"{task}, {_told(settings[0])}: has no rows of the purpose main, which metrics need; add some"
        for setting in settings[1:]:
            if n_other := len(rows[setting] ^ rows[settings[0]]):
                yield (
                    f"{task}: {_told(setting)} has {len(rows[setting])} {role} rows, {_told(settings[0])} "
                    f"{len(rows[settings[0]])}, and {n_other} are in one of them alone or have another gold label; "
                    "import settings of the same rows"
                )


def _other_settings(by_task: Mapping[str, Sequence[ScoredPrompt]]) -> Iterator[str]:
    """Yield the tasks that lack other tasks' settings or purposes, because the means would not be comparable."""
    groups = {task: {(one.setting, one.purpose) for one in prompts} for task, prompts in sorted(by_task.items())}
    every = set().union(*groups.values())
    for task, own in groups.items():
        if lacking := [f"{purpose} at {_told(setting)}" for setting, purpose in sorted(every - own)]:
            yield (
                f"{task}: has no scores of {', '.join(lacking)}, which other tasks have; add them, or import tasks of "
                "other settings as a run of their own"
            )


def _told(setting: Setting) -> str:
    return f"n_demos {setting[0]}, demo_set {setting[1]}"


def _grouped(prompts: Sequence[ScoredPrompt]) -> _Groups:
    """Return the prompts of a task by setting and purpose, in the row order of the first setting."""
    places: dict[tuple[str, str], int] = {}
    for prompt in sorted(prompts, key=lambda one: one.setting):
        places.setdefault((prompt.purpose, prompt.instance), len(places))

    def order(prompt: ScoredPrompt) -> tuple[Setting, int, int]:
        return (prompt.setting, PURPOSES.index(prompt.purpose), places[prompt.purpose, prompt.instance])

    ordered = sorted(prompts, key=order)
    return {key: list(own) for key, own in groupby(ordered, key=lambda prompt: (prompt.setting, prompt.purpose))}


def _tables(number: int, task: str, prompts: Sequence[ScoredPrompt], definition: str | None) -> Tables:
    groups = _grouped(prompts)
    labels = sorted(prompts[0].logprobs)
    settings = sorted({setting for setting, _ in groups})
    instances = {role: groups.get((settings[0], role), ()) for role in _ROLES}
    about_task: dict[str, object] = {
        "task": task,
        "number": number,
        "definition": definition,
        "labels": labels,
        "n_instances": sum(map(len, instances.values())),
        "n_main": len(instances["main"]),
        "is_semantically_equivalent": task in SEMANTICALLY_EQUIVALENT,
    }
    splits: list[dict[str, object]] = [
        {"task": task, "instance_id": one.instance, "role": role, "position": at, "input": one.input, "label": one.gold}
        for role, own in instances.items()
        for at, one in enumerate(own)
    ]
    numbered = [(one, row) for own in groups.values() for row, one in enumerate(own)]
    scores: list[dict[str, object]] = [
        {"prompt_id": _prompt_id(one, row), "label": label, "token_logprobs": [one.logprobs[label]]}
        for one, row in numbered
        for label in labels
    ]
    return {
        "tasks": TASKS.rows([about_task]),
        "splits": SPLITS.rows(splits),
        # Contexts are empty, because the text of an input already includes everything before it.
        "contexts": CONTEXTS.rows([{**_place(task, setting), "instruction": True, "text": ""} for setting in settings]),
        "prompts": PROMPTS.rows([_prompt(one, row, labels) for one, row in numbered]),
        "label_scores": LABEL_SCORES.rows(scores),
    }


def _place(task: str, setting: Setting) -> dict[str, object]:
    """Return the columns that a context and its prompts share."""
    n_demos, demo_set = setting
    return {"context_id": f"{task}/k{n_demos}.s{demo_set}", "task": task, "n_demos": n_demos, "demo_set": demo_set}


def _prompt_id(prompt: ScoredPrompt, row: int) -> str:
    return f"{_place(prompt.task, prompt.setting)['context_id']}/{prompt.purpose}/{row}"


def _prompt(prompt: ScoredPrompt, row: int, labels: Sequence[str]) -> dict[str, object]:
    """Return the row of ``prompts``; the import does not know its tokens, nor how many demonstrations fitted."""
    return {
        **_place(prompt.task, prompt.setting), "prompt_id": _prompt_id(prompt, row), "purpose": prompt.purpose,
        "row": row, "instance_id": None if prompt.gold is None else prompt.instance, "gold": prompt.gold,
        "labels": list(labels), "input_text": prompt.text or prompt.input or "",
    }  # fmt: skip
