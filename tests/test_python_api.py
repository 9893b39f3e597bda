"""The Python API and the examples."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
import yaml

import biaseval
from biaseval.analysis import query
from biaseval.demo import SPEC_PATH
from biaseval.errors import InputError, how_to_install
from biaseval.runs import run_spec
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.compare.runs import label_plan, make
from tests.notebooks import code_cells, read, run
from tests.test_cli import HEAVY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    return [make(label_plan({"task1": hits}), folder / name) for name, hits in (("a", "11110000"), ("b", "11111100"))]


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, json, biaseval; print(json.dumps([dir(biaseval), sorted(sys.modules)]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    public, modules = json.loads(done.stdout)
    assert public == ["open", "run"]
    assert not {module.split(".")[0] for module in modules} & {*HEAVY, "duckdb", "pyarrow", "numpy", "pydantic", "yaml"}
    assert [module for module in modules if module.startswith("biaseval.")] == []


def test_a_run_is_asked_by_the_name_of_a_mart_or_by_a_query(runs: list[str]) -> None:
    opened = biaseval.open(runs[0])
    wanted = query([runs[0]], "from label_bias_by_model")
    assert opened.arrow("label_bias_by_model").equals(wanted)
    assert opened.arrow("select count(*) as n from tasks").to_pylist() == [{"n": 1}]
    assert opened.sql("from label_bias_by_task").filter("n_rows > 0").fetchall()
    frame = opened.df("label_bias_by_model")
    assert list(frame.columns) == wanted.column_names
    assert frame["rsd"].tolist() == wanted["rsd"].to_pylist()
    assert repr(opened) == "<biaseval results of a>"


def test_queries_write_no_file_unless_they_may(runs: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("a\n1\n")
    for sql, message in ((f"copy tasks to '{out}'", "only reads"), (f"from '{out}'", "--with FILE")):
        with pytest.raises(InputError, match=message):
            biaseval.open(runs[0]).sql(sql)
    assert biaseval.open(runs[0], files=[out]).arrow(f"from '{out}'").num_rows == 1
    biaseval.open(runs[0], unsafe=True).sql(f"copy tasks to '{out}'")
    assert "task1" in out.read_text()


@pytest.mark.parametrize("is_list", [False, True])
def test_several_runs_have_a_column_run(runs: list[str], is_list: bool) -> None:
    paths = [Path(run) for run in runs]
    opened = biaseval.open(paths) if is_list else biaseval.open(*paths)
    rows: Any = opened.df("select run, accuracy from label_bias_by_model order by all")
    assert rows.values.tolist() == [["a", 0.5], ["b", 0.75]]
    assert opened.runs == ["a", "b"]
    pytest.importorskip("polars")
    frame = opened.polars("select rsd from label_bias_by_task order by all")
    assert (
        pa.table(frame.to_arrow()).to_pylist()
        == query(runs, "select rsd from label_bias_by_task order by all").to_pylist()
    )


def test_what_is_not_installed_is_named_with_its_extra(runs: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = biaseval.open(runs[0])
    for package, asked in (("pandas", opened.df), ("polars", opened.polars)):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(InputError) as raised:
            asked("tasks")
        assert str(raised.value) == f"{package} is not installed; {how_to_install('notebook')}"


def test_bad_input_is_an_error_of_ours(tmp_path: Path) -> None:
    demo, run = yaml.safe_load(SPEC_PATH.read_text()), tmp_path / "run"
    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: biaseval.open(tmp_path), "is not a run directory"),
        (lambda: biaseval.open([]), "no run directory is named"),
        (lambda: biaseval.open(), "no run directory is named"),
        (lambda: biaseval.run({"name": "x"}, run), "kind: is missing"),
        (lambda: biaseval.run(demo, run, sed=3), "sed: unknown key; did you mean seed"),
        (lambda: biaseval.run(demo, run, name="😀"), "name: string should match pattern .*, found '😀'; change it"),
    ]
    for act, message in cases:
        with pytest.raises(InputError, match=message):
            act()
    assert not run.exists()


EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_keeps(
    path: Path, here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = read(path)
    kept = ["".join(output["data"]["text/plain"]) for cell in code_cells(notebook) for output in cell["outputs"]]
    assert len(kept) == len(code_cells(notebook))
    assert [shown["text/plain"] for shown in run(notebook)] == kept
    assert [folder.name for folder in tmp_path.iterdir()] == ["runs"]


def _measured(name: str, run_dir: Path, *changes: str, page: bool = False) -> Run:
    spec = load_spec(EXAMPLES / name, changes)
    return run_spec(spec, str(run_dir), page=page)


def test_a_csv_is_measured(here: None, tmp_path: Path) -> None:
    run = _measured("reviews.yaml", tmp_path / "run")
    found = query([run.uri], "from label_bias_by_model where suite = 'all'").to_pylist()
    settings = {(row["n_demos"], row["method"]) for row in found}
    assert settings == {(k, m) for k in (0, 2, 4) for m in ("none", "cc", "dc")}
    assert all(row["accuracy_low"] is not None for row in found)
    assert all(row["accuracy"] > 0.9 for row in found if row["method"] == "none")


def test_a_chat_is_measured(here: None, tiny_llama: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny_llama, tmp_path / "chat-model")
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}<assistant>"
    (model / "chat_template.jinja").write_text(template)
    run = _measured("chat.yaml", tmp_path / "run", f"model.path={model}", "model.dtype=float32", page=True)
    [context] = query([run.uri], "select text from contexts where n_demos = 0").to_pylist()
    assert context["text"].startswith("<system>You answer in one word.\n\nIs most of the review praise?")
    assert run.has("report.html")


def test_two_systems_differ_in_the_shortcut(here: None, tmp_path: Path) -> None:
    run = _measured("two-systems.yaml", tmp_path / "run")
    question = "select model from qa_bias_tests where is_supported and heuristic = 'ans_pos'"
    assert query([run.uri], question).to_pylist() == [{"model": "shortcut"}]


@pytest.mark.ray
def test_a_gate_measures_and_checks(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [str(EXAMPLES / "gate.sh"), str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ElementTree.parse(tmp_path / "run" / "gates.xml").getroot().get("failures") == "0"


def test_every_example_is_named() -> None:
    said = (EXAMPLES / "README.md").read_text()
    names = [path.name for path in EXAMPLES.iterdir() if path.suffix in (".yaml", ".sh", ".ipynb")]
    assert [name for name in names if name not in said] == []
