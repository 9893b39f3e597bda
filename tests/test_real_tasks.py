"""Real task files with all their oddities, a real tokenizer and real weights (a story model of 260,032 parameters)."""

from __future__ import annotations

from pathlib import Path

import pytest

from biaseval import demo
from biaseval.analysis import query
from biaseval.label_bias.plan import plan_tasks
from biaseval.label_bias.sources import read_sources
from biaseval.models import ModelSource, load_tokenizer
from biaseval.prompting.lengths import TokenCounter
from biaseval.prompting.parts import n_prompts
from biaseval.runs import run_spec
from biaseval.spec import LabelBiasSpec, LoraSpec, ModelSpec, PromptSpec, TasksSpec
from biaseval.store import Run


@pytest.fixture
def superni(shared: Path) -> Path:
    return shared / "data" / "superni"


def test_all_forty_tasks_plan_within_the_limit(superni: Path) -> None:
    spec = LabelBiasSpec(
        kind="label_bias",
        name="forty",
        model=ModelSpec(path="unused"),
        tasks=TasksSpec(path=str(superni / "tasks"), max_eval=100, templates=str(superni / "templates.csv")),
        prompt=PromptSpec(n_demos=[0, 4], demo_sets=1),
        calibration=["cc", "dc", "looc"],
    )
    tokenizer = load_tokenizer(ModelSource(str(demo.MODEL_PATH)))
    counter = TokenCounter(tokenizer)
    labels, n_planned = {}, 0
    for plan in plan_tasks(spec, read_sources(spec), tokenizer, window=4096):
        n_planned += n_prompts(plan.parts)
        labels[plan.task] = plan.tasks["labels"][0].as_py()
        assert plan.tasks["template_source"][0].as_py() == "table"
        texts = {row["context_id"]: row["text"] for row in plan.contexts.to_pylist()}
        prompts = [row for part in plan.parts for row in part.prompts.to_pylist()]
        for row in prompts[:: max(1, len(prompts) // 12)]:
            assert counter.count(texts[row["context_id"]] + row["input_text"]) <= 2000
    assert n_planned == 40 * (2 * (100 + 32 + 3 + 20) + 4)
    assert labels["task1548_wiqa_binary_classification"] == ["  No  ", "  Yes  "]
    assert len(labels["task564_discofuse_classification"]) == 13
    assert labels["task909_dialogre_prevalent_speakers"] == ["1", "2", "3", "4"]


@pytest.mark.slow
def test_a_window_of_512_tokens_is_enough_where_prompts_leave_room_for_the_label(
    superni: Path, shared: Path, tmp_path: Path, here: None
) -> None:
    spec = LabelBiasSpec(
        kind="label_bias",
        name="stories260K",
        model=ModelSpec(path=str(shared / "data" / "models" / "stories260K")),
        tasks=TasksSpec(
            path=str(superni / "tasks"),
            include=["task209_*", "task1548_*", "task585_*"],
            max_eval=12,
            templates=str(superni / "templates.csv"),
        ),
        prompt=PromptSpec(n_demos=[0, 4], demo_sets=1, max_tokens=490),
        calibration=["cc", "dc", "looc"],
    )
    run_spec(spec, str(tmp_path / "run"))
    run = Run.open(str(tmp_path / "run"))
    used = {row["n_demos_used"] for row in run.read_table("prompts").to_pylist() if row["n_demos"] == 4}
    assert used - {4}, "the limit leaves demonstrations out"
    scores = run.read_table("label_scores").to_pylist()
    spaced = [row for row in scores if row["label"] == "  Yes  "]
    assert spaced
    assert all(len(row["token_logprobs"]) == row["n_label_tokens"] + 1 for row in scores)


@pytest.mark.slow
def test_lora_stands_beside_calibration_on_real_tasks_and_its_loss_falls(
    superni: Path, tmp_path: Path, here: None
) -> None:
    spec = LabelBiasSpec(
        kind="label_bias",
        name="bundled",
        model=ModelSpec(path=str(demo.MODEL_PATH)),
        tasks=TasksSpec(
            path=str(superni / "tasks"),
            include=["task109_*", "task585_*"],
            max_eval=8,
            templates=str(superni / "templates.csv"),
        ),
        prompt=PromptSpec(n_demos=[2], demo_sets=1),
        calibration=["cc", "dc", "looc"],
        lora=LoraSpec(precision="float32", gradient_checkpointing=False),
    )
    run_dir = str(tmp_path / "run")
    run_spec(spec, run_dir)
    methods = query([run_dir], "select method, n_tasks from label_bias_by_model where suite = 'all'").to_pylist()
    assert {row["method"] for row in methods} == {
        *("none", "cc", "dc", "looc"),
        *("lora", "lora+cc", "lora+dc", "lora+looc"),
    }
    assert {row["n_tasks"] for row in methods} == {2}
    losses = query(
        [run_dir],
        "select adapter, arg_min(loss, step) as first, arg_max(loss, step) as last from training group by all",
    )
    assert losses.num_rows == 2
    assert all(row["last"] < row["first"] for row in losses.to_pylist())
    page = Path(run_dir, "report.html").read_text()
    assert "LoRA + LOOC" in page
