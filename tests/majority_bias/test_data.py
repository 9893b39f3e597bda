"""Data of majority bias, own and real."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.inputs.files import Example
from biaseval.majority_bias.data import Dataset, read_dataset
from biaseval.majority_bias.plan import plan_settings
from biaseval.prompting.parts import n_prompts
from biaseval.spec import MajorityBiasSpec
from biaseval.store import Run
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.taskfiles import write_task
from tests.tinymodels import make_tokenizer

STANCE = {"preset": None, "item": "On {target}: {tweet}\nStance: {label}", "instruction": [False]}
WORDS = {"preset": None, "item": "{input}\nAnswer: {label}", "instruction_text": "Say yes or no."}


def _read(folder: Path, train: object, test: object, **changes: Any) -> Dataset:
    """Read rows (as JSONL), or text, from files of the suffix given in ``changes``."""
    suffix = changes.pop("suffix", ".jsonl")
    for name, rows in (("train", train), ("test", test)):
        path = folder / f"{name}{suffix}"
        if isinstance(rows, str):
            path.write_text(rows, encoding="utf-8")
        else:
            assert isinstance(rows, list)
            write_jsonl(path, rows)
    data = {"train": str(folder / f"train{suffix}"), "test": str(folder / f"test{suffix}"), **changes.pop("data", {})}
    return read_dataset(boolq_spec(folder, data=data, **changes))


def _mistakes(folder: Path, train: object, test: object = None, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        _read(folder, train, boolq_rows("cat", 1, 1) if test is None else test, **changes)
    return str(caught.value)


def test_boolqs_own_form_needs_no_more_than_the_preset(tmp_path: Path) -> None:
    dataset = _read(tmp_path, boolq_rows("dog", 3, 1), boolq_rows("cat", 1, 1))
    assert dataset.labels == ("True", "False")
    assert dataset.available() == {"True": 3, "False": 1}
    texts = ("is cat 0 a amber", "is cat 1 a river")
    shown = zip(texts, ("True", "False"), strict=True)
    assert dataset.test == tuple(
        Example(f"test-{n}", {"sentence": text}, label) for n, (text, label) in enumerate(shown)
    )
    assert [example.id for example in dataset.train] == ["train-0", "train-1", "train-2", "train-3"]
    assert dataset.notes == []
    assert dataset.sha256["data.train"] == hashlib.sha256((tmp_path / "train.jsonl").read_bytes()).hexdigest()
    assert set(dataset.sha256) == {"data.train", "data.test"}


def test_named_fields_and_labels_are_those_of_the_spec(tmp_path: Path) -> None:
    rows = [{"id": 7, "q": " who? ", "gold": 1, "label": "x"}, {"id": "b", "q": "what?", "gold": 0, "label": "y"}]
    test = [{"id": "c", "q": "why?", "gold": 1, "label": "x"}]
    data = {"fields": {"sentence": "q"}, "label": "gold", "labels": {0: "no", 1: "yes"}}
    dataset = _read(tmp_path, rows, test, data=data)
    assert dataset.labels == ("no", "yes")
    assert dataset.train == (Example("7", {"sentence": "who?"}, "yes"), Example("b", {"sentence": "what?"}, "no"))


def test_labels_without_a_mapping_are_shown_as_they_are_in_code_point_order(tmp_path: Path) -> None:
    rows = [{"target": "tea", "tweet": f"t{number}", "label": label} for number, label in enumerate(["none", " favor"])]
    test = [{"target": "tea", "tweet": "other", "label": "against"}]
    dataset = _read(tmp_path, rows, test, prompt=STANCE)
    assert dataset.labels == ("against", "favor", "none")
    assert dataset.available() == {"against": 0, "favor": 1, "none": 1}
    assert dataset.train[0] == Example("train-0", {"target": "tea", "tweet": "t0"}, "none")


RTE_TABLE = "index\tsentence1\tsentence2\tlabel\n0\tHe said \"no.\tA 'b' c\tentailment\n1\tX\tY\tnot_entailment\n"


def test_glues_table_of_rte_is_read_without_quoting(tmp_path: Path) -> None:
    other = "\ufeffindex\tsentence1\tsentence2\tlabel\r\n1\tP\tH\tnot_entailment\r\n"
    dataset = _read(tmp_path, RTE_TABLE, other, suffix=".tsv", prompt={"preset": "rte"})
    assert dataset.train == (
        Example("train-0", {"premise": 'He said "no.', "hypothesis": "A 'b' c"}, "True"),
        Example("train-1", {"premise": "X", "hypothesis": "Y"}, "False"),
    )
    # Each file has its own count; that does not make rows the same.
    assert dataset.test == (Example("test-1", {"premise": "P", "hypothesis": "H"}, "False"),)
    assert dataset.notes == []


@pytest.mark.parametrize(
    ("names", "labels"),
    [(("premise", "hypothesis"), ("entailment", "not_entailment")), (("sentence1", "sentence2"), (0, 1))],
)
def test_rte_is_read_under_either_pair_of_names(
    tmp_path: Path, names: tuple[str, str], labels: tuple[object, object]
) -> None:
    rows = [{names[0]: f"p{n}", names[1]: f"h{n}", "label": label, "idx": n + 5} for n, label in enumerate(labels)]
    test = [{names[0]: "p", names[1]: "h", "label": labels[0], "idx": 5}]
    dataset = _read(tmp_path, rows, test, prompt={"preset": "rte"})
    assert [(example.id, example.label) for example in dataset.train] == [("train-5", "True"), ("train-6", "False")]


def test_a_task_file_alone_gives_a_fifth_as_test_rows_and_its_definition(tmp_path: Path) -> None:
    path = write_task(tmp_path, n_instances=100)
    spec = boolq_spec(tmp_path, data={"train": str(path), "test": None}, prompt=WORDS)
    dataset = read_dataset(spec)
    assert (len(dataset.train), len(dataset.test)) == (80, 20)
    assert not {example.id for example in dataset.train} & {example.id for example in dataset.test}
    assert dataset.definition == "Say whether the two words match"
    assert dataset.labels == ("no", "yes")
    assert dataset.notes == ["data.test: not given; 20 of 100 examples were drawn from data.train"]
    first = json.loads(path.read_text())["Instances"][0]
    assert Example(first["id"], {"input": first["input"]}, "no") in (*dataset.train, *dataset.test)
    assert read_dataset(spec) == dataset
    assert read_dataset(spec.model_copy(update={"seed": 1})).test != dataset.test


def test_as_many_test_rows_are_drawn_as_asked_and_the_rest_is_for_demonstrations(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", boolq_rows("dog", 30, 20))

    def read(test_rows: int | None, **changes: Any) -> Dataset:
        return read_dataset(boolq_spec(tmp_path, data={"test": None, "test_rows": test_rows}, **changes))

    drawn, whole = read(46), {f"train-{number}" for number in range(50)}
    assert (len(drawn.test), len(drawn.train)) == (46, 4)
    assert {example.id for example in (*drawn.train, *drawn.test)} == whole
    assert drawn.notes == ["data.test: not given; 46 of 50 examples were drawn from data.train"]
    assert read(10) == read(None)  # a fifth, with the same draw
    assert read(46, seed=1).test != drawn.test
    assert all(example in drawn.test for example in read(12).test)
    with pytest.raises(InputError, match=r"^data.test_rows: 47 of 50 rows leave fewer .* lower it to at most 46$"):
        read(47)
    write_jsonl(tmp_path / "test.jsonl", boolq_rows("cat", 2, 2))
    with pytest.raises(InputError, match=r"^data.test_rows: does not go with data\.test, which has the test rows"):
        read_dataset(boolq_spec(tmp_path, data={"test_rows": 10}))


def test_demonstrations_that_stand_in_the_test_file_are_left_out_and_counted(tmp_path: Path) -> None:
    train = boolq_rows("dog", 4, 4)
    same_text = {**train[1], "question": f" {train[1]['question']} ", "passage": "another"}
    train[2]["id"] = "shared-id"
    test = [same_text, {**boolq_rows("cat", 1, 0)[0], "id": "shared-id"}]
    dataset = _read(tmp_path, train, test)
    assert len(dataset.test) == 2
    assert dataset.available() == {"True": 2, "False": 4}
    [note] = dataset.notes
    assert note.startswith("data.train: 2 of 8 examples stand among the test rows too (same id or same text)")


def test_max_test_draws_rows_by_the_seed_and_keeps_their_order(tmp_path: Path) -> None:
    train, test = boolq_rows("dog", 2, 2), boolq_rows("cat", 30, 30)
    whole = _read(tmp_path, train, test)
    drawn = _read(tmp_path, train, test, data={"max_test": 10})
    assert len(drawn.test) == 10
    assert [example for example in whole.test if example in drawn.test] == list(drawn.test)
    assert _read(tmp_path, train, test, data={"max_test": 10}) == drawn
    assert _read(tmp_path, train, test, data={"max_test": 10}, seed=7).test != drawn.test
    # What the test file holds is no demonstration, drawn or not.
    assert _read(tmp_path, [*train, *test], test, data={"max_test": 10}).train == drawn.train


def test_all_mistakes_of_both_files_come_in_one_message(tmp_path: Path) -> None:
    good = boolq_rows("dog", 1, 1)
    train = "\n".join(
        [
            json.dumps({**good[0], "id": "a"}), "{not json", '["a list"]', "", json.dumps({**good[1], "id": "a"}),
            json.dumps({"question": 3, "answer": True}), json.dumps({"answer": True}),
            json.dumps({"question": " why? ", "answer": "maybe"}), json.dumps({"question": "  ", "answer": "maybe"}),
            json.dumps({"question": "half \ud800", "answer": None}), json.dumps({"question": "fine", "answer": 0.5}),
        ]
    )  # fmt: skip
    message = _mistakes(tmp_path, train, [{"question": "x", "answer": 3}])
    where = f"{tmp_path / 'train.jsonl'}: "
    for problem in (
        "line 2, column 2: is not JSON (",
        "line 3: is no JSON object",
        "line 5: id: 'a' is that of line 1 too; make ids unique",
        "line 6: question: 3 is no text; write a string",
        "line 7: question: is missing; add it",
        "line 8: answer: the label 'maybe' is not in data.labels (true, false); add it there, or mend the row",
        "line 10: question: holds half a surrogate pair",
        "line 10: answer: is empty; fill it in, or leave such rows out with data.on_bad_row: drop",
        "line 11: answer: 0.5 is no label; write text, true, false or a whole number",
    ):
        assert where + problem in message  # fmt: skip
    assert f"{tmp_path / 'test.jsonl'}: line 1: answer: the label '3' is not in data.labels" in message
    assert message.startswith("10 problems:")


def test_many_mistakes_are_cut_and_counted(tmp_path: Path) -> None:
    message = _mistakes(tmp_path, [{"question": f"q{number}", "answer": number + 2} for number in range(37)])
    assert len(message.splitlines()) == 1 + 10 + 1
    assert message.endswith("27 more problems like these")
    message = _mistakes(tmp_path, [{"question": f"q{number}", "answer": ""} for number in range(37)])
    assert "line 1, line 2, line 3 (and 34 rows more): answer: is empty" in message
    assert len(message.splitlines()) == 1
    message = _mistakes(tmp_path, [{"question": "q", "answer": "a passage " * 100}])
    assert "a passage a passage" in message
    assert len(message) < 400
    rows = [{"target": "tea", "tweet": f"t{number}", "label": "none"} for number in range(4)]
    assert "every example has the label 'none'; two are" in _mistakes(tmp_path, rows[:2], rows[2:], prompt=STANCE)


@pytest.mark.parametrize(("train", "changes", "problem"), [
    ("", {}, "is empty"), ("index\tsentence1\n", {"suffix": ".tsv"}, "holds no row"),
    ("a\tb\n1\n", {"suffix": ".tsv"}, "line 2: has 1 columns and the header 2"),
    ("a,b\n", {"suffix": ".csv"}, "holds no row"),
    ("some text", {"suffix": ".txt"}, "is no JSON, it starts with 'some text'; CSV (.csv), TSV"),
    ('{"Definition": ["x"]}', {"suffix": ".json"}, "Instances: is missing"),
    ([{"text": "x", "answer": True}], {},
        "data.fields.sentence: no row has sentence or question; name the file's field in "
        "data.fields: {sentence: ...} (its fields: text, answer)"),
    ([{"question": "x", "gold": True}], {}, "data.label: no row has label or answer; name the file's field in"),
    ([{"question": "x", "answer": True}], {"data": {"fields": {"sentense": "question"}}},
        "data.fields.sentense: the prompt has no such field; it has sentence"),
    ([{"target": "x", "tweet": "y", "label": True}], {"prompt": STANCE}, "label: the label true is no text; say"),
])  # fmt: skip
def test_mistakes_name_place_and_remedy(tmp_path: Path, train: object, changes: dict[str, Any], problem: str) -> None:
    assert problem in _mistakes(tmp_path, train, [], **changes)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", boolq_rows("dog", 2, 2))
    same = {"test": str(tmp_path / "train.jsonl")}
    for content, data, message in (
        (None, {}, r"test.jsonl: cannot be read \(No such file or directory\); check data.test"),
        (b'{"question": "\xff"}', {}, r"test.jsonl: line 1, byte 14: is not UTF-8 \(invalid start byte\)"),
        (b"", same, r"data.test: is data.train .*; name another file, or leave it out"),
    ):
        if content is not None:
            (tmp_path / "test.jsonl").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_dataset(boolq_spec(tmp_path, data=data))


def test_files_may_lie_on_an_object_store(object_store: str, tmp_path: Path) -> None:
    run = Run.open(f"{object_store}/examples")
    for role, prefix in (("train", "dog"), ("test", "cat")):
        run.write_text(f"{role}.jsonl", write_jsonl(tmp_path / "rows.jsonl", boolq_rows(prefix, 2, 2)).read_text())
    data = {role: f"{run.uri}/{role}.jsonl" for role in ("train", "test")}
    dataset = read_dataset(boolq_spec(tmp_path, data=data))
    assert dataset.test[0].fields["sentence"] == "is cat 0 a amber"
    with pytest.raises(InputError, match=r"absent.jsonl: cannot be read \(.*\); check data.test"):
        read_dataset(boolq_spec(tmp_path, data={**data, "test": f"{run.uri}/absent.jsonl"}))


def test_rows_without_a_label_may_be_left_out_and_labels_that_look_alike_are_said(tmp_path: Path) -> None:
    labels = ["yes", "Yes", "no", "", None, "yes"]
    rows = [{"input": f"row {n}", "label": label} for n, label in enumerate(labels)]
    test = [{"input": "other", "label": "no"}]
    assert "label: is empty; fill it in" in _mistakes(tmp_path, rows, test, prompt=WORDS)
    dataset = _read(tmp_path, rows, test, prompt=WORDS, data={"on_bad_row": "drop"})
    assert dataset.available() == {"Yes": 1, "no": 1, "yes": 2}
    assert dataset.notes == [
        "data.train: 2 of 6 rows are left out (on_bad_row: drop): 2 label: is empty",
        "the labels 'Yes' and 'yes' look alike and count as different; if they mean the same, mend them",
    ]


P2_STANCE = {
    "item": "Target: {target}\nTweet: {tweet}\nStance: {label}",
    "instruction_text": "Say whether the tweet is in favor of the target, against it, or none of both.",
    "n_demos": 28,
}


def _spec(folder: Path, **content: Any) -> MajorityBiasSpec:
    data = {"train": str(folder / "train.jsonl"), "test": str(folder / "test.jsonl"), "max_test": 40}
    common = {"kind": "majority_bias", "name": folder.name, "model": {"path": "unused"}, "seeds": [0]}
    return MajorityBiasSpec.model_validate({**common, **content, "data": {**data, **content.get("data", {})}})


@pytest.mark.parametrize(("name", "content", "labels", "n_train"), [
    ("boolq", {"prompt": {"preset": "boolq", "n_demos": 50}, "proportions": "binary_11"}, "True False", 2000),
    ("rte", {"prompt": {"preset": "rte", "n_demos": 10}, "proportions": "binary_11"}, "True False", 2490),
    ("tweets_stance", {"prompt": P2_STANCE, "proportions": "ternary_15"}, "against favor none", 2914),
])  # fmt: skip
def test_grids_are_planned_on_real_data(
    shared: Path, name: str, content: dict[str, Any], labels: str, n_train: int
) -> None:
    spec = _spec(shared / "data" / "majority" / name, **content)
    dataset = read_dataset(spec)
    assert " ".join(dataset.labels) == labels
    n_left_out = sum(int(note.split()[1]) for note in dataset.notes)
    assert len(dataset.train) + n_left_out == n_train
    plans = list(plan_settings(spec, dataset, make_tokenizer(), None))
    assert len(plans) == (11 if spec.proportions == "binary_11" else 15)
    for plan in plans:
        (setting,) = plan.settings.to_pylist()
        assert n_prompts(plan.parts) == 2 * 40
        for context in plan.contexts.to_pylist():
            counts = dict(zip(setting["labels"], setting["counts"], strict=True))
            assert Counter(context["demo_labels"]) == Counter(counts)
            assert not {example.id for example in dataset.test} & set(context["demo_ids"])
    tokens = sum(part.tokens for plan in plans for part in plan.parts)
    assert tokens * 5 < sum(part.tokens_unshared for plan in plans for part in plan.parts)
