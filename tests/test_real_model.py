"""SmolLM2-135M-Instruct on real data, by the specs of docs/results made small, against golden numbers (make real)."""

import gzip
import os
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.runs import run_spec
from biaseval.spec import load_spec
from tests import real_model
from tests.inprocess import in_this_process

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif("BIASEVAL_REAL" not in os.environ, reason="fetches a model and takes minutes; use make real"),
]
SPECS = Path(__file__).parents[1] / "docs" / "results"
TWO = "tasks.include=[task391_*, task843_*]"
SMALL = ("tasks.max_eval=60", "prompt.n_demos=[0, 4]", "prompt.demo_sets=1")
LABELS = "select n_demos, method, bias_score, accuracy from label_bias_by_model where suite = 'all'"
ATTRIBUTES = """
select 'squad', heuristic, avg(value) filter (is_measured), count(*) filter (is_measured) / 600 from qa_attributes
group by all"""


@pytest.fixture(scope="session")
def smol() -> Path:
    """Return the model's folder, made from packages the first time, outside the repository."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "biaseval-tests"
    folder = cache / "SmolLM2-135M-Instruct"
    if not folder.is_dir():
        real_model.main(cache / "unfinished")
        (cache / "unfinished").rename(folder)
    return folder


CASES = {
    "plain": ("label-bias", (TWO, *SMALL), LABELS, 0.002,
        "0 bc 0.0570 0.358; 0 cc 0.0954 0.392; 0 dc 0.1469 0.325; 0 none 0.3013 0.325; 4 bc 0.0078 0.408; 4 "
        "cc 0.0621 0.333; 4 dc 0.0559 0.317; 4 looc 0.0779 0.375; 4 none 0.2394 0.358"),
    "chat": ("chat", (TWO, *SMALL), LABELS, 0.002,
        "0 bc 0.0077 0.400; 0 cc 0.0894 0.342; 0 dc 0.0303 0.375; 0 none 0.1614 0.483; 4 bc 0.0119 0.525; 4 "
        "cc 0.0261 0.550; 4 dc 0.0310 0.508; 4 looc 0.0828 0.442; 4 none 0.1031 0.350"),
    "lora": ("lora", (*SMALL, "tasks.include=[task391_*]", "prompt.n_demos=[4]"), LABELS, 0.05,
        "4 cc 0.0827 0.417; 4 dc 0.0681 0.417; 4 looc 0.0661 0.417; 4 lora 0.0974 0.633; 4 lora+cc 0.0553 "
        "0.650; 4 lora+dc 0.0124 0.633; 4 lora+looc 0.0319 0.467; 4 none 0.4104 0.367"),
    "boolq": ("boolq", ("data.test_rows=40", "prompt.n_demos=10", "seeds=[0, 1]"),
        "select predict, method, mean_f1, accuracy from majority_by_model", 0.002,
        "likelihood none 0.5006 0.558"),
    "heuristics": ("squad", ("models=[{name: people, annotators: true}]", "heuristics=[sim_ents, subj_pos]"),
        ATTRIBUTES, 0.002, "squad sim_ents 3.1150 1.000; squad subj_pos 1.2827 0.560"),
}  # fmt: skip
"""By name: spec, changes, query of two keys and two numbers, tolerance of the first, and golden values."""


@pytest.mark.parametrize("name", CASES)
def test_a_real_model_has_its_golden_numbers(
    name: str, smol: Path, shared: Path, english_pipeline: str, tmp_path: Path
) -> None:
    spec, changes, asked, tolerance, golden = CASES[name]
    data = shared / "data"
    with gzip.open(data / "qa" / "squad_dev.jsonl.gz", "rt", encoding="utf-8") as file:
        (tmp_path / "dev.jsonl").write_text("".join(file.read().splitlines(keepends=True)[::17][:600]))
    text = {"text.nltk_data": data / "nltk_data", "text.spacy": english_pipeline}
    tasks = {"tasks.path": data / "superni" / "tasks", "tasks.templates": data / "superni" / "templates.csv"}
    places = {
        "squad": dict.fromkeys(("datasets.train", "datasets.in_distribution.squad"), tmp_path / "dev.jsonl") | text,
        "boolq": {"model.path": smol, "data.train": data / "majority" / "boolq" / "train.jsonl"},
    }  # fmt: skip
    given = [f"{key}={value}" for key, value in places.get(spec, {"model.path": smol} | tasks).items()]
    with in_this_process():
        run = run_spec(load_spec(SPECS / f"{spec}.yaml", [*given, *changes]), str(tmp_path / "run"))
    found = {f"{one} {other}": numbers for one, other, *numbers in
             (row.values() for row in query([run.uri], asked).to_pylist())}  # fmt: skip
    told = "; ".join(f"{key} {value:.4f} {share:.3f}" for key, (value, share) in found.items())
    for one in golden.split("; "):
        *key, value, share = one.split()
        assert found[" ".join(key)][0] == pytest.approx(float(value), abs=tolerance), told
        assert found[" ".join(key)][1] == pytest.approx(float(share), abs=tolerance + 0.02), told
    assert len(found) == len(golden.split("; ")), told
