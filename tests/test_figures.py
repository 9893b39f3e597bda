"""`biaseval figures`: figures and tables of finished runs as files."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from biaseval.analysis import query
from biaseval.report.drawing import Drawing
from tests.commands import call
from tests.compare.runs import label_plan, make
from tests.conftest import ROOT
from tests.older_runs import copy_older_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [make(label_plan({"task1": hits}), folder / name) for name, hits in (("a", "11110000"), ("b", "11111100"))]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("ending", "beginning"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_panel_is_the_same_bytes_each_time(ending: str, beginning: bytes) -> None:
    def plot(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1])
        axes.set_title("a title")

    first, again = (Drawing("panel", plot).file(ending) for _ in range(2))
    assert first.startswith(beginning)
    assert first == again


def test_a_run_gives_what_its_report_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run = copy_older_run("label_bias", tmp_path)
    call(capsys, monkeypatch, "report", str(run))
    made = call(capsys, monkeypatch, "figures", str(run), "--out", str(tmp_path / "out"))
    assert (made.code, made.err) == (0, "")
    files = _files(tmp_path / "out")
    assert sorted(made.out.splitlines()) == sorted(str(tmp_path / "out" / name) for name in files)
    assert _files(run / "figures") == {name: content for name, content in files.items() if name.endswith(".svg")}
    captions = files["captions.md"].decode().strip().split("\n\n")
    drawn = [Path(uri).name for uri in made.out.splitlines() if uri.endswith(".svg")]
    assert [line.partition("`: ")[0] for line in captions] == [f"`{name}" for name in drawn]
    assert all(len(line.partition("`: ")[2]) > 20 for line in captions)


def test_a_table_without_rows_is_no_file(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(capsys, monkeypatch, "figures", runs[0], "--out", str(tmp_path))
    assert not query([runs[0]], "from label_bias_format_spread").num_rows
    names = [path.name for path in tmp_path.iterdir()]
    assert not [name for name in names if name.startswith("label_bias_format_spread")]
    assert "label_bias_by_model.md" in names


def test_every_figure_of_a_page_has_a_caption() -> None:
    for page in (ROOT / "platform" / "biaseval" / "report").glob("*.j2"):
        for figure in re.findall(r"<figure.*?</figure>", page.read_text(), re.DOTALL):
            assert "<figcaption>" in figure, (page.name, figure[:200])


def test_tables_are_the_marts(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call(capsys, monkeypatch, "figures", runs[0], "--out", str(tmp_path))
    mart = query([runs[0]], "from label_bias_by_model order by all")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "label_bias_by_model.csv").read_text())))
    assert list(rows[0]) == mart.column_names
    assert [float(row["rsd"]) for row in rows] == mart["rsd"].to_pylist()
    lines = (tmp_path / "label_bias_by_model.md").read_text().splitlines()
    assert lines[0].startswith("| n_demos | method | macro_f1 | accuracy | is_above_constant | rsd |")
    assert lines[2].startswith("| 0 | none | ")
    assert f"| {mart['accuracy'][0].as_py():.4f} |" in lines[2]


def test_several_runs_have_folders_and_what_compares_them(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = call(capsys, monkeypatch, "figures", *runs, "--out", str(tmp_path), "--format", "png", "--json")
    assert made.code == 0, made.err
    files = _files(tmp_path)
    assert {str(tmp_path / name) for name in files} == set(json.loads(made.out)["files"])
    assert {"a/rsd.png", "b/rsd.png", "differences_0.png", "label_bias_comparison.csv"} <= set(files)
    assert files["label_bias_by_model.csv"].decode().splitlines()[0].startswith('"run"')
    lines = files["label_bias_by_model.md"].decode().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| a", "| b"]


def test_majority_runs_of_one_model_say_what_cannot_be_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first = copy_older_run("majority_bias", tmp_path)
    assert call(capsys, monkeypatch, "report", str(first)).code == 0
    other = shutil.copytree(first, tmp_path / "other")
    made = call(capsys, monkeypatch, "figures", str(first), str(other), "--out", str(tmp_path / "out"))
    assert made.code == 0
    assert "note: no figures of the models beside each other: " in made.err
    assert (tmp_path / "out" / "majority_by_model.md").exists()


def test_qa_runs_have_tables_of_heuristics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, run = copy_older_run("qa_bias", tmp_path)
    assert call(capsys, monkeypatch, "report", str(run)).code == 0
    assert call(capsys, monkeypatch, "figures", str(run), "--out", str(tmp_path / "out")).code == 0
    lines = (tmp_path / "out" / "qa_by_model.md").read_text().splitlines()
    assert lines[0].startswith(
        "| model | dataset | heuristic | significance | worse EM (%) | p | detectable | finding |"
    )


def test_mistakes_are_one_message(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    taken = call(capsys, monkeypatch, "figures", runs[0], "--out", str(tmp_path / "file"))
    assert (taken.code, taken.out) == (2, "")
    assert taken.err == f"error: --out {tmp_path / 'file'}: is no folder that can be written into; name another\n"
    unknown = call(capsys, monkeypatch, "figures", runs[0], "--out", str(tmp_path), "--format", "tiff")
    assert unknown.code == 2
    assert "'tiff' is not one of" in " ".join(re.sub("│", "", unknown.err).split())
    _, instruct = copy_older_run("instruct", tmp_path)
    without = call(capsys, monkeypatch, "figures", str(instruct), "--out", str(tmp_path / "out"))
    assert without.code == 2
    assert without.err.endswith("is of the kind instruct, which has no metrics; name another directory\n")
    _, qa = copy_older_run("qa_bias", tmp_path)
    mixed = call(capsys, monkeypatch, "figures", runs[0], str(qa), "--out", str(tmp_path / "out"))
    assert (mixed.code, "name runs of one kind" in mixed.err) == (2, True)
    assert not (tmp_path / "out").exists()
