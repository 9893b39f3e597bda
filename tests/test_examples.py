"""The examples run, and show what is kept in them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from biaseval.analysis import query
from biaseval.runs import run_spec
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.notebooks import code_cells, read, run

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
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


def _measured(name: str, run_dir: Path, *changes: str) -> Run:
    spec = load_spec(EXAMPLES / name, changes)
    return run_spec(spec, str(run_dir))


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
    run = _measured("chat.yaml", tmp_path / "run", f"model.path={model}", "model.dtype=float32")
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
