"""The script for the first hour on a GPU, tried on the CPU: its steps end with numbers that are right."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import flops, gpu
from tests.bench.commands import first_gpu_hour as job
from tests.bench.gpu import STEPS, markdown

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
CPU = [
    "--device",
    "cpu",
    "--shape",
    "tiny",
    "--small",
    "tiny",
    "--rows",
    "3",
    "--seconds",
    "0.1",
    "--scenarios",
    "base",
]


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all steps but the benchmark, which has tests of its own, with the least work."""
    monkeypatch.setattr(flops, "_N_TRIALS", 1)
    for name, value in (("SHARED", (0, 7)), ("BUDGETS", (64, 128)), ("_N_REPEATS", 1), ("_N_LORA_STEPS", 3)):
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(gpu, "_FAMILIES", {"llama": gpu._FAMILIES["llama"]})
    monkeypatch.setattr(gpu, "DTYPES", {"cpu": ("float32",)})
    steps = ",".join(name for name in STEPS if name != "rates")
    monkeypatch.setattr(sys, "argv", ["first_gpu_hour.py", *CPU, "--steps", steps, "--out", str(tmp_path / "out.json")])
    job.main()
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    assert markdown(found) == (tmp_path / "out.md").read_text()
    return found


def test_the_steps_report_what_they_measure(report: dict[str, Any]) -> None:
    exact = report["exactness"]["llama"]["float32"]
    assert set(exact) == {"0", "7"}
    for own in exact.values():
        assert set(own) == {"rounding", "packed", "prefix_cache", "full_text"}
        assert max(own.values()) < 1e-4
    assert report["continuations"] | {"prompts": 6, "same": 6} == report["continuations"]
    assert report["reader"]["float32"]["same_answers"] == report["reader"]["float32"]["answers"] == 3
    assert report["packs"]["64"]["token_budget"] == 64
    assert len(report["lora"]["losses"]) == 3
    assert report["lora"]["losses"][-1] < report["lora"]["losses"][0]
    assert sum(kernel["share"] for kernel in report["profile"]["kernels"]) == pytest.approx(1, abs=0.3)
    assert {path["path"] for path in report["large_logits"].values() if isinstance(path, dict)} == {"packed"}
    assert "no limit" in report["memory"]["skipped"]
    assert "needs a CUDA GPU" in report["int8"]["error"]


def test_the_script_needs_neither_ray_nor_duckdb_nor_pydantic(tmp_path: Path) -> None:
    names = ("ray", "duckdb", "pydantic", "typer", "deepspeed")
    hidden = f"import sys, runpy\nsys.path.insert(0, {str(ROOT / 'jobs')!r})\n"
    hidden += f"for name in {names}: sys.modules[name] = None\n"
    arguments = ["first_gpu_hour.py", *CPU, "--steps", "continuations", "--out", str(tmp_path / "out.json")]
    script = str(ROOT / "jobs" / "first_gpu_hour.py")
    code = f"{hidden}sys.argv = {arguments}\nrunpy.run_path({script!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out.json").read_text())["continuations"]["same"] == 6


def test_unknown_steps_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["first_gpu_hour.py", *CPU, "--steps", "exactness,speed"])
    with pytest.raises(SystemExit) as ended:
        job.main()
    assert ended.value.code == 2
    assert "--steps: speed is not one of machine, exactness" in capsys.readouterr().err
