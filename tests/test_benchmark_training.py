"""The benchmark of training on a tiny model: both sides make the same steps; no test looks at how fast."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from biaseval.errors import BiasevalError, InputError
from biaseval.spec import WindowsSpec
from biaseval.training.features import question_features
from jobs.benchmark_training import cases
from tests.bench import training
from tests.bench.reading import random_encoder, train_tokenizer
from tests.bench.training import SHAPES, Settings, benchmark, generated_training, markdown, steps
from tests.bench.training.steps import (
    GROUPED,
    OURS,
    OURS_PADDED,
    THEIRS,
    THEIRS_GROUPED,
    THEIRS_PADDED,
    WAYS,
    Bench,
    Trained,
)

ROOT = Path(__file__).resolve().parents[1]
MAX_TOKENS, STRIDE, N_STEPS, N_QUESTIONS = 96, 32, 3, 32


@pytest.fixture(scope="module", autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    assert torch.get_num_threads() == before


@pytest.fixture(scope="module")
def settings() -> Settings:
    return Settings(
        cases=(("tiny", 1),),
        n_steps=N_STEPS,
        n_rounds=2,
        n_questions=60,
        part_questions=25,
        n_unit_steps=4,
        unit_every=2,
        windows=WindowsSpec(max_tokens=MAX_TOKENS, stride=STRIDE),
    )


@pytest.fixture(scope="module")
def questions() -> pa.Table:
    return generated_training(N_QUESTIONS)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, questions: pa.Table, settings: Settings) -> Bench:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tokenizer = train_tokenizer(questions, SHAPES["tiny"].vocabulary)
    random_encoder(SHAPES["tiny"], "float32", "cpu").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    windows = question_features(tokenizer, questions, max_tokens=MAX_TOKENS, stride=STRIDE)
    assert windows.num_rows > 16 * N_STEPS
    return Bench(folder, windows.slice(0, 16 * N_STEPS), settings)


@pytest.fixture(scope="module")
def trained(bench: Bench) -> dict[str, Trained]:
    """Return what comes of each way without dropout, at a rate that makes losses depend on the steps before."""
    return {name: way() for name, way in bench.ways(1e-3, has_dropout=False).items()}


@pytest.fixture(scope="module")
def report(questions: pa.Table, settings: Settings) -> dict[str, Any]:
    return {**benchmark(questions, settings), "questions": "generated ones"}


def test_both_sides_make_as_many_steps_of_the_same_windows(bench: Bench, trained: dict[str, Trained]) -> None:
    lengths = [len(own) for own in bench.windows["token_ids"].to_pylist()]
    assert len(set(lengths)) > 5
    for name in (OURS, THEIRS, OURS_PADDED, THEIRS_PADDED):
        assert trained[name].n_tokens == trained[OURS].n_tokens
    for name in (GROUPED, THEIRS_GROUPED):
        by_length = [sum(sorted(lengths)[first : first + 16]) for first in range(0, len(lengths), 16)]
        assert sorted(trained[name].n_tokens) == by_length
        assert trained[name].n_tokens != trained[OURS].n_tokens
    assert all(len(own.losses) == len(own.n_tokens) == N_STEPS for own in trained.values())
    assert all(sum(own.n_tokens) == sum(lengths) for own in trained.values())


def test_losses_agree_where_padding_takes_part(trained: dict[str, Trained]) -> None:
    ours, theirs = trained[OURS_PADDED].losses, trained[THEIRS_PADDED].losses
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert max(ours) - min(ours) > 0.01, "steps change what comes behind them"


def test_padding_is_counted_as_the_model_runs_it(trained: dict[str, Trained]) -> None:
    assert trained[OURS].n_padded < trained[THEIRS].n_padded, "rows of like length go through the model together"
    assert trained[OURS_PADDED].n_padded == trained[THEIRS_PADDED].n_padded == 16 * N_STEPS * MAX_TOKENS
    assert trained[GROUPED].n_padded <= trained[THEIRS_GROUPED].n_padded < trained[THEIRS].n_padded
    assert trained[GROUPED].n_padded < trained[OURS].n_padded


def test_dropout_is_there_where_it_is_timed(bench: Bench, trained: dict[str, Trained]) -> None:
    again = bench.ways(1e-3, has_dropout=True)
    for name in (OURS_PADDED, THEIRS_PADDED):
        assert again[name]().losses != pytest.approx(trained[name].losses, abs=1e-3)


def test_sides_that_differ_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 <= bench.largest_difference() < 1e-4
    monkeypatch.setattr(steps, "_TOLERANCE", -1.0)
    with pytest.raises(BiasevalError, match="losses of biaseval and Trainer differ by"):
        bench.largest_difference()
    monkeypatch.setattr(steps, "_example", lambda row, pad_id, padded_to: {**example(row), "input_ids": [1, 2]})
    with pytest.raises(BiasevalError, match="not shown the same windows"):
        bench.largest_difference()


def example(row: dict[str, Any]) -> dict[str, Any]:
    return {"token_type_ids": [0, 0], "attention_mask": [1, 1], "start_positions": 0, "end_positions": 0}


@pytest.mark.slow
def test_all_is_measured(report: dict[str, Any], questions: pa.Table) -> None:
    assert json.loads(json.dumps(report)) == report
    assert [row["way"] for row in report["records"]] == list(WAYS)
    for row in report["records"]:
        assert len(row["seconds"]) == 2
        assert row["s_per_step"] == pytest.approx(sum(row["seconds"]) / 2 / N_STEPS)
        assert row["windows_per_s"] == pytest.approx(16 / row["s_per_step"])
        assert row["cpu_s_per_step"] > 0
    by_way = {row["way"]: row for row in report["records"]}
    assert by_way[OURS]["times"] is by_way[OURS]["cpu_times"] is None
    for way, other in ((THEIRS, OURS), (THEIRS_PADDED, OURS), (GROUPED, OURS), (THEIRS_GROUPED, GROUPED)):
        pairs = zip(by_way[way]["seconds"], by_way[other]["seconds"], strict=True)
        assert by_way[way]["times"] == pytest.approx([own / theirs for own, theirs in pairs])
        assert len(by_way[way]["cpu_times"]) == 2
    assert report["largest_difference"]["tiny"] < 1e-4


@pytest.mark.slow
def test_questions_are_repeated_and_cut_in_parts(report: dict[str, Any], bench: Bench, questions: pa.Table) -> None:
    cut = report["cut"]
    assert (cut["n_questions"], cut["n_parts"], cut["first_parts"]) == (60, 3, 3)
    repeated = questions.take([number % N_QUESTIONS for number in range(60)])
    tokenizer = train_tokenizer(questions, SHAPES["tiny"].vocabulary)
    expected = question_features(tokenizer, repeated, max_tokens=MAX_TOKENS, stride=STRIDE).num_rows
    # Training of a tokenizer breaks ties in another way each time.
    assert cut["n_windows"] == pytest.approx(expected, rel=0.05)
    assert 50 < cut["begun_mib"] <= cut["first_mib"] == cut["peak_mib"]


@pytest.mark.slow
def test_time_around_steps_is_what_is_left_of_the_unit(report: dict[str, Any]) -> None:
    own = report["around"]
    assert (own["n_steps"], own["n_windows"]) == (4, report["cut"]["n_windows"])
    assert own["step_seconds"] > 0 < own["evaluation_seconds"]
    outside = own["seconds"] - own["step_seconds"] - own["evaluation_seconds"]
    assert own["share"] == pytest.approx(outside / own["seconds"])
    assert 0 < own["share"] < 1
    assert 0 < own["batch_s"] < own["step_seconds"]


def test_generated_questions_have_answers_in_their_contexts(questions: pa.Table) -> None:
    rows = questions.to_pylist()
    for row in rows:
        [answer], [start] = row["answers"], row["answer_starts"]
        assert row["context"][start : start + len(answer)] == answer
        assert len(answer.split(" ")) == 3
    assert len({row["answer_starts"][0] for row in rows}) > 12


@pytest.mark.slow
def test_the_script_prints_the_tables_and_writes_the_records(
    report: dict[str, Any],
    questions: pa.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    squad, out, asked = tmp_path / "squad.jsonl", tmp_path / "new" / "t.json", []
    rows = [
        {
            "id": row["example_id"],
            "question": row["question"],
            "context": row["context"],
            "answers": {"text": row["answers"], "answer_start": row["answer_starts"]},
        }
        for row in questions.to_pylist()
    ]
    squad.write_text("".join(json.dumps(row) + "\n" for row in rows))
    measured = {name: value for name, value in report.items() if name != "questions"}
    monkeypatch.setattr(training, "benchmark", lambda *given: asked.append(given) or dict(measured))
    monkeypatch.setattr(sys, "path", [*sys.path])

    def script(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["jobs/benchmark_training.py", *arguments])
        runpy.run_path(str(ROOT / "jobs" / "benchmark_training.py"), run_name="__main__")

    script("--cases=tiny:1,2x128:2", "--rounds=5", "--questions=100", f"--squad={squad}", f"--out={out}")
    [(shown, given)] = asked
    assert shown["context"].to_pylist() == questions["context"].to_pylist()
    assert (given.cases, given.n_rounds, given.n_questions) == ((("tiny", 1), ("2x128", 2)), 5, 100)
    written = json.loads(out.read_text())
    assert written == {**measured, "questions": f"{N_QUESTIONS} of squad.jsonl, again and again up to 100"}
    printed = capfd.readouterr().out
    assert printed == out.with_suffix(".md").read_text() == markdown(written) + "\n"
    for way in WAYS:
        assert printed.count(f"| tiny | 1 | {way} | ") == 1
    with pytest.raises(SystemExit) as stop:
        script("--cases=tiny")
    assert stop.value.code == 2
    assert capfd.readouterr().err.startswith("error: --cases: tiny: is not SHAPE:THREADS with one of tiny,")


@pytest.mark.parametrize("text", ["", "base:1", "tiny:0", "tiny:x", "tiny:1,"])
def test_cases_are_shapes_with_threads(text: str) -> None:
    assert cases("2x128:1,4x256:12") == (("2x128", 1), ("4x256", 12))
    with pytest.raises(InputError, match="is not SHAPE:THREADS"):
        cases(text)
