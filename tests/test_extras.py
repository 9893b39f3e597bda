"""A base installation measures label bias; what else needs more packages says which, before anything is planned."""

import subprocess
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from biaseval.demo import MODEL_PATH

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("deepspeed", "peft", "nltk", "sklearn", "scikit_learn", "spacy", "polars", "lm_eval")
"""Packages, and distributions, of the extras."""

BEGIN = """
from tests.inprocess import in_this_process
from biaseval.errors import InputError
from biaseval.runs import (describe, run_spec)
from biaseval.spec import load_spec
"""

LORA = f"""
kind: label_bias
name: x
model: {{path: {MODEL_PATH}}}
data: {{train: {ROOT / "examples" / "reviews.csv"}, label: praise, fields: {{input: review}}}}
lora: {{}}
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment that has all packages of this one, but for those of the extras."""
    folder = tmp_path_factory.mktemp("base") / "environment"
    venv.create(folder)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name.lower().split("-")[0] not in EXTRAS and not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
    (packages / "checkout.pth").write_text(f"{ROOT}\n{ROOT / 'platform'}\n")
    return folder / "bin" / "python"


def _run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, "-c", BEGIN + code], cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.slow
def test_label_bias_is_measured_without_any_extra(base: Path, tmp_path: Path) -> None:
    done = _run(
        base,
        f"""
with in_this_process():
    run_spec(load_spec("examples/reviews.yaml", ["prompt.n_demos=[0]"]), {str(tmp_path / "run")!r})
""",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("content", ["lora", "qa", "harness"])
def test_what_is_not_installed_is_named_with_its_extra(base: Path, tmp_path: Path, content: str) -> None:
    if content == "lora":
        spec = tmp_path / "lora.yaml"
        spec.write_text(LORA)
        needed, extra = "lora needs peft and deepspeed, which are", "train"
    elif content == "harness":
        spec = tmp_path / "harness.yaml"
        spec.write_text(f"kind: label_bias\nname: x\nmodel: {{path: {MODEL_PATH}}}\ndata: {{lm_eval: task.yaml}}\n")
        needed, extra = "data.lm_eval needs lm_eval, which is", "harness"
    else:
        spec = ROOT / "examples" / "two-systems.yaml"
        needed, extra = "heuristics need nltk, sklearn and spacy, which are", "qa"
    how = f"run pip install '.[{extra}]' in the source folder of biaseval"
    expected = [f"{needed} not installed; {how}"]
    done = _run(
        base,
        f"""
overrides = [] if {content != "qa"} else ["heuristics=[ans_pos, cos_sim, sim_ents]"]
for act in (describe, lambda spec: run_spec(spec, {str(tmp_path / "run")!r}, page=False)):
    try:
        act(load_spec({str(spec)!r}, overrides))
    except InputError as error:
        print(error)
""",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == expected * 2
    assert not (tmp_path / "run").exists()


def test_the_tests_have_every_extra_that_a_spec_may_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "biaseval[train,qa,harness]" in extras["dev"]
