"""Progress and pace."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from biaseval import progress
from biaseval.execute import pace as paces
from biaseval.execute.cluster import Cluster
from biaseval.execute.pace import Pace, leave_pace
from biaseval.execute.parts import Parts
from biaseval.execute.tasks import Made, Task
from biaseval.scoring import LabelScorer, prepare, runner
from biaseval.spec import ExecutionSpec
from biaseval.store import Run
from biaseval.units import Done, Unit


def test_speed_is_told_of_what_took_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "say", said.append)
    made = progress.MakingProgress(40, 0, "rows scored")
    for second, size in ((100.0, 10), (100.4, 5), (112.0, 15), (122.0, 10)):
        now[0] = second
        made.advance(size, 100 * size)
    assert said == [
        "10 of 40 rows scored",  # the first part: how long it took is not known
        "30 of 40 rows scored, 167 tokens/s, 0:06 left",  # 20 rows in 12 seconds
        "40 of 40 rows scored, 136 tokens/s, 0:00 left",
    ]
    at_once = progress.MakingProgress(2, 0, "readers trained")
    at_once.advance(1, 10**6)
    now[0] += 0.01
    at_once.advance(1, 10**6)
    assert said[-1] == "2 of 2 readers trained"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines = list[str]()
    monkeypatch.setattr(paces, "say", lines.append)
    return lines


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(str(tmp_path))


def part(number: int, tokens: int | None = 51_000) -> Unit:
    return Unit(number, 10, (), {} if tokens is None else {"tokens": tokens})


def test_batches_say_how_long_all_takes_and_the_first_part_says_nothing_more(run: Run, said: list[str]) -> None:
    pace = Pace(run, [part(0), part(1)], "rows", n_passes=2)
    pace.look()
    assert said == []
    leave_pace(run, 4_096, 8.0)
    leave_pace(run, 1, 8.0)  # of another actor
    pace.look()
    # Two parts that are read twice: 204,000 tokens at 512 a second are 398 seconds.
    [line] = said
    assert line.startswith(
        "about 4 to 9 min to go on this machine: batches of 4,096 tokens took 8.0 s, at 512 tokens/s"
    )
    pace.look()
    pace.add(Done(part(0), busy_s=100.0))
    assert len(said) == 1
    pace.close()
    assert not run.has("pace")


def test_the_first_part_says_how_long_the_others_take(run: Run, said: list[str]) -> None:
    pace = Pace(run, [part(number) for number in range(8)], "rows", 0)
    pace.add(Done(part(0), busy_s=100.0))
    pace.add(Done(part(1), busy_s=100.0))
    # 357,000 tokens at 510 a second are 700 seconds.
    [line] = said
    assert line.startswith(
        "about 7 to 16 min to go on this machine: the first part took 100.0 s, at 510 tokens/s, and 357"
    )
    of_four = Pace(run, [part(number) for number in range(8)], "rows", 0)
    of_four.n_actors = 4
    of_four.add(Done(part(0), busy_s=100.0))
    assert said[1].startswith("about 112 to 243 s to go on this machine: ")
    assert "at 510 tokens/s by each of 4 actors" in said[1]
    slow = Pace(run, [part(number) for number in range(8)], "rows", 0)
    slow.add(Done(part(0), busy_s=102_000.0))
    assert "at 0.5 tokens/s" in said.pop()
    soon = Pace(run, [part(number) for number in range(8)], "rows", 0)
    soon.add(Done(part(0), busy_s=1.0))
    assert len(said) == 2  # seven seconds need no words


@pytest.mark.parametrize("path", ["packed", "prefix_cache"])
@pytest.mark.parametrize("budget", [16, 100])
def test_each_token_of_the_texts_is_counted_once(tiny_llama: Path, path: runner.Path, budget: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    words = ["the", "of", "and", "to", "in"]
    rng = np.random.default_rng(0)
    heads = [" ".join(rng.choice(words, 40)) for _ in range(2)]
    texts = [f"{heads[row % 2]} {' '.join(rng.choice(words, 1 + row))}" for row in range(12)]
    prompts = pa.table({"prompt_id": [str(row) for row in range(12)], "text": texts, "labels": [["the", "of"]] * 12})
    prepared = prepare(tokenizer, prompts)
    model = AutoModelForCausalLM.from_pretrained(tiny_llama).eval()
    scorer = LabelScorer(model, tokenizer, path=path, token_budget=budget)
    predicted = list(scorer._runner._predictions(path, prepared.trie))
    assert len(predicted) > 2
    assert sum(each.n_nodes for each in predicted) == prepared.trie.n_nodes


def test_a_scorer_tells_once_what_batches_take_but_the_first(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_LEAST_MEASURED_S", 0.0)
    tokenizer = AutoTokenizer.from_pretrained(tiny_llama)
    heard = list[tuple[int, float]]()
    scorer = LabelScorer(AutoModelForCausalLM.from_pretrained(tiny_llama).eval(), tokenizer, token_budget=16)
    scorer.tell_pace(lambda n_tokens, seconds: heard.append((n_tokens, seconds)))
    prompts = pa.table({"prompt_id": ["a"], "text": ["the of and to in " * 20], "labels": [["the", "of"]]})
    for _ in range(2):
        scorer.score(prompts)
    [(n_tokens, seconds)] = heard
    assert 0 < n_tokens <= 16
    assert 0 < seconds < 10


class Measurer:
    """Measures batches, and ends its part once they are heard of."""

    def __init__(self, run: Run, allocation: object) -> None:
        self._run = run

    def make(self, task: Task, prepared: None) -> Made:
        leave_pace(self._run, 1_000, 10.0)
        deadline = time.monotonic() + 30.0
        while not self._run.has("heard") and time.monotonic() < deadline:
            time.sleep(0.05)
        self._run.write_text(task.files[0], "made")
        return Made({})


class Record:
    """Stands for a record of the stage's speed: only stages that keep one say how long they take."""

    def __init__(self, run: Run) -> None:
        self.n_parts = 0

    def add(self, done: Done) -> None:
        self.n_parts += 1

    def close(self) -> None:
        assert self.n_parts == 1


@pytest.mark.ray
def test_batches_are_heard_of_before_a_part_ends(run: Run, ray_cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()

    def hear(line: str) -> None:
        said.append(line)
        run.write_text("heard", "")

    monkeypatch.setattr(paces, "say", hear)
    unit = Unit(0, 1, ("files/0",), {"tokens": 10_000})
    how: dict[str, Any] = {"worker": Measurer, "n_passes": 1, "recorder": Record}
    stage = Parts(name="scoring", verb="scored", units=[unit], execution=ExecutionSpec(actors=1), **how)
    with Cluster(ExecutionSpec()) as cluster:
        assert len(list(stage.make(run, [unit], cluster))) == 1
    [line] = said
    assert line.startswith(
        "about 64 to 139 s to go on this machine: batches of 1,000 tokens took 10.0 s, at 100 tokens/s"
    )
    assert not run.has("pace")
