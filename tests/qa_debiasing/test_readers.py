"""Curves of training, bias models and costs by hand, and checks of a run that trained readers."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from biaseval.analysis import sql_files
from tests.handmade import sql_of, within_transaction
from tests.measuring import measure
from tests.qa_debiasing.study import MARTS, hand_draws, two_readers
from tests.qaplans import Rows, two_segments
from tests.relation import Within
from tests.relationnames import names_of


def evaluations(*asked: tuple[Any, ...]) -> dict[str, Rows]:
    names = ("model", "step", "dataset", "loss", "exact_match", "f1", "seconds")
    return {"evaluations": [dict(zip(names, row, strict=False)) for row in asked], "training": []}


BROKEN: dict[str, list[tuple[str, str]]] = {
    "qa_training_is_whole": [
        ("delete from training where model = 'base' and step = 1", "base: 2 steps, 2 different, 2 of finite loss"),
        ("training set step = 3 where model = 'base' and step = 2", "base: 3 steps, 3 different, 3 of finite loss"),
        ("training set step = 1 where model = 'base' and step = 2", "base: 3 steps, 2 different, 3 of finite loss"),
        ("training set loss = 'nan' where model = 'hypothesis' and step = 2", "hypothesis: 3 steps, 3 different, 2 of"),
        ("training set loss = null where model = 'careful' and step = 0", "careful: 3 steps, 3 different, 2 of finite"),
        ("delete from training where model = 'careful'", "careful: 0 steps, 0 different, 0 of finite loss; wanted"),
        ("trained_models set steps = null where model = 'base'", "finite loss; wanted 0 to null"),
        ("training set model = 'other' where model = 'base' and step = 2", "other: 1 steps of a reader that is not"),
        ("delete from evaluations where model = 'careful'", "careful: no evaluation after step 2, whose weights"),
        ("trained_models set best_step = 1 where model = 'base'", "base: no evaluation after step 1, whose weights"),
        ("trained_models set best_step = 3 where model = 'base'", "base: path readers/base, best step 3 of 3"),
        ("trained_models set best_step = null where model = 'base'", "base: path readers/base, best step null of 3"),
        ("trained_models set path = null where model = 'base'", "base: path null, best step 2 of 3"),
        (
            "trained_models set standard = 'hypothesis' where model = 'careful'",
            "careful: compared with hypothesis, which is no other standard reader of its base, data and seed",
        ),
        ("trained_models set standard = 'gone' where model = 'careful'", "careful: compared with gone, which"),
        ("trained_models set standard = 'base' where model = 'base'", "base: compared with base, which"),
        ("trained_models set seed = 43 where model = 'careful'", "careful: compared with base, which"),
        ("delete from qa_models where model = 'careful'", "careful: was trained, and is not measured"),
        ("qa_models set is_trained = false where model = 'careful'", "careful: was trained, and is not measured"),
        ("qa_models set model = 'broken' where model = 'careful'", "broken: is measured as trained in this run"),
        ("qa_models set model = 'hypothesis' where model = 'careful'", "hypothesis: is measured as trained"),
    ],
    "qa_evaluations_are_whole": [
        ("evaluations set model = 'other' where model = 'base'", "other, step 2, squad: there is no such reader"),
        ("evaluations set step = 3 where model = 'base'", "base, step 3, squad: there is no such step"),
        ("evaluations set step = null where model = 'base'", "base, step null, squad: there is no such step"),
        ("evaluations set loss = 'nan' where model = 'base'", "base, step 2, squad: loss nan, exact match 0.6, F1 0.7"),
        ("evaluations set loss = 'inf' where model = 'base'", "loss inf"),
        ("evaluations set loss = null where model = 'base'", "loss null"),
        ("evaluations set loss = -1 where model = 'base'", "loss -1.0"),
        ("evaluations set f1 = null where model = 'base'", "F1 null"),
        (
            "insert into evaluations select * replace (0 as step) from evaluations where model = 'base' union all "
            "by name select * replace (0 as step, 'more' as dataset) from evaluations where model = 'base'",
            "base: asked 1 sets after step 2, and 2 after step 0",
        ),
        ("delete from evaluations where dataset = 'squad (other)'", "hypothesis, step 2: asked biased, wanted biased"),
        ("evaluations set dataset = 'more (biased)' where dataset = 'squad (other)'", "asked biased, wanted biased"),
        ("evaluations set dataset = 'all' where dataset = 'squad (biased)'", "asked no segment and other, wanted"),
    ],
    "qa_changes_have_their_draws": [
        ("qa_change_draws set model = 'base' where draw = 2", "base, squad, ans_len: draws of a comparison"),
        ("qa_change_draws set heuristic = 'cos_sim' where draw = 2", "careful, squad, cos_sim: draws of a comparison"),
        ("qa_debiasing set significance_change_low = null where model = 'careful'", "careful, squad, ans_len: "),
        ("qa_debiasing set significance_change_low = 101 where model = 'careful'", "careful, squad, ans_len: "),
        ("qa_debiasing set n_draws = 0 where model = 'careful'", "careful, squad, ans_len: "),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def whole() -> Iterator[Within]:
    study = two_readers()
    study.reader("hypothesis", "bias_model", "ans_len")
    study.reader("broken", "learned_mixin", "ans_len", problem="its loss is not finite", steps=2)
    segments = {"n_biased_validation": 9, "n_other_validation": 9}
    study.tables["qa_segments"] = [{"base": "bert", "data": "squad", "bias": "ans_len", **segments}]
    hand_draws(study)
    with closing(sql_files.connect([])) as connection:
        relations = study.create(connection)
        assert [relations.problems(check) for check in BROKEN] == [[]] * 3
        yield relations


@pytest.mark.parametrize(("check", "statement", "problem"), [(name, *one) for name in BROKEN for one in BROKEN[name]])
def test_a_check_finds_what_it_is_for(check: str, statement: str, problem: str, whole: Within) -> None:
    is_update = statement.split()[0] not in ("delete", "insert")
    found = whole.problems(check, f"update {statement}" if is_update else statement)
    assert any(problem in one for one in found), found


ADDED = "insert into evaluations select * replace ({}) from evaluations where "
NO_PROBLEM = {
    "what is wrong with a reader that was given up": [
        "update training set loss = 'nan' where model = 'broken'",
        "delete from training where model = 'broken' and step = 0",
        ADDED.format("'broken' as model, 0 as step, 'nan' as loss, null as f1") + "model = 'base'",
    ],
    "a loss that is not finite on the way, whose weights are not kept":
        [ADDED.format("0 as step, 'nan' as loss") + "model = 'base'"],
    "a set for validation that lacks a segment":
        [ADDED.format("'more (other)' as dataset") + "dataset = 'squad (other)'"],
}  # fmt: skip


@pytest.mark.parametrize("what", NO_PROBLEM)
def test_no_problem_is(what: str, whole: Within) -> None:
    assert [whole.problems(check, *NO_PROBLEM[what]) for check in BROKEN] == [[]] * 3


def test_a_set_for_validation_may_lack_a_segment(whole: Within) -> None:
    with within_transaction(whole.connection) as connection:
        connection.execute(NO_PROBLEM["a set for validation that lacks a segment"][0]).fetchall()
        [more, squad] = whole.rows(f"from ({sql_of('qa_bias_models')}) order by dataset")
    assert [more["f1_biased"], more["f1_difference"], more["f1_other"]] == [None, None, 0.7]
    assert squad["f1_biased"] == 0.7


def test_courses_are_means_and_extremes_of_the_readers_of_a_method(whole: Within) -> None:
    with within_transaction(whole.connection) as connection:
        connection.execute("update evaluations set loss = loss + length(model)").fetchall()
        connection.execute("update trained_models set method = 'resample' where method <> 'bias_model'").fetchall()
        of = "trained_models using (base, data, method) inner join evaluations using (model, dataset, step)"
        of = f"from ({sql_of('qa_training_curves')}) as of inner join {of} where n_readers > 1 and problem is null"
        rows = whole.rows(f"select of.loss, loss_low, loss_high, list(evaluations.loss) as own {of} group by all")
    assert rows
    for row in rows:
        assert (row["loss_low"], row["loss_high"]) == (min(row["own"]), max(row["own"]))
        assert row["loss"] == pytest.approx(sum(row["own"]) / len(row["own"]))


def test_a_run_that_trained_nothing_has_these_marts_without_a_row(tmp_path: Path) -> None:
    run = two_segments().write(tmp_path)
    measure(run)
    for mart in MARTS:
        found = pq.read_table(Path(run, "marts", f"{mart}.parquet"))
        assert (found.num_rows, found.num_columns > 5) == (0, True), mart
    assert {name.stem for name in Path(run, "marts").iterdir()} == set(names_of("qa_bias", "marts"))
