"""Runs whose answers have known biases, and what is said of them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from biaseval.analysis import query
from biaseval.store import Run
from tests.measuring import measure
from tests.qaplans import QaPlan

Row = dict[str, Any]

SAMPLE = 20

N = 200
"""Questions of ``squad``: half with short, half with long answers; a quarter each with few and many common words."""

LENGTHS = [1.0] * (N // 2) + [3.0] * (N // 2)

COMMON = [2.0, 5.0] * (N // 2)

NEAR: list[float | None] = [None if row % 4 == 0 else float(row % 3) for row in range(N)]


def right(share_short: float, share_long: float, gain_common: float = 0.0) -> list[float]:
    """Return exact matches: so many of the short and of the long answers, and more where many words are common."""
    answers = []
    for row in range(N):
        share = (share_short if LENGTHS[row] == 1 else share_long) + (gain_common if COMMON[row] == 5 else 0)
        answers.append(float((row // 2 * 37 % 50) / 50 < share))
    return answers


def make_run(
    folder: Path,
    *,
    models: Mapping[str, Sequence[float | None]] | None = None,
    texts: Row | None = None,
    change: Callable[[QaPlan], None] = lambda plan: None,
    n_parts: int = 1,
    is_measured: bool = True,
    **spec: Any,
) -> Run:
    """Return a run without report, measured or not: models with answers to ``squad`` and to a set of 40 elsewhere."""
    answers = models or {"strong": right(0.98, 0.6, 0.02), "weak": right(0.3, 0.1, 0.6)}
    content = {
        "datasets": {"in_distribution": {"squad": "squad.json"},
            "out_of_distribution": {"trivia": "trivia.json", "news": "news.json"}},
        "bootstrap": {"trials": 20, "sample": SAMPLE}, "heuristics": ["ans_len", "sim_word", "word_dist"],
    }  # fmt: skip
    plan = QaPlan(tuple(answers), **content | spec)
    columns = {"ans_len": LENGTHS, "sim_word": COMMON, "word_dist": NEAR}
    heuristics = plan.spec["heuristics"]
    plan.questions({name: columns.get(name, COMMON) for name in heuristics})
    for dataset, n_rows in (("trivia", 40), ("news", 20)):
        plan.questions({name: columns.get(name, COMMON)[:n_rows] for name in heuristics}, dataset=dataset)
    for model, exact in answers.items():
        plan.answers(exact, [None if one is None else min(1.0, one + 0.25) for one in exact], model)
        plan.answers([1.0, 0.0] * 20, [1.0, 0.5] * 20, model, dataset="trivia")
        plan.answers([1.0, 0.0, 0.0, 0.0] * 5, None, model, dataset="news")
    for row, example in enumerate(plan.examples):
        answer = f"answer{row}"
        words = " ".join(f"word{number}" for number in range(100))
        text = {
            "title": f"title {row}", "question": f"What is number {row}?", "context": f"{words} {answer} {words}",
            "answers": [answer, answer], "answer_starts": [len(words) + 1] * 2,
        }  # fmt: skip
        example.update(text | (texts or {}))
    change(plan)
    uri = plan.write(folder, n_parts)
    if is_measured:
        measure(uri, has_checks=False)
    return Run.open(uri)


def said(run: Run, name: str = "conclusions") -> str:
    """Return the conclusions or cautions of a run as one text, a line each."""
    found = query([run.uri], f"from qa_bias_{name}").to_pylist()
    return "\n".join(f"{row['lead']} {row['text']}" for row in found)
