"""`biaseval figures`: figures and tables of finished runs as files."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import comparing
from biaseval.report.charts import COLORS, lighter, line_chart
from biaseval.report.compare import RELATIONS, compare_page
from biaseval.report.compare_models import model_charts
from biaseval.runs import reanalyse_run
from biaseval.store import Run
from tests.commands import call
from tests.compare.runs import label_plan, make
from tests.conftest import ROOT
from tests.labelplans import two_tasks
from tests.majorityplans import MajorityPlan
from tests.older_runs import copy_older_run
from tests.qa_report.runs import make_run as make_qa_run
from tests.specs import as_older
from tests.validation.outcomes import outcomes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [make(label_plan({"task1": hits}), folder / name) for name, hits in (("a", "11110000"), ("b", "11111100"))]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return what calls the command line."""
    return lambda *arguments: call(capsys, monkeypatch, *map(str, arguments))


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("ending", "beginning"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_chart_is_the_same_bytes_each_time(ending: str, beginning: bytes) -> None:
    """Names that could end a script or a string are text, also in the file."""
    rows = [
        {"x": x, "y": x / 4, "low": 0.0, "high": 1.0, "series": name}
        for name in ("</script>", "'a\"")
        for x in range(3)
    ]
    chart = line_chart("panel", rows, title="<b>F1</b>", axes=("demonstrations", "F1"))
    first, *again = (chart.file(ending) for _ in range(4))
    assert (first[: len(beginning)], {*again}) == (beginning, {first})
    assert b"<b>" not in first


def test_a_run_gives_what_its_report_shows(tmp_path: Path, ask: Callable[..., Any]) -> None:
    _, run = copy_older_run("label_bias", tmp_path)
    ask("report", run)
    made = ask("figures", run, "--out", tmp_path / "out")
    assert (made.code, made.err) == (0, "")
    files = _files(tmp_path / "out")
    assert sorted(made.out.splitlines()) == sorted(str(tmp_path / "out" / name) for name in files)
    assert _files(run / "figures") == {name: content for name, content in files.items() if name.endswith(".svg")}
    captions = [line.partition("`: ") for line in files["captions.md"].decode().strip().split("\n\n")]
    drawn = [Path(uri).name for uri in made.out.splitlines() if uri.endswith(".svg")]
    assert [name for name, _, _ in captions] == [f"`{name}" for name in drawn]
    assert all(len(caption) > 20 for _, _, caption in captions)
    for page in (ROOT / "platform" / "biaseval" / "report").glob("*.j2"):
        for figure in re.findall(r"<figure.*?</figure>", page.read_text(), re.DOTALL):
            assert "<figcaption>" in figure, (page.name, figure[:200])


def test_tables_are_the_marts_and_those_without_rows_are_no_files(
    runs: list[str], tmp_path: Path, ask: Callable[..., Any]
) -> None:
    ask("figures", runs[0], "--out", tmp_path)
    mart = query([runs[0]], "from label_bias_by_model order by all")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "label_bias_by_model.csv").read_text())))
    assert list(rows[0]) == mart.column_names
    assert [float(row["rsd"]) for row in rows] == mart["rsd"].to_pylist()
    head, _, first, *_ = (tmp_path / "label_bias_by_model.md").read_text().splitlines()
    assert head.startswith("| n_demos | method | macro_f1 | accuracy | is_above_constant | rsd |")
    assert first.startswith("| 0 | none | ")
    assert f"| {mart['accuracy'][0].as_py():.4f} |" in first
    assert not query([runs[0]], "from label_bias_format_spread").num_rows
    assert not list(tmp_path.glob("label_bias_format_spread*"))


def test_several_runs_have_folders_and_what_compares_them(
    runs: list[str], tmp_path: Path, ask: Callable[..., Any]
) -> None:
    made = ask("figures", *runs, "--out", tmp_path, "--format", "png", "--json")
    assert made.code == 0, made.err
    files = _files(tmp_path)
    assert {str(tmp_path / name) for name in files} == set(json.loads(made.out)["files"])
    assert {"a/rsd.png", "b/rsd.png", "differences_0.png", "label_bias_comparison.csv"} <= set(files)
    assert files["label_bias_by_model.csv"].startswith(b'"run"')
    lines = files["label_bias_by_model.md"].decode().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| a", "| b"]


def test_models_of_a_family_share_a_colour_and_tuned_ones_have_dashes(tmp_path: Path, ask: Callable[..., Any]) -> None:
    """As in the figures of Reif & Schwartz; what a finished run does not say, `analyse` adds without scoring."""
    base = ["small", "small-chat", "large", "other"]
    plan = two_tasks()
    plan.spec["calibration"] = ["cc"]
    plan.tasks = [{**row, "n_main": 30} for row in plan.tasks]
    run = Run.open(plan.write(tmp_path / "large"))
    run.write_json("environment.json", {"model_facts": {"n_parameters": 3_000_000}})
    reanalyse_run(run.uri, ["model.family=a"], page=False)
    for name, size, family, tuned_from in (
        ("small", 1_000, "a", None), ("small-chat", 1_000, "a", "small"), ("other", 2_000, None, None),
    ):  # fmt: skip
        copied = as_older(shutil.copytree(run.root, tmp_path / name))
        for file in ("run_settings/part-00000.parquet", "marts/label_bias_by_model.parquet"):
            table = pq.read_table(tmp_path / name / file)
            for column, value in (("n_parameters", size), ("family", family), ("tuned_from", tuned_from)):
                place = table.schema.get_field_index(column)
                values = pa.array([value] * table.num_rows, table.schema.field(place).type)
                table = table.set_column(place, table.schema.field(place), values)
            copied.write_table(file, table)
    made = ask("figures", *(tmp_path / name for name in base), "--out", tmp_path / "out", "--tables", "md,tex")
    assert made.code == 0, made.err
    with comparing([str(tmp_path / name) for name in base], RELATIONS) as (compared, query_runs):
        charts = {chart.name: chart for chart in model_charts("label_bias", query_runs)}
        page = compare_page(compared, query_runs)
        pairs = query_runs("from tuned_pairs")
        rows = query_runs("from label_bias_by_model where suite = 'all' and method = 'none' order by run, n_demos")
    assert list(charts) == ["models", "methods_a", "suites_a", "methods", "suites"]
    assert {f"{name}.svg" for name in charts} <= set(_files(tmp_path / "out"))
    assert not list((tmp_path / "out").glob("*.csv"))
    assert pairs == [{"run": "small", "other_run": "small-chat", "family": "a"}]
    lines = (tmp_path / "out" / "tuned_minus_base.md").read_text().splitlines()
    assert lines[0].startswith("| family | run | other_run | n_demos | method | metric |")
    assert {line.split(" | ")[1:3] == ["small", "small-chat"] for line in lines[2:]} == {True}
    assert ("Tuned minus base" in page, "Larger minus smaller" in page) == (True, True)
    settings = [
        Run.open(str(tmp_path / name)).read_table("run_settings").to_pylist()[0] | {"run": name} for name in base
    ]
    # A name that no run has is that of its family and size.
    for named, expected in (("other", "other"), ("elsewhere", "small")):
        given = [row | ({"tuned_from": named} if row["tuned_from"] else {}) for row in settings]
        found = outcomes(
            "label_bias", {"run_settings": pa.Table.from_pylist(given)}, ["tuned_pairs"], {"": "from tuned_pairs"}
        )
        assert [(row["run"], row["other_run"]) for row in found[""].to_pylist()] == [(expected, "small-chat")]
    [macro_f1, rsd, bias_score] = charts["models"].spec["concat"]
    lines, marks = macro_f1["layer"]
    looks = {channel: marks["encoding"][channel]["scale"] for channel in ("color", "fill", "shape")}
    dashes = lines["encoding"]["strokeDash"]["scale"]
    names = ["small (1K)", "small-chat (1K)", "large (3M)", "other (2K)"]
    assert [scale["domain"] for scale in (*looks.values(), dashes)] == [names] * 4
    colors, shapes = looks["color"]["range"], looks["shape"]["range"]
    assert colors == [lighter(COLORS[0], 0.5), lighter(COLORS[0], 0.5), COLORS[0], COLORS[1]]
    assert looks["fill"]["range"] == [colors[0], "#ffffff", *colors[2:]]
    assert (shapes[0] == shapes[1] != shapes[2], dashes["range"][1] != dashes["range"][0]) == (True, True)
    assert dashes["range"][0] == dashes["range"][2] == dashes["range"][3]
    for panel, metric in zip((macro_f1, rsd, bias_score), ("macro_f1", "rsd", "bias_score"), strict=True):
        drawn = {(row["series"].split(" ")[0], row["x"]): row["y"] for row in panel["data"]["values"]}
        assert drawn == {(row["run"], row["n_demos"]): row[metric] for row in rows}
    grid = charts["methods_a"].spec
    assert (grid["columns"], [view["title"][:5] for view in grid["concat"]]) == (
        3,
        ["small", "small", "large", *[""] * 6],
    )
    ends = {json.dumps(view["layer"][0]["encoding"]["y"]["scale"]) for view in grid["concat"][3:6]}
    assert len(ends) == 1, "panels of one metric have one scale"
    tex = (tmp_path / "out" / "label_bias_by_model.tex").read_text().splitlines()
    assert (tex[0][:15], tex[-1], tex[2].count(" & ")) == (r"\begin{tabular}", r"\end{tabular}", tex[4].count(" & "))
    assert r"n\_demos" in tex[2]


def test_runs_of_other_kinds_have_tables_too(tmp_path: Path, ask: Callable[..., Any]) -> None:
    first = make(MajorityPlan(("likelihood",)), tmp_path / "first")
    made = ask("figures", first, shutil.copytree(first, tmp_path / "other"), "--out", tmp_path / "out")
    assert (made.code, (tmp_path / "out" / "majority_by_model.md").exists()) == (0, True)
    assert (tmp_path / "out" / "majority_bias_comparison.md").exists()
    run = make_qa_run(tmp_path / "run", heuristics=["ans_len"])
    assert ask("figures", run.uri, "--out", tmp_path / "qa").code == 0
    head = "| model | dataset | heuristic | significance | worse EM (%) | p | detectable | finding |"
    assert (tmp_path / "qa" / "qa_by_model.md").read_text().startswith(head)


def test_mistakes_are_one_message(runs: list[str], tmp_path: Path, ask: Callable[..., Any]) -> None:
    (tmp_path / "file").touch()
    _, instruct = copy_older_run("instruct", tmp_path)
    _, qa = copy_older_run("qa_bias", tmp_path)
    out = ["--out", tmp_path / "out"]
    for arguments, said in (
        ([runs[0], "--out", tmp_path / "file"], "is no folder that can be written into; name another\n"),
        ([runs[0], *out, "--format", "tiff"], "'tiff' is not one of"),
        ([instruct, *out], "is of the kind instruct, which has no metrics; name another directory\n"),
        ([runs[0], qa, *out], "name runs of one kind"),
        ([runs[0], *out, "--tables", "csv,xls"], "--tables csv,xls: xls is not one of csv, md, tex\n"),
    ):
        made = ask("figures", *arguments)
        assert (made.code, made.out) == (2, "")
        assert said in made.err or said in " ".join(re.sub("│", "", made.err).split())
    assert not (tmp_path / "out").exists()
