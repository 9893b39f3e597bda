"""Plans of label bias: splits, prompts and parts."""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.label_bias.plan import TaskPlan, _blocks
from biaseval.label_bias.prompts import PromptFitter, definition_text, demonstration_text, test_text, with_full_stop
from biaseval.label_bias.splits import Sampler, read_splits, reproduce
from biaseval.prompting.lengths import TokenCounter
from biaseval.prompting.parts import n_prompts
from biaseval.prompting.task_files import read_task
from biaseval.spec import ExecutionSpec, LabelBiasSpec, ModelSpec, PromptSpec, TasksSpec
from tests.bench.demo_models.tasks import build_prompt
from tests.labelplans import plan_tasks
from tests.taskfiles import WORDS, write_task
from tests.tinymodels import make_tokenizer


def test_per_task_rows_do_not_depend_on_other_tasks(tmp_path: Path) -> None:
    first = read_task(write_task(tmp_path, "task1_x_classification"))
    second = read_task(write_task(tmp_path, "task2_x_classification"))
    alone = Sampler("per_task", 42).draw(second, 50)
    sampler = Sampler("per_task", 42)
    sampler.draw(first, 50)
    assert sampler.draw(second, 50) == alone
    assert Sampler("per_task", 43).draw(second, 50) != alone
    single_stream = Sampler("reif2024", 42)
    single_stream.draw(first, 50)
    assert single_stream.draw(second, 50) != Sampler("reif2024", 42).draw(second, 50)


@pytest.mark.parametrize("sampling", ["per_task", "reif2024"])
def test_roles_share_no_instance_and_more_rows_extend_fewer(tmp_path: Path, sampling: str) -> None:
    task = read_task(write_task(tmp_path))
    few = Sampler(sampling, 1).draw(task, 20)  # type: ignore[arg-type]
    many = Sampler(sampling, 1).draw(task, 1000)  # type: ignore[arg-type]
    assert many.main[:20] == few.main
    assert (len(many.demonstrations), len(many.bias_score), len(many.main)) == (64, 32, 304)
    drawn = [instance.id for instances in many.by_role().values() for instance in instances]
    assert len(set(drawn)) == 400


def test_recorded_splits_are_reproduced_exactly(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path / "tasks"))
    drawn = Sampler("per_task", 7).draw(task, 30)
    (tmp_path / "splits").mkdir()
    pq.write_table(drawn.table(task.name), tmp_path / "splits" / "part-00000.parquet")
    assert reproduce(task, read_splits(str(tmp_path / "splits"))) == drawn
    assert reproduce(task, read_splits(str(tmp_path / "splits" / "part-00000.parquet"))) == drawn


def test_recorded_splits_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path))
    other = read_task(write_task(tmp_path, "task2_x_classification", number=2))
    table = Sampler("per_task", 7).draw(task, 30).table(task.name)
    for asked, splits, message in (
        (other, {task.name: table}, "holds no row of task2_x"),
        (other, {other.name: table}, "has no instance 'task9500-"),
        (task, {task.name: table.slice(1)}, "64 and 32 are needed"),
        (task, {task.name: table.slice(0, 96)}, "has no main row"),
    ):
        with pytest.raises(InputError, match=message):
            reproduce(asked, splits)
    with pytest.raises(InputError, match="is no splits table"):
        read_splits(str(tmp_path / "task2_x_classification.json"))


test_text.__test__ = False  # type: ignore[attr-defined]  # a function of the package, not a test


def test_the_example_of_the_protocol() -> None:
    prompt = build_prompt("Say yes or no", [("The tea was cold", "no")], "Lovely!")
    assert prompt == "Say yes or no.\n\nInput: The tea was cold.\n Output: no.\n\nInput: Lovely!\n\nOutput:"
    # A full stop follows all but ASCII punctuation, and labels are stripped in demonstrations.
    texts = {"a": "a.", "a!": "a!", "a)": "a)", "a”": "a”.", "a…": "a….", "": "", " ": " ."}
    assert {text: with_full_stop(text) for text in texts} == texts
    assert test_text("") == "Input: .\n\nOutput:"
    assert demonstration_text(" x ", "  Yes  ") == "Input: x.\n Output: Yes.\n\n"


@pytest.fixture(scope="module")
def trained() -> TokenCounter:
    """Return a byte-level BPE with BOS put first, trained on a few words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<s>", "</s>"])
    tokenizer.train_from_iterator([build_prompt("Match the words", [(" ".join(WORDS), "yes")] * 3, "x y z")], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return TokenCounter(PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>"))


def _naive(counter: TokenCounter, definition: str, demos: list[str], test: str, limit: int) -> tuple[int, str]:
    """Apply the published rule word for word, tokenising every text that it names."""
    kept: list[str] = []
    for demo in demos:
        if counter.count(definition + " ".join([*kept, demo]) + test) > limit:
            break
        kept.append(demo)
    prompt = definition + "".join(kept) + test
    return len(kept), prompt if counter.count(prompt) <= limit else counter.cut(prompt, limit)


def _assert_fits_as_published(counter: TokenCounter, texts: list[tuple[str, str]], text: str, limit: int) -> None:
    definition = definition_text("Match the words")
    demos, test = [demonstration_text(*pair) for pair in texts], test_text(text)
    fitter = PromptFitter(counter, limit)
    for item in (test, test_text(text + " river stone"), test):
        fitted = fitter.fit(definition, demos, item)
        whole = definition + "".join(demos[: fitted.n_demos_used]) + item
        built = (fitted.n_demos_used, whole if fitted.text is None else fitted.text)
        assert built == _naive(counter, definition, demos, item, limit)


_REAL = ("golden/tiny-llama", "data/models/stories260K")
_TEXTS = st.lists(st.sampled_from([*WORDS, "é", "1.", "\n", "„x“", "  "]), max_size=12).map(" ".join)
_DEMOS = st.lists(st.tuples(_TEXTS, st.sampled_from(["yes", "no", "not sure"])), max_size=6)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(demos=_DEMOS, text=_TEXTS, limit=st.integers(min_value=5, max_value=300))
def test_the_length_limit_is_as_published(
    trained: TokenCounter, shared: Path, demos: list[tuple[str, str]], text: str, limit: int
) -> None:
    for counter in (trained, *(TokenCounter(_tokenizer(shared / folder)) for folder in _REAL)):
        _assert_fits_as_published(counter, demos, text, limit)


@cache
def _tokenizer(path: Path) -> object:
    return AutoTokenizer.from_pretrained(path)


def _plan(folder: Path, *, window: int | None = None, prompt: dict[str, Any] | None = None, **changes: Any) -> TaskPlan:
    spec = LabelBiasSpec(
        kind="label_bias", name="x", model=ModelSpec(path="unused"),
        tasks=TasksSpec(path=str(folder), max_eval=20, **changes.pop("tasks", {})),
        prompt=PromptSpec(**{"n_demos": [0, 2, 4], "demo_sets": 2, **(prompt or {})}),
        calibration=changes.pop("calibration", ["cc", "dc", "looc"]), **changes,
    )  # fmt: skip
    [plan] = plan_tasks(spec, make_tokenizer(), window)
    return plan


def _prompts(plan: TaskPlan) -> list[dict[str, Any]]:
    return [row for part in plan.parts for row in part.prompts.to_pylist()]


def test_rows_per_setting_are_the_published_numbers(tmp_path: Path) -> None:
    write_task(tmp_path)
    plan = _plan(tmp_path)
    counts = Counter((row["n_demos"], row["demo_set"], row["purpose"]) for row in _prompts(plan))
    for n_demos, sets in ((0, 1), (2, 2), (4, 2)):
        for demo_set in range(sets):
            expected = {"main": 20, "bias_score": 32, "cc": 3, "dc": 20}
            if n_demos:
                expected["looc"] = n_demos
            found = {p: n for (k, s, p), n in counts.items() if (k, s) == (n_demos, demo_set)}
            assert found == expected
    assert (0, 1, "main") not in counts
    assert plan.splits.num_rows == 96 + 20


def test_every_prompt_is_the_published_text_of_its_row(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path))
    plan = _plan(tmp_path)
    inputs = {row["instance_id"]: row["input"] for row in plan.splits.to_pylist()}
    labels = {row["instance_id"]: row["label"] for row in plan.splits.to_pylist()}
    contexts = {row["context_id"]: row for row in plan.contexts.to_pylist()}
    pool = [row["instance_id"] for row in plan.splits.to_pylist() if row["role"] == "demonstration"]
    for row in _prompts(plan):
        k, demo_set = row["n_demos"], row["demo_set"]
        demos = pool[k * demo_set : k * (demo_set + 1)]
        text = {"cc": ["N/A", "", "[MASK]"]}.get(row["purpose"], [None] * 99)[row["row"]]
        if row["purpose"] == "looc":
            assert row["instance_id"] == demos[row["row"]]
            demos = [demo for demo in demos if demo != row["instance_id"]]
        if row["instance_id"]:
            text = inputs[row["instance_id"]]
            assert row["gold"] == labels[row["instance_id"]]
        context = contexts[row["context_id"]]
        assert context["demo_ids"] == demos
        if text is not None:
            shown = [(inputs[demo], labels[demo]) for demo in demos]
            assert context["text"] + row["input_text"] == build_prompt(task.definition, shown, text)
    assert len({row["prompt_id"] for row in _prompts(plan)}) == n_prompts(plan.parts)


def test_demonstrations_that_do_not_fit_are_dropped_and_a_prompt_that_is_too_long_alone_is_cut(tmp_path: Path) -> None:
    write_task(tmp_path)
    plan = _plan(tmp_path, prompt={"n_demos": [4], "demo_sets": 1, "max_tokens": 90}, calibration=[])
    contexts = {row["context_id"]: row for row in plan.contexts.to_pylist()}
    for row in _prompts(plan):
        assert row["n_demos"] == 4 > row["n_demos_used"] > 0
        assert len(contexts[row["context_id"]]["demo_ids"]) == row["n_demos_used"]
    for row in _prompts(_plan(tmp_path, prompt={"n_demos": [0], "max_tokens": 20}, calibration=[])):
        assert row["is_truncated"]
        assert not row["input_text"].endswith("Output:")
        assert row["input_text"].startswith("Say whether the two words match.")


def test_blank_inputs_are_counted(tmp_path: Path) -> None:
    path = write_task(tmp_path)
    path.write_text(re.sub(r'"input": "[^"]*"', '"input": " "', path.read_text(), count=3))
    assert any("3 inputs are blank; take them out of the file" in note for note in _plan(tmp_path).notes)


def test_parts_hold_whole_settings_or_as_many_rows_as_asked_for(tmp_path: Path) -> None:
    write_task(tmp_path)
    plan = _plan(tmp_path)
    assert _blocks(_prompts(plan)) == [75, 75, 2, 75, 2, 75, 4, 75, 4]
    # Parts of at most 512 rows: no setting is cut.
    assert [part.prompts.num_rows for part in plan.parts] == [75 + 77 + 77 + 79 + 79]
    cut = _plan(tmp_path, execution=ExecutionSpec(part_rows=50))
    sizes = [part.prompts.num_rows for part in cut.parts]
    assert (set(sizes[:-1]), sum(sizes)) == ({50}, n_prompts(plan.parts))
    assert all(part.tokens < part.tokens_unshared for part in cut.parts)


def write_rare(folder: Path, name: str, number: int) -> None:
    """Write a task of whose labels one is in the pool alone."""
    task = read_task(write_task(folder, name, number=number, n_instances=397))
    pool = {row.id for row in Sampler("per_task", 42).draw(task, 1).demonstrations}
    labels = {row.id: "rare" if row.id in pool else "common" for row in task.instances}
    instances = [{"id": row.id, "input": row.input, "output": [labels[row.id]]} for row in task.instances]
    write_task(folder, name, number=number, changes={"Instances": instances})
