import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from biaseval.errors import InputError
from biaseval.majority_bias.data import Dataset, read_dataset
from biaseval.majority_bias.plan import SettingPlan, draw_demonstrations, plan_settings
from biaseval.majority_bias.proportions import Setting
from biaseval.prompting.lengths import PieceLengths, TokenCounter
from biaseval.prompting.parts import n_prompts, n_scores
from biaseval.spec import MajorityBiasSpec
from biaseval.tables import CONTEXTS, PROMPTS, SETTINGS
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.test_indistinct_labels import of_words
from tests.tinymodels import make_tokenizer

TOKENIZER = make_tokenizer()
GRID = [{"False": 1.0}, {"True": 0.5, "False": 0.5}, {"True": 0.75, "False": 0.25}]
INSTRUCTION = "You need to classify the following sentence as True or False. Below, some examples are provided\n\n"


def _inputs(folder: Path, **changes: Any) -> tuple[MajorityBiasSpec, Dataset]:
    write_jsonl(folder / "train.jsonl", boolq_rows("dog", 12, 9))
    write_jsonl(folder / "test.jsonl", boolq_rows("cat", 4, 2))
    spec = boolq_spec(folder, **{"proportions": GRID, **changes})
    return spec, read_dataset(spec)


def _plans(folder: Path, *, window: int | None = None, **changes: Any) -> list[SettingPlan]:
    return list(plan_settings(*_inputs(folder, **changes), TOKENIZER, window))


def _prompts(plans: list[SettingPlan]) -> list[dict[str, Any]]:
    return [row for plan in plans for part in plan.parts for row in part.prompts.to_pylist()]


def _problems(plans: list[SettingPlan]) -> list[str]:
    return [problem for plan in plans for problem in plan.problems]


def _contexts(plans: list[SettingPlan]) -> list[dict[str, Any]]:
    return [row for plan in plans for row in plan.contexts.to_pylist()]


def test_every_draw_is_one_context_for_all_test_rows(tmp_path: Path) -> None:
    plans = _plans(tmp_path)
    contexts = _contexts(plans)
    keys = [(row["setting"], row["demo_set"], row["instruction"]) for row in contexts]
    assert keys == list(itertools.product(["0/100", "50/50", "75/25"], [0, 1], [True, False]))
    assert Counter(row["context_id"] for row in _prompts(plans)) == {row["context_id"]: 6 for row in contexts}
    assert sum(n_prompts(plan.parts) for plan in plans) == 3 * 2 * 2 * 6
    assert sum(n_scores(plan.parts) for plan in plans) == 3 * 2 * 2 * 6 * 2
    assert _contexts(_plans(tmp_path)) == contexts
    alike = _plans(tmp_path, proportions=[{"False": 1.0}, {"True": 0.1, "False": 0.9}, {"True": 0.5, "False": 0.5}])
    assert [len(plan.notes) for plan in alike] == [1, 0, 0]
    assert alike[0].notes[0].startswith("with n_demos 4, 0/100 and 10/90 have the same counts of demonstrations (0/4)")


def test_the_text_of_a_prompt_is_that_of_its_examples(tmp_path: Path) -> None:
    _, dataset = _inputs(tmp_path)
    plans = _plans(tmp_path)
    questions = {example.id: example.fields["sentence"] for example in (*dataset.train, *dataset.test)}
    contexts = {row["context_id"]: row for row in _contexts(plans)}
    for row in _prompts(plans):
        context = contexts[row["context_id"]]
        shown = zip(context["demo_ids"], context["demo_labels"], strict=True)
        demos = "".join(f"Sentence: {questions[demo]}\noutput: {label}\n\n" for demo, label in shown)
        assert context["text"] == (INSTRUCTION if context["instruction"] else "") + demos
        assert row["input_text"] == f"Sentence: {questions[row['instance_id']]}\noutput:"
        assert row["gold"] == dataset.test[row["row"]].label
        assert row["instance_id"] == dataset.test[row["row"]].id


def test_rows_of_the_tables_are_complete(tmp_path: Path) -> None:
    plan = _plans(tmp_path)[2]
    assert plan.settings.schema == SETTINGS.schema
    assert set(CONTEXTS.schema.names) - set(plan.contexts.schema.names) == CONTEXTS.optional
    for part in plan.parts:
        assert part.prompts.schema == pa.schema([own for own in PROMPTS.schema if own.name not in PROMPTS.optional])
    setting = {"setting": "75/25", "number": 2, "labels": ["True", "False"], "shares": [0.75, 0.25]}
    assert plan.settings.to_pylist() == [{**setting, "counts": [3, 1], "counts_asked": [3, 1]}]
    prompt = _prompts([plan])[8]
    assert prompt == {
        "prompt_id": "boolq/75-25/s0/without/majority/2", "context_id": "boolq/75-25/s0/without/all", "task": "boolq",
        "purpose": "majority", "n_demos": 4, "demo_set": 0, "row": 2, "instance_id": "test-2", "gold": "True",
        "labels": ["True", "False"], "input_text": "Sentence: is cat 2 a stone\noutput:", "n_demos_used": 4,
        "is_truncated": False, "n_tokens": prompt["n_tokens"],
    }  # fmt: skip
    assert plan.notes == []


def test_demonstrations_have_the_counts_of_their_setting_and_one_draw_serves_both_instructions(tmp_path: Path) -> None:
    plans = _plans(tmp_path)
    counts = {plan.setting: plan.settings["counts"][0].as_py() for plan in plans}
    contexts = _contexts(plans)
    for row in contexts:
        assert [row["demo_labels"].count(label) for label in ("True", "False")] == counts[row["setting"]]
        assert len(set(row["demo_ids"])) == 4
    for with_, without in zip(contexts[::2], contexts[1::2], strict=True):
        assert (with_["demo_ids"], with_["demo_labels"]) == (without["demo_ids"], without["demo_labels"])
        assert with_["text"] == INSTRUCTION + without["text"]
    assert len({tuple(row["demo_ids"]) for row in contexts}) == 6


def test_flipped_demonstrations_show_another_label_alike_in_all_prompts_of_a_draw(tmp_path: Path) -> None:
    lora = {"n_examples": 4}
    clean = _plans(tmp_path, calibration=["looc"], lora=lora)
    noisy = _plans(tmp_path, calibration=["looc"], lora=lora, prompt={"flip": 0.5})
    assert "demo_golds" not in clean[0].contexts.column_names
    before, after = _contexts(clean), _contexts(noisy)
    assert [row["demo_labels"] for row in before] == [row["demo_golds"] for row in after]  # proportions are of rows
    assert [row["demo_ids"] for row in before] == [row["demo_ids"] for row in after]
    shown: dict[tuple[str, int, str], set[str]] = {}
    for row in after:
        assert re.findall(r"output: (\w+)", row["text"]) == row["demo_labels"]
        for demo, label in zip(row["demo_ids"], row["demo_labels"], strict=True):
            shown.setdefault((row["setting"], row["demo_set"], demo), set()).add(label)
    assert Counter(map(len, shown.values())) == {1: 3 * 2 * 4}
    full = [row for row in after if row["context_id"].endswith("with/all")]
    own = [one != other for row in full for one, other in zip(row["demo_labels"], row["demo_golds"], strict=True)]
    assert 4 <= sum(own) <= 20  # of 24; fewer or more in one of a thousand seeds
    contexts = {row["context_id"]: row for row in after}
    for row, same in zip(_prompts(noisy), _prompts(clean), strict=True):
        if row["purpose"] == "majority":
            assert row["gold"] == same["gold"]
        else:
            whole = contexts[f"{row['context_id'].rpartition('/')[0]}/all"]
            assert row["gold"] == whole["demo_labels"][row["row"]]
    for plan, same_plan in zip(noisy, clean, strict=True):
        assert plan.training_rows["label"] == same_plan.training_rows["label"]
        for row in plan.training_rows.to_pylist():
            name = "with" if row["instruction"] else "without"
            place = f"boolq/{row['setting'].replace('/', '-')}/s{row['demo_set']}/{name}/all"
            assert row["prompt"].startswith(contexts[place]["text"])
    all_flipped = _contexts(_plans(tmp_path, prompt={"flip": 1}))
    other = {"True": "False", "False": "True"}
    assert all(row["demo_labels"] == [other[gold] for gold in row["demo_golds"]] for row in all_flipped)


def test_demonstrations_are_drawn_per_label_and_then_shuffled_by_the_seed(tmp_path: Path) -> None:
    _, dataset = _inputs(tmp_path)
    setting = Setting(5, "50/50", ("True", "False"), (0.5, 0.5), (2, 2), (2, 2))
    drawn = draw_demonstrations(dataset, setting, seed=3, run_seed=42)
    generator = np.random.default_rng([3, 42, 5])
    chosen = [f"train-{n}" for n in generator.choice(12, 2, replace=False)]  # rows 0 to 11 are True
    chosen += [f"train-{12 + n}" for n in generator.choice(9, 2, replace=False)]
    assert [example.id for example in drawn] == [chosen[n] for n in generator.permutation(4)]
    orders = {tuple(e.label for e in draw_demonstrations(dataset, setting, seed=s, run_seed=42)) for s in range(60)}
    assert len(orders) == 6  # all orders of two and two labels


def test_each_draw_depends_on_its_seed_its_setting_and_the_runs_seed(tmp_path: Path) -> None:
    def ids(**changes: Any) -> dict[tuple[str, int], list[str]]:
        rows = _contexts(_plans(tmp_path, **changes))
        return {(row["setting"], row["demo_set"]): row["demo_ids"] for row in rows}

    both = ids(seeds=[0, 1])
    assert ids(seeds=[1]) == {key: value for key, value in both.items() if key[1] == 1}
    other = ids(seed=43)
    assert other != both
    first = ids(proportions=GRID[:2])
    assert first == {key: value for key, value in both.items() if key[0] != "75/25"}


def test_calibration_inputs_stand_behind_the_context_of_the_test_rows(tmp_path: Path) -> None:
    plans = _plans(tmp_path, calibration=["cc", "dc", "looc"])
    prompts, contexts = _prompts(plans), {row["context_id"]: row for row in _contexts(plans)}
    counts = Counter((row["context_id"].rpartition("/")[0], row["purpose"]) for row in prompts)
    n_rows = {"majority": 6, "cc": 3, "dc": 20, "looc": 4}
    assert counts == {(place, purpose): n for place in {place for place, _ in counts} for purpose, n in n_rows.items()}
    cc = {row["row"]: row["input_text"] for row in prompts if row["purpose"] == "cc"}
    assert cc == {0: "Sentence: N/A\noutput:", 1: "Sentence: \noutput:", 2: "Sentence: [MASK]\noutput:"}
    words = {word for n in range(6) for word in boolq_rows("cat", 4, 2)[n]["question"].split()}
    dc: dict[int, set[str]] = {}
    for row in prompts:
        if row["purpose"] in ("cc", "dc"):
            assert (row["instance_id"], row["gold"], row["n_demos_used"]) == (None, None, 4)
            assert row["context_id"].endswith("/all")
        if row["purpose"] == "dc":
            text = row["input_text"].removeprefix("Sentence: ").removesuffix("\noutput:")
            assert len(text.split(" ")) == 5  # "is cat 0 a amber": five words in each test row
            assert set(text.split(" ")) <= words
            dc.setdefault(row["row"], set()).add(text)
        if row["purpose"] == "looc":
            context, full = contexts[row["context_id"]], contexts[row["context_id"].rpartition("/")[0] + "/all"]
            left_out = (full["demo_ids"][row["row"]], full["demo_labels"][row["row"]])
            assert (row["instance_id"], row["gold"]) == left_out
            assert context["demo_ids"] == [d for position, d in enumerate(full["demo_ids"]) if position != row["row"]]
            assert (row["n_demos"], row["n_demos_used"]) == (4, 3)
            item = row["input_text"] + f" {row['gold']}\n\n"
            assert full["text"].count(item) == 1
            assert context["text"] == full["text"].replace(item, "")
    assert [len(same) for same in dc.values()] == [1] * 20  # one draw of words serves the whole run
    assert len({row["prompt_id"] for row in prompts}) == len(prompts)
    assert len(contexts) == 3 * 2 * 2 * (1 + 4)


def test_every_field_of_a_prompt_has_its_own_words(tmp_path: Path) -> None:
    rows = [{"premise": f"p{n} pp{n} ppp{n}", "hypothesis": f"h{n}", "label": n % 2} for n in range(20)]
    write_jsonl(tmp_path / "train.jsonl", rows[:12])
    write_jsonl(tmp_path / "test.jsonl", rows[12:])
    spec = boolq_spec(tmp_path, prompt={"preset": "rte"}, proportions=[{"True": 1}], calibration=["cc", "dc"])
    prompts = _prompts(list(plan_settings(spec, read_dataset(spec), TOKENIZER, None)))
    texts = [row["input_text"] for row in prompts if row["purpose"] == "cc"]
    assert texts[0] == "Premise N/A\nhypothesis N/A\nentailment"
    for row in prompts:
        if row["purpose"] == "dc":
            premise, hypothesis, end = row["input_text"].split("\n")
            assert len(premise.split(" p")) == 4
            assert hypothesis.startswith("hypothesis h")
            assert end == "entailment"


def test_parts_are_bounded_and_keep_a_draw_together_where_one_holds_it(tmp_path: Path) -> None:
    whole = _prompts(_plans(tmp_path)[:1])
    # Four draws of six rows.
    for part_rows, sizes in ((100, [24]), (13, [12, 12]), (6, [6] * 4), (4, [4, 2] * 4)):
        (plan, *_) = _plans(tmp_path, execution={"part_rows": part_rows})
        assert [row["prompt_id"] for row in _prompts([plan])] == [row["prompt_id"] for row in whole]
        assert [part.prompts.num_rows for part in plan.parts] == sizes


def test_a_part_costs_each_of_its_contexts_once(tmp_path: Path) -> None:
    (plan,) = _plans(tmp_path, proportions=GRID[:1], execution={"part_rows": 6})[:1]
    part = plan.parts[0]
    (context,) = [row for row in _contexts([plan]) if row["context_id"] == part.prompts["context_id"][0].as_py()]
    inputs = part.prompts["input_text"].to_pylist()

    def n_tokens(text: str) -> int:
        return len(TOKENIZER(text)["input_ids"])

    labels = 6 * sum(n_tokens(f" {label}</s>") - 1 for label in ("True", "False"))
    assert 6 * PieceLengths(TokenCounter(TOKENIZER)).with_eos(("True", "False")) == labels
    shared = n_tokens(context["text"]) + sum(n_tokens(text) - 1 for text in inputs) + labels
    assert part.tokens == pytest.approx(shared, abs=6 * 6)  # pieces are counted apart; tokens may merge where they meet
    unshared = 2 * sum(n_tokens(context["text"] + text) for text in inputs) + labels
    assert part.tokens_unshared == pytest.approx(unshared, abs=2 * 6 * 12)


def test_a_shortened_prompt_is_recorded(tmp_path: Path) -> None:
    changes = {"proportions": [{"False": 1.0}], "prompt": {"n_demos": 12}, "data": {"on_shortage": "reduce"}}
    (plan,) = _plans(tmp_path, **changes)
    assert plan.notes == ["setting 0/100: 9 of 12 demonstrations, as data.train has too few examples of a label"]
    (settings,) = plan.settings.to_pylist()
    assert (settings["counts"], settings["counts_asked"]) == ([0, 9], [0, 12])
    assert {(row["n_demos"], row["n_demos_used"]) for row in _prompts([plan])} == {(12, 9)}
    assert {len(row["demo_ids"]) for row in _contexts([plan])} == {9}


def test_too_few_examples_are_refused_before_anything_is_planned(tmp_path: Path) -> None:
    spec, dataset = _inputs(tmp_path, prompt={"n_demos": 12})
    with pytest.raises(InputError, match=r"setting 0/100 needs 12 of 'False' and data.train has 9"):
        next(plan_settings(spec, dataset, TOKENIZER, None))


def _of_characters(*merges: tuple[str, str]) -> PreTrainedTokenizerFast:
    """Return a tokenizer of characters that joins only these, the first first; nothing keeps it from joining lines."""
    tokens = ["</s>", "\n", *map(chr, range(32, 127)), *("".join(pair) for pair in merges)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def _longest(plans: list[SettingPlan], tokenizer: PreTrainedTokenizerFast = TOKENIZER) -> dict[str, int]:
    """Return the tokens of each prompt with its longest answer and EOS, by tokenising whole texts."""
    contexts = {row["context_id"]: row["text"] for row in _contexts(plans)}
    return {
        row["prompt_id"]: max(
            len(tokenizer(f"{contexts[row['context_id']]}{row['input_text']} {label}")["input_ids"]) + 1
            for label in row["labels"]
        )
        for row in _prompts(plans)
    }


@pytest.mark.parametrize(
    "tokenizer",
    [
        TOKENIZER,
        _of_characters(("\n", "\n"), ("\n\n", "S")),  # a prompt has fewer tokens than its pieces
        _of_characters(("\n", "S"), ("\n", "\n"), ("S", "e")),  # a prompt has more tokens than its pieces
    ],
    ids=["apart", "fewer", "more"],
)
def test_prompts_beyond_the_window_are_refused_and_counted(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    rows = {name: boolq_rows(name, 12, 9) for name in ("train", "test")}
    for name, own in rows.items():
        for number, row in enumerate(own):
            row["question"] = ("Sea" if number % 3 else "tea") + "x" * (number // 3) + f" {name}{number % 3}"
        write_jsonl(tmp_path / f"{name}.jsonl", own)
    prompt = {"preset": None, "item": "{sentence}\nIs: {label}", "instruction_text": "Say it.", "n_demos": 9}
    spec = boolq_spec(
        tmp_path, prompt=prompt,
        data={"labels": {True: "True", False: "False"}, "fields": {"sentence": "question"}}, proportions=GRID[1:2],
        seeds=[0], calibration=["cc", "looc"],
    )  # fmt: skip
    dataset = read_dataset(spec)
    needed = _longest(list(plan_settings(spec, dataset, tokenizer, None)), tokenizer)
    worst = max(needed.values())
    assert _problems(list(plan_settings(spec, dataset, tokenizer, worst))) == []
    for window in range(min(needed.values()) - 2, worst):
        n_over = sum(tokens > window for tokens in needed.values())
        (message,) = _problems(list(plan_settings(spec, dataset, tokenizer, window)))
        assert f"prompt.n_demos 9: {n_over} prompts need up to {worst} tokens with their answer (first: b" in message
        assert f"and the model's window has {window}; lower prompt.n_demos to about " in message


def test_the_number_of_demonstrations_that_the_refusal_proposes_fits(tmp_path: Path) -> None:
    window = 200
    (problem,) = _problems(_plans(tmp_path, window=window, prompt={"n_demos": 9}))
    proposed = int(problem.partition("prompt.n_demos to about ")[2].partition(",")[0])
    assert 1 <= proposed < 9
    assert max(_longest(_plans(tmp_path, window=window, prompt={"n_demos": proposed})).values()) <= window
    (problem,) = _problems(_plans(tmp_path, window=20))
    assert "has 20; lower prompt.n_demos, take long examples out" in problem


def test_labels_that_the_tokenizer_does_not_tell_apart_are_refused(tmp_path: Path) -> None:
    data = {"labels": {True: "yes", False: "no"}}
    spec, dataset = _inputs(tmp_path, data=data, proportions=[{"yes": 1}])
    assert _problems(list(plan_settings(spec, dataset, of_words("output:"), None))) == [
        "boolq: the model's tokenizer gives the labels 'yes' and 'no' the same tokens, so its scores would say "
        "nothing; change data.labels, or choose a model whose tokenizer tells its labels apart"
    ]
