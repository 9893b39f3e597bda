"""Tables of questions for the tests of heuristics, read without the package's own reader."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from biaseval.tables import QA_EXAMPLES

MILL = "The mill opened in 1890. Ann Lee ran the mill until 1921, and Lee sold it to a bank."
"""The context of the worked examples in protocol section 3."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return [json.loads(line) for line in text.split("\n") if line]


def examples_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Return rows in SQuAD's flat form as a table of questions."""
    return QA_EXAMPLES.rows(
        [
            {
                "dataset": "squad", "example_id": row["id"], "row": number, "role": "in_distribution",
                "title": row["title"], "question": row["question"], "context": row["context"],
                "answers": row["answers"]["text"], "answer_starts": row["answers"]["answer_start"],
            }
            for number, row in enumerate(rows)
        ]
    )  # fmt: skip


def example(question: str, *answers: str, context: str = MILL, starts: Sequence[int] | None = None) -> dict[str, Any]:
    """Return one question in SQuAD's flat form; answers start where they first stand."""
    found = [max(context.find(answer), 0) for answer in answers] if starts is None else list(starts)
    return {
        "id": f"q-{question}", "title": "Mill", "context": context, "question": question,
        "answers": {"text": list(answers), "answer_start": found},
    }  # fmt: skip


def fails(question: dict[str, Any]) -> float:
    """Divide by zero, as a heuristic of a user's may."""
    return 1 / (len(question["context"]) - len(question["context"]))
