"""`biaseval init` writes a spec that can be run as it is, and says what of the file would spoil a measurement."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.demo import MODEL_PATH, READER_PATH
from biaseval.errors import InputError
from biaseval.parsing import yaml_value
from biaseval.pipelines import describe, first_spec
from biaseval.spec import LabelBiasSpec, QaBiasSpec, TableSpec, load_spec
from tests.commands import call
from tests.label_bias.test_own_data import reviews, write_csv


def _spec(folder: Path, file: Path, model: str | None = str(MODEL_PATH)) -> tuple[Any, list[str]]:
    first = first_spec(str(file), model, folder)
    (folder / "first.yaml").write_text(first.text)
    return load_spec(folder / "first.yaml"), first.cautions


def test_a_csv_becomes_a_spec_that_can_be_planned(tmp_path: Path) -> None:
    rows = [{"Review text": row["review"], "shop": "a", "mood": row["mood"]} for row in reviews(80)]
    spec, cautions = _spec(tmp_path, write_csv(tmp_path / "shop reviews.csv", rows))
    assert isinstance(spec, LabelBiasSpec)
    [data] = spec.data or []
    assert (spec.name, data.train, data.label, data.fields) == (
        "shop-reviews",
        str(tmp_path / "shop reviews.csv"),
        "mood",
        {"review_text": "Review text"},
    )
    assert spec.prompt.item == "Review text: {review_text}\nMood: {label}"
    assert spec.prompt.instruction_text == "Answer with bad, good or mixed."
    assert spec.prompt.n_demos == [0, 2, 4, 8]
    assert cautions == ["80 rows are few: intervals will be wide, and only large changes can be told from none"]
    assert describe(spec).facts["n_prompts"] > 0


def test_a_name_of_any_length_becomes_one_that_a_spec_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_csv(tmp_path / f"{'long' * 30}.csv", reviews(60))
    spec, _ = _spec(tmp_path, file)
    assert len(spec.name) == 100
    found = call(capsys, monkeypatch, "init", str(file), "--out", str(tmp_path / "none" / "x.yaml"))
    assert (found.code, "there is no folder" in found.err) == (2, True)


@pytest.mark.parametrize("n_rows", [30, 48, 100, 395, 396, 500])
def test_the_demonstrations_asked_for_are_there(tmp_path: Path, n_rows: int) -> None:
    spec, _ = _spec(tmp_path, write_csv(tmp_path / "rows.csv", reviews(n_rows)))
    assert describe(spec).facts["n_test_rows"] >= n_rows // 2 - 1


@pytest.mark.parametrize(
    "names", [("option_a", "option_b", "option_c"), ("A", "B", "C"), ("choice 1", "choice 2", "choice 3")]
)
def test_columns_of_options_become_multiple_choice(tmp_path: Path, names: tuple[str, ...]) -> None:
    rows = [
        {"riddle": f"What is {n} and one?", names[0]: str(n), names[1]: str(n + 1), names[2]: str(n + 2), "answer": "B"}
        for n in range(59)
    ]
    rows += [{**rows[0], "riddle": "What is 0 and none?", "answer": "A"}, {**rows[0], names[2]: "-1"}]
    rows = [{**row, "answer": row["answer"] if place % 2 else "A"} for place, row in enumerate(rows)]
    spec, cautions = _spec(tmp_path, write_csv(tmp_path / "quiz.csv", rows))
    assert isinstance(spec, LabelBiasSpec)
    [data] = spec.data or []
    assert data.options == dict(zip("ABC", names, strict=True))
    assert (data.label, data.fields, spec.prompt.item) == ("answer", {"input": "riddle"}, None)
    assert spec.prompt.instruction_text == "Answer with A, B or C."
    assert "pride" in spec.calibration
    # A question with other options is another.
    assert not any("repeat" in caution for caution in cautions)
    assert describe(spec).facts["n_prompts"] > 0


def test_demonstrations_leave_half_of_the_rarest_label_to_be_measured(tmp_path: Path) -> None:
    rows = [
        {"text": f"row {n} of many", "team": "rare" if n % 33 == 0 else ("odd" if n % 2 else "even")}
        for n in range(299)
    ]
    spec, _ = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    assert spec.prompt.n_demos == [0, 2, 4]
    assert "no test row has" not in " ".join(describe(spec).notes)
    many = spec.model_copy(update={"prompt": spec.prompt.model_copy(update={"n_demos": [0, 16]})})
    notes = " ".join(describe(many).notes)
    assert "demonstration sets do not show each label as often: of some there are too few rows" in notes
    assert "no test row has the label 'rare': RSD and macro-F1 leave it out" in notes


def test_numbers_as_labels_have_a_place_for_their_words(tmp_path: Path) -> None:
    rows = [{"id": number, "a": f"premise {number}", "b": f"thesis {number}", "y": number % 2} for number in range(120)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec, cautions = _spec(tmp_path, tmp_path / "pairs.jsonl")
    [data] = spec.data
    assert (data.label, data.labels, spec.prompt.item) == (
        "y",
        {"0": "0", "1": "1"},
        "A: {a}\nB: {b}\nY: {label}",
    )
    assert cautions == ["labels are no words: say in data.labels what prompts show for each"]
    describe(spec)


def test_what_would_spoil_a_measurement_is_said(tmp_path: Path) -> None:
    rows = [{"text": f"row {number}", "label": "good"} for number in range(120)]
    rows += [{"text": "row 1", "label": "bad"}, {"text": "row 2", "label": "good"}, {"text": "", "label": "bad"}]
    rows += [{"text": f"new {number}", "label": ""} for number in range(2)]
    _, cautions = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    assert cautions == [
        "1 rows have no text: they are left out",
        "2 rows have no label: they are left out (data.on_bad_row: drop)",
        "2 rows repeat an earlier one's text, 1 of them with another label: they are left out",
        "99% of the labels are good: of the others little can be said",
        "bad: fewer than five rows, of which little can be said",
    ]


def test_names_and_labels_that_yaml_would_read_otherwise_are_quoted(tmp_path: Path) -> None:
    rows = [{"text": f"row {number}", "label": ("01", "02")[number % 2]} for number in range(60)]
    spec, _ = _spec(tmp_path, write_csv(tmp_path / "2024.csv", rows))
    assert spec.name == "2024"
    assert spec.data[0].labels == {"01": "01", "02": "02"}
    describe(spec)
    assert _spec(tmp_path, write_csv(tmp_path / "_on.csv", rows))[0].name == "on"


def test_questions_become_a_spec_of_qa(tmp_path: Path) -> None:
    question = {"id": "a", "question": "who?", "context": "me", "answers": {"text": ["me"], "answer_start": [0]}}
    (tmp_path / "dev.jsonl").write_text(json.dumps(question))
    spec, _ = _spec(tmp_path, tmp_path / "dev.jsonl", str(READER_PATH))
    assert isinstance(spec, QaBiasSpec)
    assert spec.datasets.in_distribution == {"dev": str(tmp_path / "dev.jsonl")}


@pytest.mark.parametrize(("column", "fields"), [("answers", None), ("answer", {"answers": "answer"})])
def test_a_table_of_questions_becomes_a_spec_of_qa(tmp_path: Path, column: str, fields: dict[str, str] | None) -> None:
    rows = [{"question": f"who {n}?", "context": f"it was Ann {n % 3}", column: f"Ann {n % 3}"} for n in range(40)]
    file = write_csv(tmp_path / "own.csv", rows)
    spec, _ = _spec(tmp_path, file, str(READER_PATH))
    assert isinstance(spec, QaBiasSpec)
    source = str(file) if fields is None else TableSpec(file=str(file), fields=fields)
    assert spec.datasets.in_distribution == {"own": source}
    # Answers that do not stand in their contexts are labels.
    labelled = [{**row, column: ("yes", "no")[n % 2]} for n, row in enumerate(rows)]
    if fields is not None:
        assert isinstance(_spec(tmp_path, write_csv(tmp_path / "own.csv", labelled))[0], LabelBiasSpec)


WARDS = [
    {
        "q": f"Who heads ward {n} of the house?",
        "passage": f"Ward {n} has {20 + n} beds. The head of ward {n} is Ann {n % 7}. It lies in the wing.",
        "gold": (f"Ann {n % 7}", json.dumps([f"Ann {n % 7}"]))[n % 2],
        "doc": f"ward {n}",
    }
    for n in range(60)
]


def test_a_table_of_questions_is_known_by_what_its_columns_hold(tmp_path: Path) -> None:
    spec, _ = _spec(tmp_path, write_csv(tmp_path / "wards.csv", WARDS), str(READER_PATH))
    assert isinstance(spec, QaBiasSpec)
    fields = {"question": "q", "context": "passage", "answers": "gold"}
    assert spec.datasets.in_distribution == {"wards": TableSpec(file=str(tmp_path / "wards.csv"), fields=fields)}
    # The bundled reader takes 128 tokens, a third of which neighbours share, as they do of the published 384.
    assert (spec.windows.max_tokens, spec.windows.stride) == (128, 42)
    assert describe(spec).facts["models"][0]["n_windows"] == len(WARDS)


PAIRS: dict[str, list[dict[str, object]]] = {
    "hypotheses in their premises": [
        {
            "premise": f"{n} men sleep, and dogs bark at them.",
            "hypothesis": f"{n} men sleep",
            "label": ("yes", "no")[n % 2],
        }
        for n in range(60)
    ],
    "questions with labels": [
        {"question": f"Do {n} men sleep?", "passage": f"{n} men sleep all day long.", "answer": ("yes", "no")[n % 2]}
        for n in range(60)
    ],
    "titles in their passages": [
        {
            "query": f"Is town {n} old?",
            "passage": f"Town {n} is old. It mills.",
            "title": "mill",
            "label": str(n % 2),
        }
        for n in range(60)
    ],
    "letters": [
        {"question": f"Who is it, {n}?", "story": f"A man of B or C, number {n}, sits.", "answer": "ABC"[n % 3]}
        for n in range(60)
    ],
}


@pytest.mark.parametrize("name", list(PAIRS))
def test_texts_with_labels_are_no_questions_of_extractive_qa(tmp_path: Path, name: str) -> None:
    spec, _ = _spec(tmp_path, write_csv(tmp_path / "rows.csv", PAIRS[name]))
    assert isinstance(spec, LabelBiasSpec)


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"56f7": "Ann", "57a2": "", "572b": "Bo"}),
        json.dumps([{"id": "a", "prediction_text": "Ann"}, {"id": "b", "prediction_text": "Bo"}]),
        "".join(json.dumps({"id": n, "prediction": "Ann"}) + "\n" for n in range(9)),
    ],
)
def test_predictions_are_told_from_questions(tmp_path: Path, content: str) -> None:
    (tmp_path / "system.json").write_text(content)
    with pytest.raises(InputError, match=r"system.json: looks like predictions; name the file of their questions"):
        first_spec(str(tmp_path / "system.json"), None, tmp_path)


def test_labels_beside_what_a_system_predicted_are_labels(tmp_path: Path) -> None:
    rows = [{"id": number, **row, "prediction": "good"} for number, row in enumerate(reviews(60))]
    spec, _ = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    assert isinstance(spec, LabelBiasSpec)


def test_questions_of_articles_are_counted(tmp_path: Path) -> None:
    qas = [{"id": str(n), "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]} for n in range(7)]
    article = {"title": "a", "paragraphs": [{"context": "Ann.", "qas": qas}, {"context": "Ann!", "qas": qas[:1]}]}
    (tmp_path / "dev.json").write_text(json.dumps({"data": [article, article]}))
    assert first_spec(str(tmp_path / "dev.json"), None, tmp_path).found == ["16 questions with their contexts"]
    lines = [{"header": {}}, {"context": "Ann.", "qas": qas}]
    (tmp_path / "mrqa.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert first_spec(str(tmp_path / "mrqa.jsonl"), None, tmp_path).found == ["7 questions with their contexts"]


def test_few_questions_are_sampled_with_replacement(tmp_path: Path) -> None:
    rows = [
        {
            "id": str(n),
            "question": "Who?",
            "context": f"Ann {n}.",
            "answers": {"text": [f"Ann {n}"], "answer_start": [0]},
        }
        for n in range(40)
    ]
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec, _ = _spec(tmp_path, tmp_path / "few.jsonl")
    assert (spec.bootstrap.sample, spec.bootstrap.replacement) == (10, True)
    assert "system, predictions: {few: predictions.json}" in (tmp_path / "first.yaml").read_text()


def test_a_file_without_a_label_is_refused(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "rows.csv", [{"text": f"row {number}"} for number in range(60)])
    with pytest.raises(InputError, match=r"no column can be a label: none has 2 to 45 values \(its columns: text\)"):
        first_spec(str(path), None, tmp_path)


def test_the_command_writes_no_spec_over_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_csv(tmp_path / "rows.csv", reviews(60))
    out = tmp_path / "rows.yaml"
    wrong = call(capsys, monkeypatch, "init", str(path), "--out", str(out), "--model", str(tmp_path / "none"))
    assert (wrong.code, wrong.out, out.exists()) == (2, "", False)
    assert wrong.err == f"error: {tmp_path / 'none'}: no such directory; correct the path of the model\n"
    done = call(capsys, monkeypatch, "init", str(path), "--out", str(out))
    assert done.code == 0, done.err
    assert "label: mood, with 3 values (good 50%, bad 25%, mixed 25%)" in done.out
    assert f"next: name a model in it, then biaseval plan {out}" in done.out
    assert yaml.safe_load(out.read_text())["model"] == {"path": "MODEL", "chat": "auto"}
    again = call(capsys, monkeypatch, "init", str(path), "--out", str(out))
    assert (again.code, again.out) == (2, "")
    assert again.err.startswith(f"error: {out}: is there already; go on with it (biaseval plan {out}), or name")


def test_rows_without_a_label_are_left_out_by_the_spec(tmp_path: Path) -> None:
    rows = [{"text": f"row {number}", "label": ("good", "bad", "")[min(2, number % 11)]} for number in range(110)]
    spec, cautions = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    n_unlabelled = sum(not row["label"] for row in rows)
    assert cautions[0] == f"{n_unlabelled} rows have no label: they are left out (data.on_bad_row: drop)"
    assert (
        f"  on_bad_row: drop  # {n_unlabelled} rows have no label; error refuses the file\n"
        in (tmp_path / "first.yaml").read_text()
    )
    [data] = spec.data
    assert data.on_bad_row == "drop"
    left_out = f"{n_unlabelled} of 110 rows are left out (on_bad_row: drop): {n_unlabelled} label: is empty"
    assert f"note: data.train: {left_out}" in describe(spec).notes
    labelled = [row for row in rows if row["label"]]
    assert _spec(tmp_path, write_csv(tmp_path / "rows.csv", labelled))[0].data[0].on_bad_row == "error"


def test_options_without_a_right_one_are_left_out_by_the_spec(tmp_path: Path) -> None:
    texts = ({"question": f"What is {n}?", **{letter: f"{letter} {n}" for letter in "ABC"}} for n in range(80))
    rows = [{**row, "answer": "ABC "[n % 4].strip()} for n, row in enumerate(texts)]
    spec, cautions = _spec(tmp_path, write_csv(tmp_path / "quiz.csv", rows))
    assert "20 rows have no label: they are left out (data.on_bad_row: drop)" in cautions
    assert (
        "note: data.train: 20 of 80 rows are left out (on_bad_row: drop): 20 answer: is empty" in describe(spec).notes
    )


@pytest.mark.parametrize("labels", [("café", "cafe\u0301", "thé"), ("yes", "Yes", "no"), ("good", "\uff47ood", "bad")])
def test_labels_that_look_alike_are_said_before_and_in_a_plan(tmp_path: Path, labels: tuple[str, ...]) -> None:
    rows = [{"text": f"row {number}", "label": labels[number % 3]} for number in range(120)]
    spec, cautions = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    [caution] = [each for each in cautions if "look alike and count as different" in each]
    # A plan has them in the order of their characters.
    shown = re.findall("'[^']*'", caution)
    assert any("rows: the labels" in note and all(one in note for one in shown) for note in describe(spec).notes)


def test_a_file_without_names_of_columns_is_said_before_and_in_a_plan(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("".join(f"tea cup {n},{('pos', 'neg')[n % 2]}\n" for n in range(60)))
    spec, cautions = _spec(tmp_path, tmp_path / "rows.csv")
    assert cautions[0].startswith(
        "line 1 looks like a row and not like the names of columns ('pos' stands below in its"
    )
    assert f"note: data.train: {cautions[0]}" in describe(spec).notes


def test_decimal_numbers_as_labels_are_shown_without_decimals(tmp_path: Path) -> None:
    rows = [{"text": f"row {number}", "label": ("0.0", "1.0")[number % 2]} for number in range(60)]
    spec, cautions = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    assert spec.data[0].labels == {"0.0": "0", "1.0": "1"}
    assert "labels are no words: say in data.labels what prompts show for each" in cautions
    describe(spec)
    frame = pd.DataFrame([{**row, "label": None if n > 50 else float(row["label"])} for n, row in enumerate(rows)])
    frame.to_parquet(tmp_path / "rows.parquet")
    [data] = _spec(tmp_path, tmp_path / "rows.parquet")[0].data
    assert (data.label, data.labels, data.on_bad_row) == ("label", {"0": "0", "1": "1"}, "drop")


def test_hidden_labels_are_said_where_no_label_is_found(tmp_path: Path) -> None:
    features = {"text": {"_type": "Value"}, "label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema({"text": pa.string(), "label": pa.int64()}, metadata=metadata)
    rows = [{"text": f"row {number}", "label": -1} for number in range(60)]
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "test.parquet")
    with pytest.raises(InputError, match=r"label: 60 of 60 rows have -1, which stands for a hidden label, as in test"):
        first_spec(str(tmp_path / "test.parquet"), None, tmp_path)


@pytest.mark.parametrize(
    ("columns", "fields", "item"),
    [
        (("Text", "text_"), {"text": "Text", "text_2": "text_"}, "Text: {text}\nText 2: {text_2}\nLabel: {label}"),
        (("!", "?"), {"text": "!", "text_2": "?"}, "Text: {text}\nText 2: {text_2}\nLabel: {label}"),
        (
            ("a", "a 2", "A"),
            {"a_2": "a 2", "a_3": "A"},
            "A: {a}\nA 2: {a_2}\nA 3: {a_3}\nLabel: {label}",
        ),
    ],
)
def test_columns_of_like_names_stay_apart(
    tmp_path: Path, columns: tuple[str, ...], fields: dict[str, str], item: str
) -> None:
    rows = [{**{name: f"{name} {n} is fine" for name in columns}, "label": ("bad", "good")[n % 2]} for n in range(60)]
    spec, _ = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    assert (spec.data[0].fields, spec.prompt.item) == (fields, item)
    describe(spec)


ODD = ("Don\x92t know", "x\x7f", "\x85 b", "a\u2028b", "\ufeffq", "\ufffe!", "a: b #c", "yes", "~", "'\"\\", "...")


@pytest.mark.parametrize("label", ODD, ids=ascii)
def test_a_label_of_any_characters_is_written_as_yaml_reads_it(tmp_path: Path, label: str) -> None:
    rows = [{"text": f"row {number}", f"{label}?": (label, "Yes")[number % 2]} for number in range(60)]
    folder = tmp_path / label.replace("/", "")
    folder.mkdir()
    file = folder / "rows.json"
    file.write_text(json.dumps(rows))
    first = first_spec(str(file), None, tmp_path)
    out = tmp_path / "first.yaml"
    out.write_text(first.text, encoding="utf-8")
    spec = load_spec(out)
    shown = " or ".join(sorted((label.strip(), "Yes")))
    assert spec.prompt.instruction_text == f"Answer with {shown}."
    assert (spec.data[0].label, spec.data[0].train) == (f"{label}?", str(file))
    assert spec.model.chat == "auto"
    # What other readers of YAML make of it is the same.
    assert yaml.safe_load(first.text) == yaml_value(first.text)


def test_labels_that_are_no_texts_are_written_beside_such(tmp_path: Path) -> None:
    rows = [{"text": f"row {number}", "label": (1, "x\x92", "off", "a" * 3000)[number % 4]} for number in range(80)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    first = first_spec(str(tmp_path / "rows.json"), None, tmp_path)
    (tmp_path / "first.yaml").write_text(first.text)
    assert load_spec(tmp_path / "first.yaml").data[0].labels == {own: own for own in ("1", "a" * 3000, "off", "x\x92")}
    assert yaml.safe_load(first.text) == yaml_value(first.text)


def test_half_a_surrogate_pair_is_refused_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": f"row {number}", "label": ("\ud83d", "Yes")[number % 2]} for number in range(60)]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    out = tmp_path / "first.yaml"
    done = call(capsys, monkeypatch, "init", str(tmp_path / "rows.json"), "--out", str(out))
    assert (done.code, done.out) == (2, "")
    assert "holds half a surrogate pair" in done.err
    assert not out.exists()
