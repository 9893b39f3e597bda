"""Additions to runs of majority bias and of QA bias."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import InputError
from biaseval.runs import reanalyse_run, run_spec, run_status
from biaseval.spec import MajorityBiasSpec, load_spec
from tests.growth.runs import assert_same_answers, kept, rows
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl
from tests.test_pipelines import digests
from tests.test_qa_pipeline import make_bert

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.slow
def test_seeds_and_methods_are_added_to_a_run_of_majority_bias(tiny_llama: Path, tmp_path: Path) -> None:
    for role, prefix in (("train", "dog"), ("test", "cat")):
        write_jsonl(tmp_path / f"{role}.jsonl", boolq_rows(prefix, 8, 8))

    def spec(**changes: Any) -> MajorityBiasSpec:
        return boolq_spec(
            tmp_path, model={"path": str(tiny_llama)}, prompt={"n_demos": 2, "instruction": [False]},
            proportions=[{"True": 0.5, "False": 0.5}, {"True": 1.0}], predict=["likelihood"], **changes,
        )  # fmt: skip

    run = run_spec(spec(seeds=[0]), str(tmp_path / "run"), page=False)
    before = kept(run)
    more = spec(seeds=[0, 3], calibration=["cc"])
    run_spec(more, run.uri, page=False)
    assert before.items() <= kept(run).items()
    fresh = run_spec(more, str(tmp_path / "fresh"), page=False)
    assert_same_answers(
        *(run, fresh, "select setting, method, weighted_f1, n_rows from majority_by_setting order by all"),
        "select prompt_id, input_text from prompts order by prompt_id",
    )
    before = kept(run)
    adapted = spec(seeds=[0, 3], calibration=["cc"], lora={"precision": "float32", "n_examples": 4, "epochs": 1})
    run_spec(adapted, run.uri, page=False)
    assert before.items() <= kept(run).items()
    [counted] = rows(run, "select count(distinct adapter) as n from training")
    assert counted == {"n": 4}  # of two settings and two seeds
    assert {row["method"] for row in rows(run, "from majority_by_setting")} == {"none", "cc", "lora", "lora+cc"}


def _questions(folder: Path) -> None:
    lines = []
    for number in range(60):
        context = f"The mill of town {number} is old. " + "It has a roof. " * (number % 4)
        context += f"Its owner is Ann {number}."
        answer = f"Ann {number}"
        answers = {"text": [answer], "answer_start": [context.index(answer)]}
        question = {"id": f"q{number}", "question": f"Who owns the mill of town {number}?", "context": context}
        lines.append(json.dumps({**question, "answers": answers}))
    (folder / "dev.jsonl").write_text("\n".join(lines))
    for name, every in (("a", 2), ("b", 3), ("c", 4)):
        said = {f"q{number}": f"Ann {number}" if number % every else "Bo" for number in range(60)}
        (folder / f"{name}.json").write_text(json.dumps(said))


def _qa_spec(folder: Path, models: Sequence[str], heuristics: Sequence[str]) -> Any:
    content = {
        "kind": "qa_bias", "name": "mills",
        "models": [{"name": name, "predictions": {"dev": f"{name}.json"}} for name in models],
        "datasets": {"in_distribution": {"dev": "dev.jsonl"}}, "heuristics": list(heuristics),
        "bootstrap": {"trials": 20, "sample": 10}, "execution": {"part_rows": 25},
    }  # fmt: skip
    return _loaded(folder, content)


@pytest.mark.slow
def test_models_and_heuristics_are_added_to_a_run_of_qa_bias(tmp_path: Path) -> None:
    _questions(tmp_path)
    run = run_spec(_qa_spec(tmp_path, "a", ["word_dist"]), str(tmp_path / "run"), page=False)
    before = kept(run)
    more = _qa_spec(tmp_path, "ab", ["word_dist", "ans_pos", "cos_sim"])
    run_spec(more, run.uri, page=False)
    after = kept(run)
    assert {name: after[name] for name in before} == before
    assert len(run.parts("qa_attributes")) == 6
    measured = [stage.verb for stage in run_status(run.uri).stages if stage.verb.startswith("measured")]
    assert measured == ["measured by word_dist", "measured by ans_pos, cos_sim"]
    # Killed between the environment and the spec, it is repeated.
    (tmp_path / "run" / "spec.yaml").write_bytes((tmp_path / "run" / "specs" / "00000.yaml").read_bytes())
    run_spec(more, run.uri, page=False)
    assert run.files("specs") == {"specs/00000.yaml"}
    assert kept(run) == after
    fresh = run_spec(more, str(tmp_path / "fresh"), page=False)
    marts = ("qa_bias_by_heuristic", "qa_attributes", "qa_bias_tests")
    assert_same_answers(run, fresh, *(f"from {mart} order by all" for mart in marts))
    with pytest.raises(InputError, match=r"models: a, b of .* must stay the first"):
        run_spec(_qa_spec(tmp_path, "cab", ["word_dist", "ans_pos", "cos_sim"]), run.uri)
    before = digests(Path(run.uri))
    with pytest.raises(InputError, match=r"bootstrap.sample: 5000 of each of two groups need 10,000 questions"):
        reanalyse_run(run.uri, ["bootstrap.sample=5000"])
    assert digests(Path(run.uri)) == before
    anew = reanalyse_run(run.uri, ["thresholds={ans_pos: 1}", "bootstrap.trials=30"], page=False)
    assert {row["threshold"] for row in rows(anew, "from qa_bias_by_heuristic where heuristic = 'ans_pos'")} == {1.0}
    assert kept(run) == after


def test_a_reader_with_windows_of_its_own_joins_predictions(tmp_path: Path) -> None:
    _questions(tmp_path)
    given = _qa_spec(tmp_path, "a", ["ans_pos"])
    run = run_spec(given, str(tmp_path / "run"), page=False)
    before: dict[str, Any] = kept(run) | {name: run.read_bytes(name) for name in run.files("qa_predictions")}
    content = yaml.safe_load((tmp_path / "qa.yaml").read_text())
    reader = {"name": "reader", "path": str(make_bert(tmp_path / "bert"))}
    grown = content | {"models": [*content["models"], reader], "windows": {"max_tokens": 128, "stride": 32}}
    whole = digests(Path(run.uri))
    weights = (tmp_path / "bert" / "model.safetensors").rename(tmp_path / "kept")
    with pytest.raises(InputError, match="model directory without weights"):
        run_spec(_loaded(tmp_path, grown), run.uri)
    assert digests(Path(run.uri)) == whole
    weights.rename(tmp_path / "bert" / "model.safetensors")
    run_spec(_loaded(tmp_path, grown), run.uri, page=False)
    after: dict[str, Any] = kept(run) | {name: run.read_bytes(name) for name in run.files("qa_predictions")}
    assert {name: after[name] for name in before} == before
    assert run.read_yaml("spec.yaml")["windows"]["max_tokens"] == 128
    assert [row["n"] for row in rows(run, "select count(*) as n from qa_predictions group by model")] == [60, 60]

    # Now a model reads by them; what is refused is named, and what could be added is not.
    other = grown | {"windows": {"max_tokens": 96, "stride": 32}, "heuristics": ["ans_pos", "ans_len"]}
    with pytest.raises(InputError, match=r"belongs to another spec") as refused:
        run_spec(_loaded(tmp_path, other), run.uri)
    assert str(refused.value).splitlines()[1:] == ["  - windows.max_tokens: the run has 128, the spec 96"]


def _loaded(folder: Path, content: Any) -> Any:
    (folder / "qa.yaml").write_text(yaml.safe_dump(content))
    return load_spec(folder / "qa.yaml")
