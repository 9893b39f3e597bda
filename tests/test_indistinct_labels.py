"""Labels that a tokenizer does not tell apart are refused before anything is scored."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.prompting.labels import label_problem
from biaseval.runs import score_prompts
from biaseval.spec import ExecutionSpec, LabelBiasSpec, ModelSpec, PromptSpec, TasksSpec
from tests.labelplans import plan_tasks
from tests.taskfiles import write_task
from tests.tinymodels import make_llama, make_tokenizer

SAME = "the model's tokenizer gives the labels {} the same tokens"
NONE = "the model's tokenizer gives the label {} no token"


def _tokenizer(tokenizer: Tokenizer, **special: str) -> PreTrainedTokenizerFast:
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", **special)


def of_words(*words: str, lower_cases: bool = False) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words that maps others to its unknown token."""
    vocabulary = {word: number for number, word in enumerate(["</s>", "<unk>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    if lower_cases:
        tokenizer.normalizer = normalizers.Lowercase()
    return _tokenizer(tokenizer, unk_token="<unk>")


def of_ascii() -> PreTrainedTokenizerFast:
    """Return a tokenizer of characters that drops all that are not ASCII."""
    tokens = ["</s>", *map(chr, range(33, 127))]
    return _tokenizer(Tokenizer(models.BPE(vocab={token: n for n, token in enumerate(tokens)}, merges=[])))


@pytest.mark.parametrize(("tokenizer", "labels", "problem"), [
    (of_words("yes", "no"), ["yes", "no", "maybe"], None),
    (of_words("yes", "no"), ["ja", "yes", "nein", "oui"], SAME.format("'ja' and 'nein' and 'oui'")),
    (of_words("yes", "no", "Yes"), ["Yes", "no", "yes"], None),
    (of_words("yes", "no", lower_cases=True), ["Yes", "no", "yes"], SAME.format("'Yes' and 'yes'")),
    (of_ascii(), ["yes", "no"], None), (of_ascii(), ["no", "да"], NONE.format("'да'")),
    (of_ascii(), ["no", "no да"], SAME.format("'no' and 'no да'")),
    (make_tokenizer(), ["yes", "Yes", "да", "нет", "yes да", "."], None),
    (make_tokenizer(), ["yes", " yes"], SAME.format("'yes' and ' yes'")),
])  # fmt: skip
@pytest.mark.parametrize("prompt", ["Input: river stone.\n\nOutput:", "cut behind a space ", "Input: да"])
def test_tokens_tell_labels_apart(
    tokenizer: PreTrainedTokenizerFast, labels: list[str], problem: str | None, prompt: str
) -> None:
    if prompt.endswith(" ") and " yes" in labels:
        problem = None  # no separator follows a space, so that these two texts differ
    assert label_problem(tokenizer, prompt, labels) == problem


def label_bias_spec(folder: Path) -> LabelBiasSpec:
    return LabelBiasSpec(
        kind="label_bias", name="x", model=ModelSpec(path="unused"), tasks=TasksSpec(path=str(folder), max_eval=5),
        prompt=PromptSpec(n_demos=[0, 2], demo_sets=1), calibration=[],
    )  # fmt: skip


def test_a_plan_names_every_task_whose_labels_are_not_told_apart(tmp_path: Path) -> None:
    write_task(tmp_path, "task9501_one_classification", number=9501, labels=("Yes", "no", "yes"))
    write_task(tmp_path, "task9502_two_classification", number=9502, labels=("no", "yes"))
    write_task(tmp_path, "task9503_three_classification", number=9503, labels=("maybe", "perhaps", "no"))
    spec = label_bias_spec(tmp_path)
    first, second, third = plan_tasks(spec, of_words("yes", "no", lower_cases=True))
    assert second.problems == []
    for plan, labels in ((first, "'Yes' and 'yes'"), (third, "'maybe' and 'perhaps'")):
        (problem,) = plan.problems
        assert problem.startswith(f"{plan.task}: {SAME.format(labels)}")
        assert "leave the task out with tasks.include" in problem
    assert [plan.problems for plan in plan_tasks(spec, make_tokenizer())] == [[], [], []]


@pytest.mark.parametrize(
    ("tokenizer", "problem"), [(of_words("no"), SAME.format("'нет' and 'да'")), (of_ascii(), NONE.format("'нет'"))]
)
def test_prompts_whose_labels_are_not_told_apart_are_refused_before_the_model_is_loaded(
    tmp_path: Path, tokenizer: PreTrainedTokenizerFast, problem: str
) -> None:
    model = make_llama(tmp_path / "model")
    tokenizer.save_pretrained(model)
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"prompt_id": "fine", "text": "river stone", "labels": ["no", "no no"]},
        {"prompt_id": "bad", "text": "a quiet river stone", "labels": ["нет", "да"]},
        {"prompt_id": "the same again", "text": "not a quiet river stone", "labels": ["нет", "да"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError) as caught:
        score_prompts(ModelSpec(path=str(model)), ExecutionSpec(), path, str(tmp_path / "out"))
    assert str(caught.value) == f"{path}: prompt 'bad': {problem}; change its labels"
    assert not (tmp_path / "out").exists()
