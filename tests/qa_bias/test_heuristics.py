from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.pipelines.qa_bias import QA_BIAS
from biaseval.qa_bias.attributes import attributes
from biaseval.qa_bias.heuristics import (
    HEURISTICS,
    Heuristic,
    annotated,
    ans_len,
    ans_pos,
    cos_sim,
    heuristic_of,
    resources_of,
    sim_ents,
    sim_word,
    subj_pos,
    word_dist,
)
from biaseval.qa_bias.significance import threshold_grid
from biaseval.qa_bias.similarity import Tfidf
from biaseval.qa_bias.text import STOP_WORDS, load_text
from biaseval.qa_bias.user_heuristics import load_user_heuristic, meaning_of, source_digest
from biaseval.spec import QaBiasSpec, QaDatasetsSpec, QaModelSpec
from biaseval.tables import QA_ATTRIBUTES, QA_EXAMPLES
from tests.qa_bias.tablerows import MILL, example, examples_of, read_rows

GOLDEN_COLUMNS = {
    "word_dist": "distances",
    "sim_word": "similar_words",
    "ans_pos": "kth_sentence",
    "cos_sim": "cosine_similarity",
    "ans_len": "answer_length",
    "sim_ents": "max_sim_ents",
    "subj_pos": "answer_subject_positions",
}


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


def subj_pos_of(context: str, subjects: list[str], start: int, variant: Any = "paper") -> int:
    return subj_pos([context], ["?"], [start], GivenAnnotator({}, {"?": subjects}), variant)[0]


def values_of(table: pa.Table, heuristic: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    rows = table.filter(pa.compute.equal(table["heuristic"], heuristic))
    return np.asarray(rows["value"].to_numpy())


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
        examples_of(rows),
        list(HEURISTICS),
        variant="reference",
        text=load_text(str(shared / "data" / "nltk_data")),
        annotator=GivenAnnotator(labels, subjects),
        tfidf=Tfidf.from_table(fitted.to_table()),
    )


@pytest.mark.parametrize("heuristic", HEURISTICS)
def test_golden_values(heuristic: str, golden: pa.Table, shared: Path) -> None:
    expected = pq.read_table(shared / "golden" / "qa" / "expected_attributes.parquet")[GOLDEN_COLUMNS[heuristic]]
    assert len(expected) == 1232
    tolerance = 1e-9 if heuristic in {"cos_sim", "ans_len"} else 0
    np.testing.assert_allclose(values_of(golden, heuristic), expected.to_numpy(), rtol=0, atol=tolerance)


def test_golden_closest_words(golden: pa.Table, shared: Path) -> None:
    expected = pq.read_table(shared / "golden" / "qa" / "expected_attributes.parquet")["closest_words"].to_pylist()
    rows = golden.filter(pa.compute.equal(golden["heuristic"], "word_dist"))
    assert [word or "None" for word in rows["closest_word"].to_pylist()] == expected


def test_undefined_golden_rows_are_not_measured(golden: pa.Table) -> None:
    assert golden.schema.equals(QA_ATTRIBUTES.schema)
    for heuristic in HEURISTICS:
        rows = golden.filter(pa.compute.equal(golden["heuristic"], heuristic))
        is_undefined = rows["value"].to_numpy() == -1
        assert is_undefined.any() == (heuristic in {"word_dist", "subj_pos"})
        np.testing.assert_array_equal(rows["is_measured"].to_numpy(zero_copy_only=False), ~is_undefined)


def test_published_segments_of_squad(shared: Path) -> None:
    rows = read_rows(shared / "data" / "qa" / "squad_dev.jsonl.gz")
    table = attributes(
        examples_of(rows),
        ["word_dist", "sim_word", "ans_len", "ans_pos"],
        variant="paper",
        text=load_text(str(shared / "data" / "nltk_data")),
    )
    # P3's released trials (protocol section 11.1); sim_word 3 and ans_len 4 are the final thresholds.
    published = {
        ("word_dist", 7): (8768, 1651),
        ("sim_word", 4): (3281, 7289),
        ("ans_len", 3): (7446, 3124),
        ("ans_pos", 0): (3571, 6999),
        ("sim_word", 3): (1894, 8676),
        ("ans_len", 4): (8529, 2041),
    }
    for (heuristic, threshold), sizes in published.items():
        values = values_of(table, heuristic)
        measured = values[values >= 0]
        assert ((measured <= threshold).sum(), (measured > threshold).sum()) == sizes, (heuristic, threshold)


def test_cosines_with_a_part_of_the_train_set(shared: Path) -> None:
    folder = shared / "data" / "qa"
    train = [row["context"] for row in read_rows(folder / "squad_train.jsonl.gz")]
    rows = read_rows(folder / "squad_dev.jsonl.gz")
    values = np.asarray(cos_sim([row["context"] for row in rows], [row["question"] for row in rows], Tfidf.fit(train)))
    # Protocol section 11.1: with this sample of 8,099; published with all 87,599 are 954 and 9,616.
    assert ((values <= 0.1).sum(), (values > 0.1).sum()) == (1280, 9290)


WORKED = [
    ("When did Lee sell the mill?", ("until 1921", "1921"), (1, "mill"), 3, 1, 1.5),
    ("Who sold the mill?", ("Ann Lee",), (4, "mill"), 3, 1, 2),
    ("What opened in the year 1890?", ("The mill",), (2, "opened"), 4, 0, 2),
    ("the mill, when?", ("1890. Ann",), (3, "mill"), 2, 2, 2),
]


@pytest.mark.parametrize(("question", "answers", "distance", "n_shared", "position", "length"), WORKED)
def test_the_worked_examples(
    question: str, answers: tuple[str, ...], distance: tuple[int, str], n_shared: int, position: int, length: float
) -> None:
    english = load_text(None)
    distances, closest = word_dist([MILL], [question], [answers[0]], english.stop_words)
    assert (distances[0], closest[0]) == distance
    assert sim_word([MILL], [question], english) == [n_shared]
    assert ans_pos([MILL], [answers[0]], english) == [position]
    assert ans_len([answers]) == [length]


def test_the_worked_subjects() -> None:
    assert subj_pos_of(MILL, ["Lee"], 46) == 1
    assert subj_pos_of(MILL, ["Who"], 46) == -1
    assert subj_pos_of(MILL, [], 46, "reference") == 0
    assert subj_pos_of(MILL, [], 46, "paper") == -1


@pytest.mark.parametrize(
    ("context", "question", "answer", "distance", "word"),
    [
        ("The mill burned", "Where is The end?", "mill", 1, "The"),  # "The" is no stop word: the list is lower-case
        ("the mill burned", "Where is the end?", "mill", -1, None),
        ("the mill burned", "Which Mill?", "the", -1, None),  # case matters
        ("the mill burned", "which mill?", "mill burned", 0, "mill"),  # inside the answer
        ("ab cd ef gh ij", "ij?", "ab cd ef gh", 4, "ij"),  # from the answer's first word
        ("x mill y z mill w", "w?", "mill", 4, "w"),  # first occurrence, wherever the answer is said to start
        ("aa mill bb", "aa bb?", "mill", 1, "bb"),  # equals: the one latest in the question
        ("aa mill bb", "bb aa?", "mill", 1, "aa"),
        ("the 1950s mill", "mill?", "1950", -1, None),  # cut from inside a word
        ("a mill!", "mill?", "!", -1, None),  # no word
        ("a mill", "river?", "mill", -1, None),
        ("ab cd ef ab cd gh", "gh?", "ab cd gh", 2, "gh"),  # the first word alone is no occurrence
    ],
)
def test_distances_by_hand(context: str, question: str, answer: str, distance: int, word: str | None) -> None:
    assert word_dist([context], [question], [answer], STOP_WORDS) == ([distance], [word])


def test_shared_words_are_whole_alphanumeric_tokens_with_their_case() -> None:
    english = load_text(None)
    context = "The U.S. well-known 3.5 café isn't a_b 24–10 mill mill of Lee."
    assert sim_word([context], ["the U.S. well-known 3.5 isn't a_b 24–10?"], english) == [1]  # "is"
    assert sim_word([context], ["Lee's café of mill, mill"], english) == [4]


def test_an_answer_is_found_inside_a_word_of_an_earlier_sentence() -> None:
    english = load_text(None)
    context = "An Article was read. Art is long."
    assert ans_pos([context] * 3, ["Art", "Art is", "read. Art"], english) == [0, 1, 2]


def test_answer_length_is_the_mean_over_all_answers_with_duplicates() -> None:
    assert ans_len([["one two", "one two", "one"], ["..."], ["well-known U.S."]]) == [5 / 3, 0, 4]


def test_entities_of_the_last_answer_or_of_all() -> None:
    labels = {
        "context": ["PERSON", "DATE", "PERSON", "GPE", "PERSON"],
        "Lee": ["PERSON"],
        "1921": ["DATE"],
        "Lee in Brno": ["GPE", "PERSON"],
        "river": [],
        "$3": ["MONEY"],
    }
    answers = [["Lee", "1921"], ["Lee in Brno"], ["Lee", "river"], ["$3"], ["1921", "1921"]]
    annotator = GivenAnnotator(labels, {})
    contexts = ["context"] * len(answers)
    assert sim_ents(contexts, answers, annotator, "reference") == [1, 3, 0, 0, 1]
    assert sim_ents(contexts, answers, annotator, "paper") == [3, 3, 3, 0, 1]


@pytest.mark.parametrize("variant", ["paper", "reference"])
@pytest.mark.parametrize(
    ("context", "subjects", "start", "position"),
    [
        ("Lee Lee Lee", ["Lee"], 4, 2),  # an occurrence at the answer's start counts
        ("Lee Lee Lee", ["Lee"], 3, 1),
        ("the end, Lee", ["Lee"], 4, 0),
        ("aaaa", ["aa"], 3, 2),  # without overlap
        ("a.c abc", ["a.c"], 6, 1),  # literally
        ("Ann Lee Ann", ["Lee", "Ann"], 10, 2),  # the largest number
        ("Ann Lee Ann", ["Ann", "Lee"], 10, 2),
        ("Ann Lee Ann", ["Ann", "Who"], 10, -1),  # the last subject is nowhere
        ("Ann Lee Ann", ["Who", "Lee"], 10, 1),
        ("Leeds", ["Lee"], 4, 1),  # inside a word
    ],
)
def test_subject_positions_by_hand(context: str, subjects: list[str], start: int, position: int, variant: str) -> None:
    assert subj_pos_of(context, subjects, start, variant) == position


def test_attributes_come_in_the_order_asked_for() -> None:
    rows = [example("Who sold the mill?", "Ann Lee"), example("When did Lee sell it?", "until 1921", "1921")]
    table = attributes(
        examples_of(rows),
        ["cos_sim", "ans_len", "sim_ents", "subj_pos"],
        variant="paper",
        annotator=GivenAnnotator(
            {
                MILL: ["DATE", "PERSON", "DATE", "PERSON"],
                "Ann Lee": ["PERSON"],
                "until 1921": ["DATE"],
                "1921": ["DATE"],
            },
            {"Who sold the mill?": ["Who"], "When did Lee sell it?": ["Lee"]},
        ),
        tfidf=Tfidf.fit([MILL]),
    )
    assert table.schema.equals(QA_ATTRIBUTES.schema)
    assert table["heuristic"].to_pylist() == [
        name for name in ("cos_sim", "ans_len", "sim_ents", "subj_pos") for _ in rows
    ]
    assert table["example_id"].to_pylist() == [row["id"] for row in rows] * 4
    assert values_of(table, "ans_len").tolist() == [2, 1.5]
    assert values_of(table, "sim_ents").tolist() == [2, 2]
    assert values_of(table, "subj_pos").tolist() == [-1, 1]
    assert table["is_measured"].to_pylist() == [True] * 6 + [False, True]
    assert cos_sim([MILL], ["Who sold the mill?"], Tfidf.fit([MILL])) == [values_of(table, "cos_sim")[0]]


def test_parts_give_the_values_of_the_whole(shared: Path) -> None:
    rows = read_rows(shared / "golden" / "qa" / "examples.jsonl")[:60]
    tfidf = Tfidf.fit([row["context"] for row in rows])
    given: dict[str, Any] = {"variant": "paper", "text": load_text(None), "tfidf": tfidf}
    heuristics = [name for name in HEURISTICS if name not in annotated(HEURISTICS)]
    whole = attributes(examples_of(rows), heuristics, **given)
    parts = pa.concat_tables(
        [attributes(examples_of(rows[start : start + 7]), heuristics, **given) for start in range(0, 60, 7)]
    )
    order = [("heuristic", "ascending"), ("example_id", "ascending")]
    assert parts.sort_by(order).equals(whole.sort_by(order))


def test_no_questions_give_no_attributes() -> None:
    table = attributes(QA_EXAMPLES.empty(), ["ans_len", "word_dist"], variant="paper", text=load_text(None))
    assert table.num_rows == 0
    assert table.schema.equals(QA_ATTRIBUTES.schema)
    assert attributes(examples_of([example("Who?", "Lee")]), [], variant="paper").num_rows == 0


def test_every_resource_is_asked_for_where_it_is_needed() -> None:
    examples = examples_of([example("Who sold the mill?", "Ann Lee")])
    for heuristic in HEURISTICS:
        if resources_of([heuristic]):
            with pytest.raises(ValueError, match=f"{heuristic} needs a resource that was not given"):
                attributes(examples, [heuristic], variant="paper")
        else:
            attributes(examples, [heuristic], variant="paper")


def test_a_further_heuristic_is_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = Heuristic(
        id="made_up",
        meaning="characters of the question",
        values=lambda asked, text: ([len(own) for own in asked.texts], text.sentences("One. Two.")),
        needs="text",
        threshold=9,
        step=0.5,
    )
    monkeypatch.setitem(HEURISTICS, made_up.id, made_up)
    assert resources_of(["ans_len", made_up.id]) == {"text"}
    examples = examples_of([example("Who?", "Ann"), example("Who else?", "Lee")])
    table = attributes(examples, ["ans_len", made_up.id], variant="paper", text=load_text(None))
    assert values_of(table, made_up.id).tolist() == [4, 9]
    assert table["closest_word"].to_pylist() == [None, None, "One.", "Two."]
    assert threshold_grid(made_up.id, 4, 6, variant="paper") == [4, 4.5, 5, 5.5]
    models = [QaModelSpec(name="m", path="m")]
    datasets = QaDatasetsSpec(in_distribution={"squad": "squad.json"})
    spec = QaBiasSpec(kind="qa_bias", name="x", models=models, datasets=datasets, heuristics=[made_up.id])
    assert spec.heuristics == [made_up.id]


def test_a_users_heuristic_is_a_record_before_its_module_is_there() -> None:
    record = heuristic_of("nowhere:function")
    assert (record.id, record.needs, record.step) == ("nowhere:function", None, None)


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


def test_a_users_heuristic_is_stored_under_its_name(module: Callable[[str], pa.Table]) -> None:
    table = module("mine_for_test:length")
    assert table["value"].to_pylist() == [1, 3, 4]
    assert set(table["heuristic"].to_pylist()) == {"mine_for_test:length"}
    assert table["is_measured"].to_pylist() == [True] * 3
    assert module("mine_for_test:is_short")["value"].to_pylist() == [1, 0, 0]


def test_a_users_function_means_what_its_docstring_begins_with(module: Callable[[str], pa.Table]) -> None:
    assert meaning_of("mine_for_test:length") == "Words of the question."
    assert meaning_of("mine_for_test:start") is None


def test_a_run_that_has_no_meaning_of_a_heuristic_yet_goes_on(module: Callable[[str], pa.Table]) -> None:
    name = "mine_for_test:length"
    recorded = {"name": "a function of the user's", "is_approximate": False, "version": source_digest(name)}
    spec = QaBiasSpec(
        kind="qa_bias",
        name="x",
        models=[QaModelSpec(name="m", path="m")],
        datasets=QaDatasetsSpec(in_distribution={"squad": "squad.json"}),
        heuristics=[name],
    )
    assert QA_BIAS.changes(spec, {"text": {name: recorded}}) == []
    assert len(QA_BIAS.changes(spec, {"text": {name: {**recorded, "version": "another"}}})) == 1


def test_none_of_a_users_heuristic_is_not_measured_and_minus_one_is(module: Callable[[str], pa.Table]) -> None:
    table = module("mine_for_test:start")
    assert table["value"].to_pylist() == [-1 + 0.5 * MILL.index("Ann"), -1, -1]
    assert table["is_measured"].to_pylist() == [True, False, True]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mine_for_test:text", r"question 'q-Who\?': returned 'many'; return a finite number"),
        ("mine_for_test:endless", r"question 'q-Who\?': returned inf"),
        ("mine_for_test:fails", r"question 'q-Who\?': failed with KeyError: 'nothing'"),
        ("mine_for_test:nothing", r"module 'mine_for_test' has no 'nothing'; write"),
        ("mine_for_test:constant", r"module 'mine_for_test' has no function 'constant'"),
        ("no_module_of_that_name:f", r"module .* cannot be imported \(ModuleNotFoundError.* PYTHONPATH"),
        ("broken_for_test:f", r"module .* cannot be imported \(ModuleNotFoundError: .*'nothing_of_that_name'\)"),
    ],
)
def test_a_users_mistake_is_named(name: str, message: str, module: Callable[[str], pa.Table]) -> None:
    with pytest.raises(InputError, match=f"heuristics: {name}: {message}"):
        module(name)


def test_a_users_heuristic_may_be_checked_before_a_run(module: Callable[[str], pa.Table]) -> None:
    assert callable(load_user_heuristic("mine_for_test:length"))
    with pytest.raises(InputError, match="has no 'nothing'"):
        load_user_heuristic("mine_for_test:nothing")
