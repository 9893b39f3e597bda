"""Whole majority-bias runs on a real Ray, with a tiny random model: every setting and way, and resumable."""

import re
import shutil
from itertools import product
from pathlib import Path

import duckdb
import pytest
import torch
import yaml

from biaseval.analysis import query
from biaseval.models import ModelSource, load_model, load_tokenizer
from biaseval.pipelines.directory import read_plan, read_spec
from biaseval.prompting.matching import match_label
from biaseval.runs import run_spec, write_report
from biaseval.runs.commands import claimed_run
from biaseval.runs.kinds import kind_of
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.majority_bias.datafiles import boolq_rows, write_jsonl
from tests.test_pipelines import digests, run_beside

pytestmark = pytest.mark.ray

N_TEST = 12
SETTINGS = ("0/100", "50/50", "100/0")
SEEDS = (0, 1)
WAYS = (("likelihood", "none"), ("likelihood", "looc"), ("generate", "none"), ("constrained", "none"))


SPEC = """
kind: majority_bias
name: tiny
data: {train: train.jsonl, test: test.jsonl}
prompt: {preset: boolq, n_demos: 4}
proportions: [{"True": 0.0, "False": 1.0}, {"True": 0.5, "False": 0.5}, {"True": 1.0, "False": 0.0}]
seeds: [0, 1]
predict: [likelihood, generate, constrained]
calibration: [looc]
execution: {part_rows: 20}
"""


def write_spec(folder: Path, model: Path) -> Path:
    write_jsonl(folder / "train.jsonl", boolq_rows("train", 10, 9))
    write_jsonl(folder / "test.jsonl", boolq_rows("test", 7, N_TEST - 7))
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(SPEC), "model": {"path": str(model)}}))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path, ray_cluster: None) -> tuple[Path, Path]:
    """Return (spec file, run directory) of an undisturbed run."""
    return run_beside(write_spec(tmp_path_factory.mktemp("finished"), tiny_llama))


def test_the_marts_hold_every_setting_seed_instruction_and_way(finished: tuple[Path, Path]) -> None:
    _, run_dir = finished
    with duckdb.connect(str(run_dir / "results.duckdb"), read_only=True) as connection:
        columns = "setting, seed, instruction, predict, method, n_rows"
        rows = connection.execute(f"select {columns} from majority_by_setting").fetchall()
    asked = product(SETTINGS, SEEDS, (True, False), WAYS)
    assert sorted(rows) == sorted((*context, *way, N_TEST) for *context, way in asked)
    [model] = query([str(run_dir)], "select distinct n_settings, n_seeds from majority_by_model").to_pylist()
    assert model == {"n_settings": len(SETTINGS), "n_seeds": len(SEEDS)}


def test_the_report_shows_every_way_and_setting_the_same_each_time(finished: tuple[Path, Path], tmp_path: Path) -> None:
    again = tmp_path / "run"
    shutil.copytree(finished[1], again)
    page = (again / "report.html").read_text()
    for text in (*SETTINGS, "label likelihood", "LOOC", "free generation", "constrained generation", "RB@10"):
        assert text in page
    assert not re.search(r">\s*(None|nan)\s*<", page)
    assert page.count('<img src="data:') == len(WAYS) == len(list((again / "figures").glob("f1_*.svg")))
    before = digests(again / "figures")
    (again / "report.html").unlink()
    write_report(str(again))
    assert digests(again / "figures") == before
    assert (again / "report.html").read_text() == page


def test_likelihood_predictions_are_those_of_plain_passes(finished: tuple[Path, Path], tiny_llama: Path) -> None:
    """The whole text of each (prompt, label) goes through the model alone; the label's tokens and EOS are averaged."""
    run_dir = finished[1]
    predicted = query(
        [run_dir],
        "select c.text || p.input_text as text, p.labels, m.prediction from majority_predictions m "
        "join prompts p using (prompt_id) join contexts c using (context_id) "
        "where m.predict = 'likelihood' and m.method = 'none' order by m.prompt_id",
    ).to_pylist()[::5]
    model, tokenizer = load_model(ModelSource(str(tiny_llama))), load_tokenizer(ModelSource(str(tiny_llama)))
    for row in predicted:
        n_context = len(tokenizer(row["text"])["input_ids"])
        means = []
        for label in row["labels"]:
            ids = torch.tensor([tokenizer(f"{row['text']} {label}")["input_ids"] + [tokenizer.eos_token_id]])
            with torch.no_grad():
                logprobs = model(input_ids=ids).logits[0, :-1].log_softmax(dim=-1)
            own = logprobs.gather(-1, ids[0, 1:, None])[n_context - 1 :, 0]
            means.append(float(own.mean()))
        assert row["prediction"] == row["labels"][max(range(len(means)), key=means.__getitem__)]
    assert len(predicted) > 20


def test_generated_outputs_are_those_of_the_model_matched(finished: tuple[Path, Path], tiny_llama: Path) -> None:
    run = Run.open(str(finished[1]))
    texts = {row["context_id"]: row["text"] for row in run.read_table("contexts").to_pylist()}
    found = {row["prompt_id"]: row for row in run.read_table("generations").to_pylist() if row["mode"] == "generate"}
    model, tokenizer = load_model(ModelSource(str(tiny_llama))), load_tokenizer(ModelSource(str(tiny_llama)))
    for prompt in run.read_table("prompts").to_pylist()[::9]:
        if prompt["purpose"] == "majority":
            ids = tokenizer(texts[prompt["context_id"]] + prompt["input_text"], return_tensors="pt")["input_ids"]
            options = {"max_new_tokens": 2, "do_sample": False, "pad_token_id": 0}
            whole = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **options)
            text = tokenizer.decode(whole[0, ids.shape[1] :], skip_special_tokens=True)
            output = found[prompt["prompt_id"]]
            assert output["text"] == text
            assert output["prediction"] == match_label(text, prompt["labels"])


def test_only_what_is_asked_is_computed(finished: tuple[Path, Path], tmp_path: Path, here: None) -> None:
    spec, run_dir = finished
    only = ["calibration=[]", "prompt.instruction=[true]", "seeds=[0]"]
    tables = {}
    for predict in ("likelihood", "generate", "constrained"):
        with claimed_run(load_spec(spec, [f"predict=[{predict}]", *only]), str(tmp_path / predict)) as run:
            planned = read_spec(run)
            [scoring] = kind_of(planned).stages(run, planned, read_plan(run))
            tables[predict] = {name.partition("/")[0] for unit in scoring.units for name in unit.files}
    # Constrained generation ends where a label does: labels decide, by their scores.
    both = {"generations", "label_scores"}
    assert tables == {"likelihood": {"label_scores"}, "generate": {"generations"}, "constrained": both}
    run_spec(load_spec(spec, ["predict=[generate]", *only]), str(tmp_path / "generate"), page=False)
    assert not (tmp_path / "generate" / "label_scores").exists()
    asked = "where predict = 'generate' and instruction and seed = 0"
    shown = f"select setting, weighted_f1 from majority_by_setting {asked}"
    expected = query([str(run_dir)], shown).to_pylist()
    assert query([str(tmp_path / "generate")], shown).to_pylist() == expected
    assert len(expected) == len(SETTINGS)
    ways = query([str(tmp_path / "generate")], "select distinct predict from majority_by_setting").to_pylist()
    assert ways == [{"predict": "generate"}]
