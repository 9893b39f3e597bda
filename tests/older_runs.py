"""Run directories that an older version made (``fixtures/older_runs``), copied for a test.

Files there hold ``@ROOT@`` for the run's folder and ``@DEMO@`` for the folder of the bundled demo. Their
``results.duckdb``, a megabyte that nothing reads but whoever opens it, was left out: copies have an empty one.
"""

import html
import re
import shutil
from pathlib import Path

import biaseval
from biaseval.runs import report_run

FIXTURES = Path(__file__).parent / "fixtures" / "older_runs"
DEMO = Path(biaseval.__file__).resolve().parent / "demo"
NAMES = ("label_bias", "label_bias_lora", "majority_bias", "qa_bias", "instruct", "score")


def copy_older_run(name: str, folder: Path) -> tuple[Path, Path]:
    """Return (spec file, run directory) of a copy below ``folder``; for ``score`` the file of prompts is the first."""
    root = (folder / name).resolve()
    shutil.copytree(FIXTURES / name, root)
    places = {"@ROOT@": str(root), "@DEMO@": str(DEMO)}
    for path in (each for each in root.rglob("*") if each.suffix in {".yaml", ".json"}):
        text = before = path.read_text()
        for placeholder, place in places.items():
            text = text.replace(placeholder, place)
        if text != before:
            path.write_text(text)
    if (root / "run" / "marts").is_dir():
        (root / "run" / "results.duckdb").touch()
    return root / ("prompts.jsonl" if name == "score" else "spec.yaml"), root / "run"


def report_text(page: Path) -> str:
    """Return the words and numbers of a report, a line for each piece of text."""
    source = re.sub(r"<(style|script).*?</\1>", "", page.read_text(), flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "\n", source))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def older_report_text(name: str, folder: Path) -> str:
    """Return that of the stored report of a run that was copied below ``folder``."""
    text = (FIXTURES / name / "report.txt").read_text()
    return text.replace("@ROOT@", str(folder.resolve())).replace("@DEMO@", str(DEMO))


def renew_report_text(name: str, folder: Path) -> None:
    """Store the words and numbers that the report of a run has now; ``folder`` is empty."""
    _, run_dir = copy_older_run(name, folder)
    report_run(run_dir)
    text = report_text(run_dir / "report.html").replace(str(DEMO), "@DEMO@").replace(str(folder.resolve()), "@ROOT@")
    (FIXTURES / name / "report.txt").write_text(text)


def command_of(name: str, spec: Path, run_dir: Path) -> list[str]:
    """Return the arguments of ``biaseval`` that made the run, and resume it."""
    if name == "score":
        return ["score", "--model", str(DEMO / "model"), "--prompts", str(spec), "--out", str(run_dir)]
    command = ["train", "instruct"] if name == "instruct" else ["run"]
    return [*command, str(spec), "--run-dir", str(run_dir)]
