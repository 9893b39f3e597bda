"""The page of a run with adapters."""

import re
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.runs import write_report
from biaseval.store import Run
from tests.label_bias_report.runs import make_run
from tests.pages import assert_said, assert_whole, page_of


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = make_run(tmp_path_factory.mktemp("runs") / "adapted", n_tasks=6, losses=(2.0, 1.5, 1.25, 1.0))
    write_report(run.uri)
    return run


def test_costs_of_each_method_are_those_of_its_inputs_and_its_training(adapted: Run) -> None:
    """At 2 demonstrations: 6 tasks, 2 sets; inputs of 10 tokens and labels of 2 each; 16 examples of 60 in 2 epochs."""
    [table] = [part for part in adapted.read_text("report.html").split("<table") if "Beyond scoring the rows" in part]
    n_labels = 2 * (2 + 4 + 3)  # of the six tasks
    cc = 2 * 3 * (6 * 10 + 2 * n_labels)
    lora = 6 * 2 * 16 * 60 * 2
    own = re.sub(r"\s+", " ", re.sub(r"<span.*?</span>|<.*?>", " ", table))
    assert_said(
        own,
        [
            f" CC 2 36 {cc:,} 0 0 ",
            f" LoRA 2 0 {lora:,} 12 4,096 24.0 ",  # 12 adapters, 4 steps of half a second
            rf" LoRA \+ CC 2 36 {lora + cc:,} 12 4,096 ",
        ],
    )


def test_the_training_loss_is_shown_and_said_where_it_does_not_fall(adapted: Run, tmp_path: Path) -> None:
    losses = query([adapted.uri], "from training_by_step order by step").to_pylist()
    assert [row["n_adapters"] for row in losses] == [30] * 4
    assert losses[0]["mean_loss"] == pytest.approx(2 + 14.5 / 1000)  # adapter number n of 30 adds n / 1000
    assert (losses[-1]["low"], losses[-1]["high"]) == pytest.approx((1 + 2.9 / 1000, 1 + 26.1 / 1000))
    page = page_of(adapted)
    assert " 0 6 4 2.0" in page.text  # demonstrations, adapters, steps, first loss
    assert_said(" ".join(page.values("alt")), [r"loss 2\.014 at 1, .*1\.014 at 4", r"RSD with LoRA .*LoRA \+ LOOC"])
    assert_said(page.text, ["!The training loss of", r"LoRA \+ CC", "What mitigation needs"])
    assert_whole(adapted.read_text("report.html"))
    rising = make_run(tmp_path / "run", n_tasks=1, n_demos=(0,), losses=(1.0, 2.0))
    cautions = query([rising.uri], "select text from label_bias_cautions").to_pylist()
    assert any(row["text"].startswith("The training loss of 1 of 1 adapter is not lower") for row in cautions)
