"""Checks of a run that trained readers: each finds what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import sql_files as relations
from tests.measuring import measure
from tests.qa_debiasing.studies import hand_draws, two_readers
from tests.qa_debiasing.study import MARTS, Study, all_sql, problems, rows, within_transaction
from tests.qaplans import two_segments
from tests.relationnames import names_of

# Checks


def trained_study() -> Study:
    study = two_readers()
    study.reader("hypothesis", "bias_model", "ans_len")
    study.reader("broken", "learned_mixin", "ans_len", problem="its loss is not finite", steps=2)
    study.tables["qa_segments"] = [
        {"base": "bert", "data": "squad", "bias": "ans_len", "n_biased_validation": 9, "n_other_validation": 9}
    ]
    hand_draws(study)
    return study


CHECKS = ("qa_training_is_whole", "qa_evaluations_are_whole", "qa_changes_have_their_draws")


@pytest.fixture(scope="module")
def whole() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(relations.connect([])) as connection:
        trained_study().create(connection)
        yield connection


def test_a_whole_study_passes_every_check(whole: duckdb.DuckDBPyConnection) -> None:
    for check in names_of("qa_bias", "checks"):
        if check in CHECKS:
            assert problems(check, whole) == [], check
    assert set(CHECKS) <= set(names_of("qa_bias", "checks"))


BROKEN: list[tuple[str, str, str]] = [
    # Training
    ("qa_training_is_whole", "delete from training where model = 'base' and step = 1",
     "base: 2 steps, 2 different, 2 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set step = 3 where model = 'base' and step = 2",
     "base: 3 steps, 3 different, 3 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set step = 1 where model = 'base' and step = 2",
     "base: 3 steps, 2 different, 3 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set loss = 'nan' where model = 'hypothesis' and step = 2",
     "hypothesis: 3 steps, 3 different, 2 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update training set loss = null where model = 'careful' and step = 0",
     "careful: 3 steps, 3 different, 2 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "delete from training where model = 'careful'",
     "careful: 0 steps, 0 different, 0 of finite loss; wanted 0 to 2"),
    ("qa_training_is_whole", "update trained_models set steps = null where model = 'base'",
     "base: 3 steps, 3 different, 3 of finite loss; wanted 0 to null"),
    ("qa_training_is_whole", "update training set model = 'other' where model = 'base' and step = 2",
     "other: 1 steps of a reader that is not in trained_models"),
    ("qa_training_is_whole", "delete from evaluations where model = 'careful'",
     "careful: no evaluation behind step 2, whose weights are kept"),
    ("qa_training_is_whole", "update trained_models set best_step = 1 where model = 'base'",
     "base: no evaluation behind step 1, whose weights are kept"),
    ("qa_training_is_whole", "update trained_models set best_step = 3 where model = 'base'",
     "base: path readers/base, best step 3 of 3"),
    ("qa_training_is_whole", "update trained_models set best_step = null where model = 'base'",
     "base: path readers/base, best step null of 3"),
    ("qa_training_is_whole", "update trained_models set path = null where model = 'base'",
     "base: path null, best step 2 of 3"),
    ("qa_training_is_whole", "update trained_models set standard = 'hypothesis' where model = 'careful'",
     "careful: compared with hypothesis, which is no other standard reader of its base, data and seed"),
    ("qa_training_is_whole", "update trained_models set standard = 'gone' where model = 'careful'",
     "careful: compared with gone, which"),
    ("qa_training_is_whole", "update trained_models set standard = 'base' where model = 'base'",
     "base: compared with base, which"),
    ("qa_training_is_whole", "update trained_models set seed = 43 where model = 'careful'",
     "careful: compared with base, which"),
    ("qa_training_is_whole", "delete from qa_models where model = 'careful'",
     "careful: was trained, and is not measured"),
    ("qa_training_is_whole", "update qa_models set is_trained = false where model = 'careful'",
     "careful: was trained, and is not measured"),
    ("qa_training_is_whole", "update qa_models set model = 'broken' where model = 'careful'",
     "broken: is measured as trained in this run, which has no weights of it"),
    ("qa_training_is_whole", "update qa_models set model = 'hypothesis' where model = 'careful'",
     "hypothesis: is measured as trained in this run"),
    # Evaluations
    ("qa_evaluations_are_whole", "update evaluations set model = 'other' where model = 'base'",
     "other, step 2, squad: there is no such reader"),
    ("qa_evaluations_are_whole", "update evaluations set step = 3 where model = 'base'",
     "base, step 3, squad: there is no such step"),
    ("qa_evaluations_are_whole", "update evaluations set step = null where model = 'base'",
     "base, step null, squad: there is no such step"),
    ("qa_evaluations_are_whole", "update evaluations set loss = 'nan' where model = 'base'",
     "base, step 2, squad: loss nan, exact match 0.6, F1 0.7"),
    ("qa_evaluations_are_whole", "update evaluations set loss = 'inf' where model = 'base'", "loss inf"),
    ("qa_evaluations_are_whole", "update evaluations set loss = null where model = 'base'", "loss null"),
    ("qa_evaluations_are_whole", "update evaluations set loss = -1 where model = 'base'", "loss -1.0"),
    ("qa_evaluations_are_whole", "update evaluations set f1 = null where model = 'base'", "F1 null"),
    ("qa_evaluations_are_whole",
     "insert into evaluations select * replace (0 as step) from evaluations where model = 'base' union all by name "
     "select * replace (0 as step, 'more' as dataset) from evaluations where model = 'base'",
     "base: asked 1 sets behind step 2, and 2 behind step 0"),
    ("qa_evaluations_are_whole", "delete from evaluations where dataset = 'squad (other)'",
     "hypothesis, step 2: asked biased, wanted biased and other"),
    ("qa_evaluations_are_whole", "update evaluations set dataset = 'more (biased)' where dataset = 'squad (other)'",
     "hypothesis, step 2: asked biased, wanted biased and other"),
    ("qa_evaluations_are_whole", "update evaluations set dataset = 'all' where dataset = 'squad (biased)'",
     "hypothesis, step 2: asked no segment and other, wanted biased and other"),
    ("qa_evaluations_are_whole",
     "insert into evaluations select * replace ('all' as dataset) from evaluations where dataset = 'squad (biased)'",
     "hypothesis, step 2: asked biased and no segment and other, wanted biased and other"),
    # Marts
    ("qa_changes_have_their_draws", "update qa_change_draws set model = 'base' where draw = 2",
     "base, squad, ans_len: draws of a comparison that there is not"),
    ("qa_changes_have_their_draws", "update qa_change_draws set heuristic = 'cos_sim' where draw = 2",
     "careful, squad, cos_sim: draws of a comparison that there is not"),
    *[
        ("qa_changes_have_their_draws", f"update qa_debiasing set {wrong} where model = 'careful'",
         "careful, squad, ans_len: ")
        for wrong in ("significance_change_low = null", "significance_change_low = 101", "n_draws = 0")
    ],
]  # fmt: skip


@pytest.mark.parametrize(("check", "statement", "problem"), BROKEN)
def test_a_check_finds_what_it_is_for(
    check: str, statement: str, problem: str, whole: duckdb.DuckDBPyConnection
) -> None:
    with within_transaction(whole):
        whole.execute(statement).fetchall()
        found = problems(check, whole)
    assert any(problem in one for one in found), found


def test_what_is_wrong_with_a_reader_that_was_given_up_is_no_problem(whole: duckdb.DuckDBPyConnection) -> None:
    with within_transaction(whole):
        for statement in (
            "update training set loss = 'nan' where model = 'broken'",
            "delete from training where model = 'broken' and step = 0",
            "insert into evaluations select * replace ('broken' as model, 0 as step, 'nan' as loss, null as f1) "
            "from evaluations where model = 'base'",
        ):
            whole.execute(statement).fetchall()
        assert [problems(check, whole) for check in CHECKS] == [[], [], []]


def test_an_evaluation_on_the_way_may_lack_a_finite_loss(whole: duckdb.DuckDBPyConnection) -> None:
    """Its weights are not those that are kept."""
    with within_transaction(whole):
        whole.execute(
            "insert into evaluations select * replace (0 as step, 'nan' as loss) from evaluations where model = 'base'"
        ).fetchall()
        assert problems("qa_evaluations_are_whole", whole) == []


def test_a_set_for_validation_may_lack_a_segment(whole: duckdb.DuckDBPyConnection) -> None:
    with within_transaction(whole):
        whole.execute(
            "insert into evaluations select * replace ('more (other)' as dataset) from evaluations "
            "where dataset = 'squad (other)'"
        ).fetchall()
        whole.execute(f"create or replace table qa_bias_models as {all_sql()['qa_bias_models']}").fetchall()
        [more, squad] = rows("from qa_bias_models order by dataset", whole)
        assert [problems(check, whole) for check in CHECKS] == [[], [], []]
    assert [more["f1_biased"], more["f1_difference"], more["f1_other"]] == [None, None, 0.7]
    assert squad["f1_biased"] == 0.7


def test_draws_of_a_comparison_whose_groups_are_too_small_are_left_aside() -> None:
    study = two_readers(bootstrap={"trials": 20, "sample": 11})
    hand_draws(study)
    with study.opened() as connection:
        [found] = rows("from qa_debiasing where model = 'careful'", connection)
        assert problems("qa_changes_have_their_draws", connection) == []
    assert (found["n_draws"], found["significance_change_low"]) == (0, None)


# Runs


def test_a_run_that_trained_nothing_has_these_marts_without_a_row(tmp_path: Path) -> None:
    run = two_segments().write(tmp_path)
    measure(run)
    for mart in MARTS:
        found = pq.read_table(Path(run, "marts", f"{mart}.parquet"))
        assert found.num_rows == 0, mart
        assert found.num_columns > 5, mart
    assert {name.stem for name in Path(run, "marts").iterdir()} == set(names_of("qa_bias", "marts"))
