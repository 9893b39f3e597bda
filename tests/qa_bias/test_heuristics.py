from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.heuristics import built_in
from biaseval.qa_bias.heuristics.attributes import attributes
from biaseval.qa_bias.heuristics.similarity import Tfidf
from biaseval.qa_bias.heuristics.text import load_text
from biaseval.qa_bias.heuristics.user_heuristics import meaning_of
from biaseval.spec import QaBiasSpec, QaDatasetsSpec, QaModelSpec
from biaseval.tables import QA_ATTRIBUTES
from tests.qa_bias.tablerows import MILL, example, examples_of, read_rows

GOLDEN_COLUMNS = {
    "word_dist": "distances", "sim_word": "similar_words", "ans_pos": "kth_sentence", "cos_sim": "cosine_similarity",
    "ans_len": "answer_length", "sim_ents": "max_sim_ents", "subj_pos": "answer_subject_positions",
}  # fmt: skip


class GivenAnnotator:
    """Answers with the annotations that it was given."""

    name = "given"
    is_approximate = False

    def __init__(self, labels: dict[str, list[str]], subjects: dict[str, list[str]]) -> None:
        self._labels = labels
        self._subjects = subjects

    def entity_labels(self, texts: Sequence[str]) -> list[list[str]]:
        return [self._labels[text] for text in texts]

    def subjects(self, questions: Sequence[str]) -> list[list[str]]:
        return [self._subjects[question] for question in questions]


def values_of(table: pa.Table, heuristic: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    rows = table.filter(pa.compute.equal(table["heuristic"], heuristic))
    return np.asarray(rows["value"].to_numpy())


def spec_of(heuristic: str) -> QaBiasSpec:
    datasets = QaDatasetsSpec(in_distribution={"squad": "squad.json"})
    models = [QaModelSpec(name="m", path="m")]
    return QaBiasSpec(kind="qa_bias", name="x", models=models, datasets=datasets, heuristics=[heuristic])


@pytest.fixture(scope="module")
def golden(shared: Path) -> pa.Table:
    """Return the attributes of the golden questions in the meaning of the published code."""
    folder = shared / "golden" / "qa"
    rows, annotations = read_rows(folder / "examples.jsonl"), pq.read_table(folder / "annotations.parquet").to_pylist()
    labels: dict[str, list[str]] = {}
    subjects: dict[str, list[str]] = {}
    for row, annotation in zip(rows, annotations, strict=True):
        assert row["id"] == annotation["id"]
        labels[row["context"]] = annotation["context_entity_labels"]
        labels |= zip(row["answers"]["text"], annotation["answer_entity_labels"], strict=True)
        subjects[row["question"]] = annotation["question_subjects"]
    fitted = Tfidf.fit([row["context"] for row in read_rows(folder / "tfidf_fit_contexts.jsonl")])
    return attributes(
        examples_of(rows), list(built_in.HEURISTICS), variant="reference",
        text=load_text(str(shared / "data" / "nltk_data")), annotator=GivenAnnotator(labels, subjects),
        tfidf=Tfidf.from_table(fitted.to_table()),
    )  # fmt: skip


def test_values_and_closest_words_are_those_of_the_published_code(golden: pa.Table, shared: Path) -> None:
    """In the order asked for; -1 where there is none, which is not measured."""
    expected = pq.read_table(shared / "golden" / "qa" / "expected_attributes.parquet")
    assert golden.schema.equals(QA_ATTRIBUTES.schema)
    assert golden["heuristic"].to_pylist() == [name for name in built_in.HEURISTICS for _ in range(1232)]
    ids = [row["id"] for row in read_rows(shared / "golden" / "qa" / "examples.jsonl")]
    assert golden["example_id"].to_pylist() == ids * len(built_in.HEURISTICS)
    for name, column in GOLDEN_COLUMNS.items():
        rows = golden.filter(pa.compute.equal(golden["heuristic"], name))
        tolerance = 1e-9 if name in {"cos_sim", "ans_len"} else 0
        values = rows["value"].to_numpy()
        np.testing.assert_allclose(values, expected[column].to_numpy(), rtol=0, atol=tolerance, err_msg=name)
        assert (values == -1).any() == (name in {"word_dist", "subj_pos"})
        np.testing.assert_array_equal(rows["is_measured"].to_numpy(zero_copy_only=False), values != -1)
        if name == "word_dist":
            assert [own or "None" for own in rows["closest_word"].to_pylist()] == expected["closest_words"].to_pylist()


def test_thresholds_and_steps_are_those_of_the_paper() -> None:
    thresholds = {"word_dist": 7, "sim_word": 3, "ans_pos": 0, "cos_sim": 0.1, "ans_len": 4, "sim_ents": 0}
    assert {name: own.threshold for name, own in built_in.HEURISTICS.items()} == thresholds | {"subj_pos": 1}
    assert {name: own.step for name, own in built_in.HEURISTICS.items()} == dict.fromkeys(built_in.HEURISTICS, 1) | {
        "cos_sim": 0.1
    }


def test_published_segments_of_squad(shared: Path) -> None:
    """P3's released trials (protocol section 11.1); sim_word 3 and ans_len 4 are the final thresholds."""
    published = {
        "word_dist": {7: (8768, 1651)}, "sim_word": {4: (3281, 7289), 3: (1894, 8676)},
        "ans_len": {3: (7446, 3124), 4: (8529, 2041)}, "ans_pos": {0: (3571, 6999)},
    }  # fmt: skip
    examples = examples_of(read_rows(shared / "data" / "qa" / "squad_dev.jsonl.gz"))
    table = attributes(examples, list(published), variant="paper", text=load_text(str(shared / "data" / "nltk_data")))
    for heuristic, sizes in published.items():
        values = values_of(table, heuristic)
        measured = values[values >= 0]
        assert {at: ((measured <= at).sum(), (measured > at).sum()) for at in sizes} == sizes, heuristic


WORKED = [
    ("When did Lee sell the mill?", ("until 1921", "1921"), (1, "mill"), 3, 1, 1.5),
    ("Who sold the mill?", ("Ann Lee",), (4, "mill"), 3, 1, 2),
    ("What opened in the year 1890?", ("The mill",), (2, "opened"), 4, 0, 2),
    ("the mill, when?", ("1890. Ann",), (3, "mill"), 2, 2, 2),
]


def asked(variant: built_in.Variant = "paper", **columns: list[Any]) -> built_in.Questions:
    return built_in.Questions(columns, variant)


def test_the_worked_examples() -> None:
    english = load_text(None)
    for question, answers, distance, n_shared, position, length in WORKED:
        worked = asked(context=[MILL], question=[question], answers=[answers])
        distances, closest = built_in.word_dist(worked, english)
        assert closest is not None
        assert (distances[0], closest[0]) == distance
        assert built_in.sim_word(worked, english)[0] == [n_shared]
        assert built_in.ans_pos(worked, english)[0] == [position]
        assert built_in.ans_len(worked, None)[0] == [length]
    other = asked(context=["The café isn't of Lee 24–10."], question=["café, Lee's isn't 24–10?"])
    assert built_in.sim_word(other, english)[0] == [3]  # café, Lee, is


def test_entities_of_the_last_answer_or_of_all() -> None:
    labels = {
        "context": ["PERSON", "DATE", "PERSON", "GPE", "PERSON"], "Lee": ["PERSON"], "1921": ["DATE"],
        "Lee in Brno": ["GPE", "PERSON"], "river": [], "$3": ["MONEY"],
    }  # fmt: skip
    answers = [["Lee", "1921"], ["Lee in Brno"], ["Lee", "river"], ["$3"], ["1921", "1921"]]
    annotator = GivenAnnotator(labels, {})
    contexts = ["context"] * len(answers)
    assert built_in.sim_ents(asked("reference", context=contexts, answers=answers), annotator)[0] == [1, 3, 0, 0, 1]
    assert built_in.sim_ents(asked("paper", context=contexts, answers=answers), annotator)[0] == [3, 3, 3, 0, 1]


@pytest.mark.parametrize(("context", "subjects", "start", "position"), [
    (MILL, ["Lee"], 46, 1),
    (MILL, ["Who"], 46, -1),
    (MILL, [], 46, -1),  # the code says 0
    ("Lee Lee Lee", ["Lee"], 4, 2),  # an occurrence at the answer's start counts
    ("the end, Lee", ["Lee"], 4, 0),
    ("aaaa", ["aa"], 3, 2),  # without overlap
    ("a.c abc", ["a.c"], 6, 1),  # literally
    ("Ann Lee Ann", ["Ann", "Lee"], 10, 2),  # the largest number
    ("Ann Lee Ann", ["Ann", "Who"], 10, -1),  # the last subject is nowhere
    ("Ann Lee Ann", ["Who", "Lee"], 10, 1),
])  # fmt: skip
def test_subject_positions_by_hand(context: str, subjects: list[str], start: int, position: int) -> None:
    given = asked(context=[context], question=["?"], answer_starts=[[start]])
    assert built_in.subj_pos(given, GivenAnnotator({}, {"?": subjects}))[0] == [position]


def test_every_resource_is_asked_for_where_it_is_needed() -> None:
    examples = examples_of([example("Who sold the mill?", "Ann Lee")])
    for heuristic in built_in.HEURISTICS:
        if built_in.resources_of([heuristic]):
            with pytest.raises(ValueError, match=f"{heuristic} needs a resource that was not given"):
                attributes(examples, [heuristic], variant="paper")
        else:
            attributes(examples, [heuristic], variant="paper")


def test_a_question_without_answers_is_refused() -> None:
    with pytest.raises(ValueError, match="row 1 has no answer"):
        attributes(examples_of([example("Who?", "Lee"), example("What?")]), ["ans_len"], variant="paper")


MODULE = """
import numpy as np


def length(question):
    \"\"\"
    Words of the question.

    More of it.
    \"\"\"
    assert sorted(question) == ["answer_starts", "answers", "context", "example_id", "question", "title"]
    return np.int64(len(question["question"].split()))


def start(question):
    return None if question["answers"] == ["mill"] else -1 + 0.5 * question["answer_starts"][0]


def is_short(question):
    return len(question["question"]) < 5


def text(question):
    return "many"


def endless(question):
    return float("inf")


def fails(question):
    return question["nothing"]


constant = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pa.Table]:
    """Put a module of heuristics on the path, and return what gives the attributes of one of its functions."""
    (tmp_path / "mine_for_test.py").write_text(MODULE)
    (tmp_path / "broken_for_test.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [example("Who?", "Ann"), example("What was sold?", "mill"), example("When did it open?", "The mill")]
    return lambda name: attributes(examples_of(rows), [name], variant="paper")


def test_a_users_values_and_meaning_are_those_of_the_function(module: Callable[[str], pa.Table]) -> None:
    table = module("mine_for_test:length")
    assert table["value"].to_pylist() == [1, 3, 4]
    assert set(table["heuristic"].to_pylist()) == {"mine_for_test:length"}
    assert module("mine_for_test:is_short")["value"].to_pylist() == [1, 0, 0]
    table = module("mine_for_test:start")  # None is not measured, and -1 is
    assert table["value"].to_pylist() == [-1 + 0.5 * MILL.index("Ann"), -1, -1]
    assert table["is_measured"].to_pylist() == [True, False, True]
    assert meaning_of("mine_for_test:length") == "Words of the question."
    assert meaning_of("mine_for_test:start") is None
    record = built_in.heuristic_of("nowhere:function")  # before its module is there
    assert (record.id, record.needs, record.step) == ("nowhere:function", None, None)


@pytest.mark.parametrize(("name", "message"), [
    ("mine_for_test:text", r"question 'q-Who\?': returned 'many'; return a finite number"),
    ("mine_for_test:endless", r"question 'q-Who\?': returned inf"),
    ("mine_for_test:fails", r"question 'q-Who\?': failed with KeyError: 'nothing'"),
    ("sys:exit", r"question 'q-Who\?': failed with SystemExit"),
    ("mine_for_test:nothing", r"module 'mine_for_test' has no 'nothing'; write"),
    ("mine_for_test:constant", r"module 'mine_for_test' has no function 'constant'"),
    ("no_module_of_that_name:f", r"module .* cannot be imported \(ModuleNotFoundError.* PYTHONPATH"),
    ("broken_for_test:f", r"module .* cannot be imported \(ModuleNotFoundError: .*'nothing_of_that_name'\)"),
])  # fmt: skip
def test_a_users_mistake_is_named(name: str, message: str, module: Callable[[str], pa.Table]) -> None:
    with pytest.raises(InputError, match=f"heuristics: {name}: {message}"):
        module(name)
