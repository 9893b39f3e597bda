"""One page over runs of several models."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from biaseval.analysis import query
from biaseval.cli import app, main
from biaseval.errors import InputError
from biaseval.report import write_comparison
from biaseval.report.comparison_data import read_comparison, size
from biaseval.report.comparison_words import caveats
from tests.labelplans import two_tasks
from tests.majority_report.runs import HOSTILE, make_run, table, tables
from tests.majorityplans import LARGE
from tests.pages import Page
from tests.specs import as_older


@pytest.fixture(scope="module")
def page(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page") / "all.html"
    assert write_comparison(runs, str(out)) == str(out)
    return out.read_text()


def test_table_1_has_models_by_size_and_a_line_per_data_set_and_metric(page: str, runs: list[str]) -> None:
    head, names, *lines = table(page, "Table 1")
    assert head == ["Data", "llm-7000000000 (7B)", "llm-13000000000 (13B)"]
    assert names == ["without", "with"] * 2
    assert [line[:-4] for line in lines] == [
        ["BoolQ (3 settings, 2 seeds, 200 test rows)", "RB@10"],
        ["weighted F1"],
        ["std"],
        ["stance (3 settings, 2 seeds, 200 test rows)", "RB@10"],
        ["weighted F1"],
        ["std"],
    ]
    marts = {
        (row["run"], row["instruction"]): row
        for row in query(runs, "from majority_by_model where predict = 'likelihood' and method = 'none'").to_pylist()
    }
    places = [(run, instruction) for run in ("boolq-small", "boolq-large") for instruction in (False, True)]
    for line, metric in zip(lines[:3], ("rb_at_10", "mean_f1", "sd_f1"), strict=True):
        assert [cell.split()[0] for cell in line[-4:]] == [f"{marts[place][metric]:.3f}" for place in places]


def test_table_2_marks_the_settings_inside_the_boundary(page: str) -> None:
    head, _, *lines = table(page, "percentages of True / False")
    assert head[0] == "Setting"
    # Without and with instruction of the smaller model, then of the larger.
    assert [line[0] for line in lines] == ["0/100", "50/50", "100/0"]
    assert [cell.split()[0] for cell in lines[0][1:]] == ["0.100", "0.767", "0.100", "1.000"]
    row = re.search(r'<th scope="row" class="text">0/100</th>(.*?)</tr>', page)
    assert row is not None
    assert re.findall(r'<td( class="best")?>', row[1]) == ["", "", "", ' class="best"']


def test_the_effect_of_size_stands_in_the_page_with_intervals(page: str, runs: list[str]) -> None:
    head, *lines = table(page, "The larger model minus the smaller")
    assert head[:5] == ["Data", "From", "To", "Instruction", "RB@10"]
    assert [line[0] for line in lines] == ["BoolQ", "BoolQ", "stance", "stance"]
    [effect] = query(
        runs,
        "from majority_size_effect "
        "where run = 'boolq-small' and instruction and predict = 'likelihood' and method = 'none'",
    ).to_pylist()
    assert lines[1][1:4] == ["llm-7000000000 (7B)", "llm-13000000000 (13B)", "with"]
    interval = f"[{effect['rb_at_10_low'] + 0.0:+.3f}, {effect['rb_at_10_high'] + 0.0:+.3f}]".replace("-", "−")
    assert lines[1][4] == f"+0.333 {interval}"
    text = Page(page).text
    assert "2 models (llm-7000000000 (7B) and llm-13000000000 (13B)) on 2 data sets (BoolQ and stance)" in text
    signs = [row["rb_at_10_sign"] for row in query(runs, "from majority_size_effect where method = 'none'").to_pylist()]
    assert set(signs) <= {0, None}  # two seeds say nothing of RB@10
    assert "in 4 comparisons with and without instruction, RB@10 is higher in 0 and lower in 0 of 4" in text
    boundaries = query(
        runs, "select run, rb_at_10 from majority_by_model where predict = 'likelihood' and method = 'none'"
    ).to_pylist()
    of_boolq = sorted(row["rb_at_10"] for row in boundaries if row["run"].startswith("boolq"))
    assert f"the boundary, RB@10, is {of_boolq[0]:.3f} to {of_boolq[-1]:.3f} on BoolQ (mean weighted F1" in text
    assert "Label likelihood, LOOC, against no calibration: RB@10 is higher in 0 and lower in 0 of 4" in text


def test_the_runs_stand_with_their_settings_seeds_and_test_rows(page: str) -> None:
    head, *lines = table(page, "The runs behind the numbers")
    assert head[-4:] == ["Demonstrations", "Settings", "Seeds", "Test rows"]
    assert [line[0] for line in lines] == ["boolq-small", "boolq-large", "stance-small", "stance-large"]
    assert {tuple(line[-4:]) for line in lines} == {("2", "3", "2", "200")}
    head, *effects = table(page, "The larger model minus the smaller")
    assert head[-3:] == ["Settings", "Seeds", "Test rows of both"]
    assert {tuple(line[-3:]) for line in effects} == {("3", "2", "200")}
    assert [caption for caption in tables(page) if "3 settings, 2 seeds, 200 test rows" in caption]


def test_differences_without_interval_have_their_reason_on_the_page(runs: list[str], tmp_path: Path) -> None:
    for change, reason in (
        ({"seed": 43}, "not run on the same test rows with the same seed"),
        ({"scoring": {"normalization": "sum", "eos": True}}, "was scored in another way"),
    ):
        large = make_run(tmp_path / next(iter(change)), 13_000_000_000, LARGE, **change)
        told = [sentence for sentence in caveats(read_comparison([runs[1], large])) if "have no interval" in sentence]
        assert len(told) == 1
        assert told[0].startswith("boolq-small: ")
        assert reason in told[0]


def test_figures_are_a_line_per_model_and_a_panel_per_model(page: str) -> None:
    alts = Page(page).values("alt")
    # 2 data sets with 2 instructions (Figure 2), 2 data sets with 2 models (Figure 3); with LOOC one data set.
    assert len(alts) == 2 * 2 + 2 * 2 + (2 + 2)
    assert "BoolQ, with instruction: llm-7000000000 0.767 at 0/100" in alts[1]
    assert "llm-13000000000 1.000 at 0/100" in alts[1]
    assert "llm-13000000000: without 0.100 at 0/100" in alts[3]
    assert "; with 1.000 at 0/100" in alts[3]
    assert page.count("<details open>") == 1
    assert page.count("<details") - page.count('<details class="query">') == 2


def test_each_table_has_the_query_that_shows_it(page: str, runs: list[str]) -> None:
    queries = {html.unescape(code) for code in re.findall(r'class="query">.*?<code>(.*?)</code>', page)}
    for name in ("by_model", "over_seeds", "size_effect"):
        assert f"from majority_{name}" in " ".join(queries)
    for one in queries:
        assert query(runs, one).num_rows > 0, one


def test_the_page_leads_nowhere_and_is_the_same_each_time(page: str, runs: list[str], tmp_path: Path) -> None:
    assert Page(page).open_tags == []
    assert not re.search(r"https?:|<script |url\(", page)
    assert all(link.removeprefix("#") in Page(page).values("id") for link in Page(page).values("href"))
    assert not re.search(r">\s*(None|nan)\s*<", page)
    assert page.count("<caption>") == page.count("<table")
    before = {run: sorted(Path(run).rglob("*")) for run in runs}
    write_comparison(runs, str(tmp_path / "again" / "page.html"))
    assert (tmp_path / "again" / "page.html").read_text() == page
    assert {run: sorted(Path(run).rglob("*")) for run in runs} == before


def test_markup_in_names_is_shown_and_not_interpreted(runs: list[str], tmp_path: Path) -> None:
    hostile = make_run(tmp_path / "hostile & co", 20_000, name="plain", model={"path": "m", "dtype": "float32"})
    store = as_older(hostile)
    store.write_text("spec.yaml", store.read_text("spec.yaml").replace("plain", json.dumps(HOSTILE)))
    write_comparison([runs[1], hostile], str(tmp_path / "page.html"))
    found = Page((tmp_path / "page.html").read_text())
    assert f"{HOSTILE} (20K)" in found.text
    assert "hostile & co" in found.text
    assert "onerror" not in {name for _, name, _ in found.attributes}


def test_a_model_is_what_has_the_same_weights_and_is_called_by_one_name(tmp_path: Path) -> None:
    """The weights' digest tells models apart, not the path; of several names of runs the model's own is left."""
    one, two = ({"path": f"{folder}/llm", "dtype": "float32"} for folder in ("one", "two"))
    comparison = read_comparison(
        [
            make_run(tmp_path / "a", 1_000, model=one, digest="x"),
            make_run(tmp_path / "b", 1_000, model=two, digest="x", data="stance"),
            make_run(tmp_path / "c", None, model=one, digest="y"),
        ]
    )
    assert [(model.name, model.runs, model.n_parameters) for model in comparison.models] == [
        ("llm", ("a", "b"), 1_000),
        ("c", ("c",), None),
    ]
    assert [(dataset.name, dataset.runs) for dataset in comparison.datasets] == [
        ("BoolQ", ("a", "c")),
        ("stance", ("b",)),
    ]
    told = " ".join(caveats(comparison))
    assert "Not measured: c on stance." in told
    assert "c: the runs do not say the size" in told


def test_two_runs_of_one_model_on_the_same_data_are_refused(runs: list[str], tmp_path: Path) -> None:
    twin = make_run(tmp_path / "twin", 7_000_000_000)
    with pytest.raises(InputError, match="boolq-small and twin: are runs of one model on the same data"):
        write_comparison([runs[1], twin], str(tmp_path / "page.html"))
    with pytest.raises(InputError, match="one is named"):
        write_comparison([runs[1]], str(tmp_path / "page.html"))
    assert not (tmp_path / "page.html").exists()


def test_one_page_is_over_majority_bias_runs_only(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    label_bias = two_tasks().write(tmp_path / "animals")
    monkeypatch.setattr("sys.argv", ["biaseval", "report", runs[0], label_bias, "--out", str(tmp_path / "page.htm")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert f"{label_bias}: holds no majority-bias run" in error
    assert "does not end in .html" in error
    assert not Path(label_bias, "marts").exists()


def test_the_command_writes_the_page_and_leaves_the_reports_alone(runs: list[str], tmp_path: Path) -> None:
    Path(runs[0], "report.html").unlink(missing_ok=True)
    done = CliRunner().invoke(app, ["report", *runs[:2], "--out", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"report: {tmp_path}/page.html\n"
    assert "Majority-label bias, 2 models" in (tmp_path / "page.html").read_text()
    assert not Path(runs[0], "report.html").exists()


@pytest.mark.parametrize(
    ("n_parameters", "expected"), [(999, "999"), (616_000, "616K"), (7_241_732_096, "7.24B"), (34_000_000, "34M")]
)
def test_sizes_are_said_shortly(n_parameters: int, expected: str) -> None:
    assert size(n_parameters) == expected
