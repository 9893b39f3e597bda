"""One page over runs of several models."""

import json
from pathlib import Path
from typing import Any

import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import comparing
from biaseval.report import write_comparison
from biaseval.report.compare_models import MODEL_RELATIONS, model_charts, paper_tables
from tests.commands import call
from tests.labelplans import two_tasks
from tests.majority_report.runs import HOSTILE, make_run
from tests.majorityplans import ANSWERS, LARGE
from tests.pages import Page, assert_answered, assert_said, assert_whole
from tests.specs import as_older


@pytest.fixture(scope="module")
def page(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "all.html"
    assert write_comparison(runs, str(out)) == str(out)
    return out.read_text()


def test_the_page_has_the_numbers_of_every_model_and_the_effect_of_size(page: str, runs: list[str]) -> None:
    assert_whole(page)
    assert_answered(page, runs, 6)
    rows = query(runs, "from majority_by_model union all by name from majority_size_effect").to_pylist()
    titles = set(Page(page).values("title"))
    for row in rows:
        assert {f"{row[name]:.6g}" for name in ("mean_f1", "sd_f1", "rb_at_10")} <= titles
    words = ["nothing can be compared, so the run is left out", "boolq-small against boolq-large, on 200 test rows"]
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


def test_effects_of_size_stay_within_a_family_and_state_and_those_of_tuning_are_differences(tmp_path: Path) -> None:
    models = {
        "small": (7_000, "a", None), "middle": (10_000, "b", None), "tuned": (12_000, "a", "small"),
        "large": (13_000, "a", None), "larger": (20_000, "a", "large"),
    }  # fmt: skip
    made = [
        make_run(
            tmp_path / name,
            size * 1_000_000,
            model={"path": f"models/llm-{size}", "dtype": "float32", "family": family, "tuned_from": base},
        )
        for name, (size, family, base) in models.items()
    ]
    pairs = query(made, "select distinct run, larger_run from majority_size_effect order by all").to_pylist()
    assert pairs == [{"run": "small", "larger_run": "large"}, {"run": "tuned", "larger_run": "larger"}]
    place = ("n_demos", "instruction", "predict", "method")
    mean_f1 = {
        (row["run"], *(row[key] for key in place)): row["mean_f1"]
        for row in query(made, "from majority_by_model").to_pylist()
    }
    effects = query(made, "from majority_tuning_effect where metric = 'mean_f1'").to_pylist()
    assert {(row["run"], row["other_run"]) for row in effects} == {("small", "tuned"), ("large", "larger")}
    for row in effects:
        value, other = (mean_f1[(row[side], *(row[key] for key in place))] for side in ("run", "other_run"))
        assert (row["value"], row["other_value"], row["estimate"]) == pytest.approx((value, other, other - value))


@pytest.mark.parametrize(("given", "words"), [
    ({"seed": 43}, ["other seeds in the specs .seed.; differences of size have no interval"]),
    ({"scoring": {"normalization": "sum", "eos": True}}, ["scored in another way", "no interval"]),
    ({"answers": dict.fromkeys(ANSWERS, ("TTTT", "TTTT"))},
        ["no setting is shown to be better than always answering one label in other; an RB@10 near 1 is then no"]),
    ({"answers": dict.fromkeys(ANSWERS, ("TTTF", "TTTF"))}, ["!better than always answering one label in other"]),
    ({"n_repeats": 1}, ["too few test rows for RB@10 in few and other"]),
    ({"n_parameters": None}, ["the size of the model is unknown in other"]),
])  # fmt: skip
def test_what_a_reader_must_know_first(
    given: dict[str, Any], words: list[str], runs: list[str], tmp_path: Path
) -> None:
    first = make_run(tmp_path / "few", 7_000, n_repeats=1) if "n_repeats" in given else runs[1]
    other = make_run(tmp_path / "other", **{"n_parameters": 13_000_000_000, "answers": LARGE, **given})
    with comparing([first, other]) as (compared, _):
        assert_said("\n".join(row["text"] for row in compared.cautions), words)


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
