"""A base installation measures label bias; what else needs more packages says which, before anything is planned."""

import subprocess
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from biaseval.demo import MODEL_PATH

pytestmark = pytest.mark.slow

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


def test_what_is_not_installed_is_named_with_its_extra(base: Path, tmp_path: Path) -> None:
    lora, harness = tmp_path / "lora.yaml", tmp_path / "harness.yaml"
    lora.write_text(LORA)
    harness.write_text(f"kind: label_bias\nname: x\nmodel: {{path: {MODEL_PATH}}}\ndata: {{lm_eval: task.yaml}}\n")
    specs = {
        lora: ("lora needs peft and deepspeed, which are", "train"),
        harness: ("data.lm_eval needs lm_eval, which is", "harness"),
        ROOT / "examples" / "two-systems.yaml": ("heuristics need nltk, sklearn and spacy, which are", "qa"),
    }
    done = _run(
        base,
        f"""
for spec in {list(map(str, specs))!r}:
    overrides = ["heuristics=[ans_pos, cos_sim, sim_ents]"] if "systems" in spec else []
    for act in (describe, lambda spec: run_spec(spec, {str(tmp_path / "run")!r}, page=False)):
        try:
            act(load_spec(spec, overrides))
        except InputError as error:
            print(error)
""",
    )
    assert done.returncode == 0, done.stderr[-2000:]
    how = "not installed; run pip install '.[{}]' in the source folder of biaseval"
    expected = [f"{needed} {how.format(extra)}" for needed, extra in specs.values()]
    assert done.stdout.splitlines()[::2] == done.stdout.splitlines()[1::2] == expected
    assert not (tmp_path / "run").exists()


def test_the_tests_have_every_extra_that_a_spec_may_need() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert "biaseval[train,qa,harness]" in extras["dev"]
