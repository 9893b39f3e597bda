"""The wheel is whole: installed into an empty environment, it runs its own demo there, far from the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "platform" / "biaseval"

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]


def _call(*command: str | Path, cwd: Path) -> str:
    """Return what a command prints that knows nothing of the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    offline = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    _call(sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", ".", ROOT, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """Return an environment that has biaseval from the wheel, and all else from where the tests run."""
    folder = wheel.parent / "environment"
    venv.create(folder)
    own = {"base": str(folder), "platbase": str(folder)}
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    # Ahead of the dependencies, among which pip would find the checkout's installation and take it for this one's.
    _call(*pip, wheel, cwd=folder)
    dependencies = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    Path(sysconfig.get_path("purelib", vars=own), "dependencies.pth").write_text("\n".join(sorted(dependencies)))
    return folder


def test_the_wheel_holds_every_file_of_the_package_and_of_the_sql(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    sql = [path for path in (ROOT / "analytics").rglob("*") if path.is_file()]
    assert packed == {
        *(f"biaseval/{path.relative_to(PACKAGE).as_posix()}" for path in files),
        *(f"biaseval/{path.relative_to(ROOT).as_posix()}" for path in sql),
    }
    for needed in ("py.typed", "demo/model/model.safetensors", "analytics/marts/label_bias_by_model.sql"):
        assert f"biaseval/{needed}" in packed
    assert any(name.endswith(".html.j2") for name in packed)


def test_the_demo_runs_from_the_wheel_alone(environment: Path, tmp_path: Path) -> None:
    program = environment / "bin" / "biaseval"
    places = "biaseval.__file__, demo.SPEC_PATH, demo.MODEL_PATH, sep='\\n'"
    asked = f"import biaseval, biaseval.demo as demo; print({places})"
    package, spec, model = _call(environment / "bin" / "python", "-c", asked, cwd=tmp_path).splitlines()
    assert all(Path(path).is_relative_to(environment) for path in (package, spec, model))
    # Tasks and model are named by the spec; SQL and templates are those beside the package, or none.
    smallest = ("tasks.max_eval=20", "prompt.n_demos=[0]", "calibration=[cc]")
    settings = [word for setting in smallest for word in ("--set", setting)]
    printed = _call(program, "run", spec, "--run-dir", "run", *settings, cwd=tmp_path)
    assert printed.endswith(f"report: {tmp_path}/run/report.html\n")
    resolved = yaml.safe_load((tmp_path / "run" / "spec.yaml").read_text())
    assert resolved["model"]["path"] == model
    assert Path(resolved["tasks"]["path"]).is_relative_to(environment)
    query = "select method, n_tasks, n_rows from label_bias_by_model where suite = 'all' order by all"
    rows = json.loads(_call(program, "sql", "run", query, "--format", "json", cwd=tmp_path))
    assert rows == [{"method": method, "n_tasks": 6, "n_rows": 120} for method in ("cc", "none")]
    assert "Label bias of demo" in (tmp_path / "run" / "report.html").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"run"}
