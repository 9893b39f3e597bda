"""`biaseval init` writes a spec that can be run as it is, and says what of the file would spoil a measurement."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from biaseval.demo import MODEL_PATH
from biaseval.errors import InputError
from biaseval.parsing import yaml_value
from biaseval.runs import describe, first_spec
from biaseval.spec import LabelBiasSpec, load_spec
from tests.commands import Command
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
    assert (spec.name, data.train) == ("shop-reviews", str(tmp_path / "shop reviews.csv"))
    assert (data.label, data.fields) == ("mood", {"review_text": "Review text"})
    assert spec.prompt.item == "Review text: {review_text}\nMood: {label}"
    assert spec.prompt.instruction_text == "Answer with bad, good or mixed."
    assert (spec.prompt.n_demos, spec.prompt.demos) == ([0], "balanced")
    assert cautions == ["80 rows are few: intervals will be wide, and only large changes can be detected"]
    assert describe(spec).facts["n_prompts"] > 0


def test_a_name_of_any_length_becomes_one_that_a_spec_takes(tmp_path: Path, command: Command) -> None:
    file = write_csv(tmp_path / f"{'long' * 30}.csv", reviews(60))
    spec, _ = _spec(tmp_path, file)
    assert len(spec.name) == 100
    found = command("init", str(file), "--out", str(tmp_path / "none" / "x.yaml"))
    assert (found.code, "there is no folder" in found.err) == (2, True)
    found = command("init", str(file), "--out", "/proc/spec.yaml")
    assert (found.code, "/proc/spec.yaml: cannot be written" in found.err) == (1, True)


@pytest.mark.parametrize(
    ("columns", "are_options"),
    [(("A", "B", "C", "D"), True), (("option_a", "option_b", "choices"), True), (("a", "b"), False)],
)
def test_options_that_no_prompt_shows_are_said(tmp_path: Path, columns: tuple[str, ...], are_options: bool) -> None:
    rows = [
        {"question": f"Which of these is number {number} in the list?", "answer": "ABCD"[number % 4]}
        | {column: f"{column} {number}" for column in columns}
        for number in range(80)
    ]
    _, cautions = _spec(tmp_path, write_csv(tmp_path / "quiz.csv", rows))
    said = f"{', '.join(columns)}: look like options of multiple choice"
    assert any(caution.startswith(said) for caution in cautions) is are_options


def test_numbers_as_labels_have_a_place_for_their_words(tmp_path: Path) -> None:
    words = "labels are no words: say in data.labels what prompts show for each"
    rows = [{"id": number, "a": f"premise {number}", "b": f"thesis {number}", "y": number % 2} for number in range(120)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec, cautions = _spec(tmp_path, tmp_path / "pairs.jsonl")
    [data] = spec.data
    assert (data.label, data.labels, spec.prompt.item) == ("y", {"0": "0", "1": "1"}, "A: {a}\nB: {b}\nY: {label}")
    assert cautions == [words]
    describe(spec)
    for name, called, labels in (("2024", "2024", ("01", "02")), ("_on", "on", ("0.0", "1.0"))):
        rows = [{"text": f"row {number}", "label": labels[number % 2]} for number in range(60)]
        spec, cautions = _spec(tmp_path, write_csv(tmp_path / f"{name}.csv", rows))
        assert (spec.name, spec.data[0].labels) == (called, {label: label for label in labels})
        assert words in cautions
        describe(spec)
    frame = pd.DataFrame([{**row, "label": None if n > 50 else float(row["label"])} for n, row in enumerate(rows)])
    frame.to_parquet(tmp_path / "rows.parquet")
    [data] = _spec(tmp_path, tmp_path / "rows.parquet")[0].data
    assert (data.label, data.labels, data.on_bad_row) == ("label", {"0": "0", "1": "1"}, "drop")


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


def test_a_file_without_a_label_is_refused(tmp_path: Path) -> None:
    none = "no column can be a label"
    path = write_csv(tmp_path / "rows.csv", [{"text": f"row {number}"} for number in range(60)])
    cases = [(path, rf"{none}: none has 2 to 30 values \(its columns: text\)")]
    for key in ("paragraphs", "qas"):
        file = tmp_path / f"{key}.json"
        file.write_text(json.dumps({"data": [{"title": f"a {n}", key: [{"context": "Ann."}]} for n in range(9)]}))
        cases.append((file, rf"{none}.*{key}.*docs/qa-bias.md those for questions"))
    features = {"text": {"_type": "Value"}, "label": {"names": ["bad", "good"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema({"text": pa.string(), "label": pa.int64()}, metadata=metadata)
    hidden = [{"text": f"row {number}", "label": -1} for number in range(60)]
    pq.write_table(pa.Table.from_pylist(hidden, schema), tmp_path / "test.parquet")
    cases.append((tmp_path / "test.parquet", "label: 60 of 60 rows have -1, which stands for a hidden label, as in"))
    for file, message in cases:
        with pytest.raises(InputError, match=message):
            first_spec(str(file), None, tmp_path)


def test_the_command_writes_no_spec_over_another(tmp_path: Path, command: Command) -> None:
    path, out, none = write_csv(tmp_path / "rows.csv", reviews(60)), tmp_path / "rows.yaml", tmp_path / "none"
    wrong = command("init", str(path), "--out", str(out), "--model", str(none))
    assert (wrong.code, wrong.out, out.exists()) == (2, "", False)
    assert wrong.err == f"error: {none}: no such directory; correct the path of the model\n"
    done = command("init", str(path), "--out", str(out))
    assert done.code == 0, done.err
    assert "label: mood, with 3 values (good 50%, bad 25%, mixed 25%)" in done.out
    assert f"next: name a model in it, then biaseval plan {out}" in done.out
    assert yaml.safe_load(out.read_text())["model"] == {"path": "MODEL", "chat": "auto"}
    again = command("init", str(path), "--out", str(out))
    assert (again.code, again.out) == (2, "")
    assert again.err.startswith(f"error: {out}: is there already; go on with it (biaseval plan {out}), or name")
    (tmp_path / "rows.json").write_text(
        json.dumps([{"text": f"row {n}", "label": "\ud83dY"[n % 2]} for n in range(60)])
    )
    half = command("init", str(tmp_path / "rows.json"), "--out", str(tmp_path / "half.yaml"))
    assert (half.code, half.out, (tmp_path / "half.yaml").exists()) == (2, "", False)
    assert "holds half a surrogate pair" in half.err
    (tmp_path / "json").mkdir()
    found = json.loads(command("init", str(path), "--out", str(tmp_path / "json" / "x.yaml"), "--json").out)
    assert found.keys() == {"spec", "found", "cautions"}
    assert (found["spec"], (tmp_path / "json" / "x.yaml").exists()) == (str(tmp_path / "json" / "x.yaml"), True)


@pytest.mark.parametrize("labels", [("café", "cafe\u0301", "thé"), ("yes", "Yes", "no"), ("good", "\uff47ood", "bad")])
def test_labels_that_look_alike_are_said_before_and_in_a_plan(tmp_path: Path, labels: tuple[str, ...]) -> None:
    rows = [{"text": f"row {number}", "label": labels[number % 3]} for number in range(120)]
    spec, cautions = _spec(tmp_path, write_csv(tmp_path / "rows.csv", rows))
    [caution] = [each for each in cautions if "look alike and count as different" in each]
    # A plan has them in the order of their characters.
    shown = re.findall("'[^']*'", caution)
    assert any("rows: the labels" in note and all(one in note for one in shown) for note in describe(spec).notes)


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
    # What other readers of YAML make of it is the same.
    assert yaml.safe_load(first.text) == yaml_value(first.text)
