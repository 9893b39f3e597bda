"""One page over runs of several models."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import cautions_of, comparing
from biaseval.report import write_comparison
from biaseval.report.compare_models import MODEL_RELATIONS, model_charts, paper_tables
from tests.commands import call
from tests.labelplans import two_tasks
from tests.majority_report.runs import HOSTILE, make_run
from tests.pages import Page, assert_answered, assert_said, assert_whole
from tests.relation import Together
from tests.specs import as_older

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def page(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "all.html"
    return Path(write_comparison(runs, str(out))).read_text()


def test_the_page_has_the_numbers_of_every_model_and_the_effect_of_size(page: str, runs: list[str]) -> None:
    assert_whole(page)
    assert_answered(page, runs, 6)
    twice = "select 1 from majority_bias_compared group by run, other_run, place, metric having count(*) > 1"
    assert query(runs, twice).num_rows == 0
    titles = set(Page(page).values("title"))
    for row in query(runs, "from majority_by_model union all by name from majority_size_effect").to_pylist():
        assert {f"{row[name]:.6g}" for name in ("mean_f1", "sd_f1", "rb_at_10")} <= titles
    words = ["nothing can be compared, so the run is left out", "boolq-small .* boolq-large: .*; shared: 200 test rows"]
    assert_said(Page(page).text, [*words, "What each run shows by itself"])


def test_the_page_is_the_same_each_time_and_changes_no_run(page: str, runs: list[str], tmp_path: Path) -> None:
    before = {run: sorted(Path(run).rglob("*")) for run in runs}
    write_comparison(runs, str(tmp_path / "again" / "page.html"))
    assert (tmp_path / "again" / "page.html").read_text() == page
    assert {run: sorted(Path(run).rglob("*")) for run in runs} == before


def test_there_is_a_chart_per_instruction_and_one_per_model_of_every_data_set(runs: list[str]) -> None:
    with comparing(runs, MODEL_RELATIONS) as (_, ask):
        charts = {chart.name: chart.text for chart in model_charts("majority_bias", ask)}
        tables = paper_tables("majority_bias", ask)
    # Without a method two data sets, of the same name; with LOOC one.
    sets = {
        "none": ("boolq", "small", "large"),
        "none_1": ("stance", "small", "large"),
        "looc": ("boolq", "small", "large"),
    }
    ends = {place: ["without", "with", *(f"{name}-{size}" for size in sizes)] for place, (name, *sizes) in sets.items()}
    assert list(charts) == [f"f1_boolq_likelihood_{place}_{end}" for place, own in ends.items() for end in own]
    assert_said(
        charts["f1_boolq_likelihood_none_with"], [r"boolq-small .7B. 0.767 at 0.0.*boolq-large .13B. 1.000 at 0.0"]
    )
    assert_said(charts["f1_boolq_likelihood_none_boolq-large"], ["boolq-large", "without instruction 0.100 at 0.0"])
    first = query(runs, "from majority_by_model").to_pylist()
    for row in tables["table_1"]:
        for end, instruction in (("without", False), ("with", True)):
            [own] = [
                one
                for one in first
                if (one["run"], one["method"], one["instruction"]) == (row["run"], row["method"], instruction)
            ]
            assert [row[f"{name}_{end}"] for name in ("rb_at_10", "mean_f1", "sd_f1")] == [
                own[name] for name in ("rb_at_10", "mean_f1", "sd_f1")
            ]
    values = {
        (row["run"], row["method"], row["instruction"], row["setting"]): row["weighted_f1"]
        for row in query(runs, "from majority_over_seeds").to_pylist()
    }
    names = [Path(run).name for run in runs]
    assert {name for row in tables["table_2"] for name in names if row[name] is not None} == {*names}
    for row in tables["table_2"]:
        for name in names:
            assert row[name] == values.get((name, row["method"], row["instruction"], row["setting"]))


@pytest.fixture(scope="module")
def pair(runs: list[str]) -> Iterator[Together]:
    """Return what compares two models, over tables that statements can change."""
    found = Together([runs[1], runs[0]], "majority_bias_compare_cautions")
    yield found
    found.connection.close()


LARGER = "where run = 'boolq-large'"


@pytest.mark.parametrize(("change", "words"), [
    (f"update run_settings set seed = 43 {LARGER}",
        ["other seeds in the specs .seed.; differences of size have no interval"]),
    (f"update run_settings set normalization = 'sum' {LARGER}", ["scored in another way", "no interval"]),
    (f"update majority_by_model set is_any_setting_above_constant = false {LARGER}",
        [r"to be better than always answering one label in .*boolq-large; an RB@10 near 1 is then no"]),
    ("update majority_by_model set is_any_setting_above_constant = true", ["!better than always answering one label"]),
    ("update majority_by_model set has_enough_rows = false",
        ["too few test rows for RB@10 in boolq-small and boolq-large"]),
    (f"update majority_by_model set n_parameters = null {LARGER}",
        ["the size of the model is unknown in boolq-large"]),
])  # fmt: skip
def test_what_a_reader_must_know_first(change: str, words: list[str], pair: Together) -> None:
    with pair.changed(change):
        said = pair.rows(cautions_of("majority_bias", ["boolq-small", "boolq-large"]))
    assert_said("\n".join(row["text"] for row in said), words)


def test_markup_in_names_is_shown_and_not_interpreted(runs: list[str], tmp_path: Path) -> None:
    hostile = make_run(tmp_path / "hostile & co", 20_000, name="plain", model={"path": "m", "dtype": "float32"})
    store = as_older(hostile)
    store.write_text("spec.yaml", store.read_text("spec.yaml").replace("path: m", f"path: {json.dumps(HOSTILE)}"))
    write_comparison([runs[1], hostile], str(tmp_path / "page.html"))
    source = (tmp_path / "page.html").read_text()
    assert_whole(source)
    assert_said(Page(source).text, ["hostile & co", HOSTILE.replace("(", r"\(").replace(")", r"\)")])


def test_runs_that_have_no_page_together_are_refused(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    label_bias, page = two_tasks().write(tmp_path / "animals"), str(tmp_path / "page.html")
    for arguments, words in (
        ([runs[0], label_bias, "--out", page], "name runs of one kind"),
        ([*runs[:2], "--out", page[:-1]], "does not end in .html"),
        ([runs[0], "--out", page], "needs at least two runs"),
        ([runs[0], runs[2], "--out", page], "nothing can be compared"),
    ):
        done = call(capsys, monkeypatch, "report", *arguments)
        assert_said(done.err, [words])
        assert (done.code, Path(page).exists()) == (2, False)
    Path(runs[0], "report.html").unlink(missing_ok=True)
    done = call(capsys, monkeypatch, "report", *runs[:2], "--out", page)
    assert (done.code, done.out) == (0, f"report: {page}\n")
    assert not Path(runs[0], "report.html").exists()
