"""Real task files with all their oddities, a real tokenizer and real weights (a story model of 260,032 parameters)."""

from pathlib import Path
from typing import Any

import pytest

from biaseval import demo
from biaseval.analysis import query
from biaseval.models import ModelSource, load_tokenizer
from biaseval.prompting.lengths import TokenCounter
from biaseval.prompting.parts import n_prompts
from biaseval.runs import run_spec
from biaseval.spec import LabelBiasSpec, LabelLoraSpec, ModelSpec, PromptSpec, TasksSpec
from tests.labelplans import plan_tasks


@pytest.fixture
def superni(shared: Path) -> Path:
    return shared / "data" / "superni"


def spec_on(
    superni: Path, model: Path | str, prompt: PromptSpec, include: list[str] | None = None, **changes: Any
) -> LabelBiasSpec:
    """Return a spec on real tasks, and with the published templates."""
    tasks = {"path": str(superni / "tasks"), "templates": str(superni / "templates.csv"), "include": include}
    return LabelBiasSpec(
        kind="label_bias", name="real", model=ModelSpec(path=str(model)),
        tasks=TasksSpec(**tasks, max_eval=changes.pop("max_eval")), prompt=prompt, calibration=["cc", "dc", "looc"],
        **changes,
    )  # fmt: skip


def test_all_forty_tasks_plan_within_the_limit(superni: Path) -> None:
    spec = spec_on(superni, "unused", PromptSpec(n_demos=[0, 4], demo_sets=1), max_eval=100)
    tokenizer = load_tokenizer(ModelSource(str(demo.MODEL_PATH)))
    counter = TokenCounter(tokenizer)
    labels, n_planned = {}, 0
    for plan in plan_tasks(spec, tokenizer, 4096):
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
def test_a_window_of_512_tokens_is_enough_for_short_prompts(
    superni: Path, shared: Path, tmp_path: Path, here: None
) -> None:
    prompt = PromptSpec(n_demos=[0, 4], demo_sets=1, max_tokens=490)
    include = ["task209_*", "task1548_*", "task585_*"]
    spec = spec_on(superni, shared / "data" / "models" / "stories260K", prompt, include, max_eval=12)
    run = run_spec(spec, str(tmp_path / "run"), page=False)
    used = {row["n_demos_used"] for row in run.read_table("prompts").to_pylist() if row["n_demos"] == 4}
    assert used - {4}, "the limit leaves demonstrations out"
    scores = run.read_table("label_scores").to_pylist()
    assert any(row["label"] == "  Yes  " for row in scores)
    assert all(len(row["token_logprobs"]) == row["n_label_tokens"] + 1 for row in scores)


@pytest.mark.slow
def test_lora_stands_beside_calibration_and_its_loss_falls(superni: Path, tmp_path: Path, here: None) -> None:
    lora = LabelLoraSpec(precision="float32", gradient_checkpointing=False)
    prompt, include = PromptSpec(n_demos=[2], demo_sets=1), ["task109_*", "task585_*"]
    run = run_spec(spec_on(superni, demo.MODEL_PATH, prompt, include, max_eval=8, lora=lora), str(tmp_path / "run"))
    methods = query([run.uri], "select method, n_tasks from label_bias_by_model where suite = 'all'").to_pylist()
    alone = ("none", "cc", "dc", "looc")
    assert {row["method"] for row in methods} == {*alone, "lora", *(f"lora+{name}" for name in alone[1:])}
    assert {row["n_tasks"] for row in methods} == {2}
    ends = "arg_min(loss, step) as first, arg_max(loss, step) as last"
    losses = query([run.uri], f"select adapter, {ends} from training group by all").to_pylist()
    assert [row["last"] < row["first"] for row in losses] == [True, True]
    assert "LoRA + LOOC" in run.read_text("report.html")
