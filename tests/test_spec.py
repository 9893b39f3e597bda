from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import InputError
from biaseval.spec import LabelBiasSpec, MajorityBiasSpec, QaBiasSpec, Spec, differences, load_spec

MINIMAL = "kind: label_bias\nname: x\nmodel: {path: some/model}\ntasks: {path: tasks}\n"


def _write(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text)
    return path


def _label_bias(folder: Path, text: str, overrides: Sequence[str] = ()) -> LabelBiasSpec:
    spec = load_spec(_write(folder, text), overrides)
    assert isinstance(spec, LabelBiasSpec)
    return spec


def test_relative_paths_are_relative_to_the_spec_file_and_hub_names_stay(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = "kind: label_bias\nname: x\nmodel: {path: model, adapter: org/adapter}\ntasks: {path: tasks}\n"
    spec = _label_bias(tmp_path, text)
    assert spec.model.path == str(tmp_path / "model")
    assert spec.model.adapter == "org/adapter"
    assert spec.tasks.path == str(tmp_path / "tasks")
    assert load_spec(_write(tmp_path, MINIMAL)).model.path == "some/model"


def test_overrides_are_yaml_values_of_dotted_keys(tmp_path: Path) -> None:
    spec = _label_bias(tmp_path, MINIMAL, ["tasks.max_eval=7", "prompt.n_demos=[0, 4]", "calibration=[cc]"])
    assert (spec.tasks.max_eval, spec.prompt.n_demos, spec.calibration) == (7, [0, 4], ["cc"])
    with pytest.raises(InputError, match=r"prompt.n_demos is a list; give all of it: --set 'prompt.n_demos=\[...\]'$"):
        load_spec(_write(tmp_path, MINIMAL), ["prompt.n_demos=[0, 2]", "prompt.n_demos.0=4"])
    with pytest.raises(InputError, match=r"and not a section of the spec; replace all of it: --set 'name=\{short: \{"):
        load_spec(_write(tmp_path, MINIMAL), ["name.short.first=a"])


def test_mistakes_between_sections_come_with_those_inside_them(tmp_path: Path) -> None:
    text = """\
kind: label_bias
name: x
sed: 1
model: {path: m, quantization: 8bit}
tasks: {path: t, suite: selection}
prompt: {n_demos: [2], demo_sets: none}
calibration: [cc, cc]
lora: {}
"""
    with pytest.raises(InputError) as caught:
        load_spec(_write(tmp_path, text))
    lines = [line for line in str(caught.value).splitlines() if ".yaml: " in line]
    assert [line.split("spec.yaml: ")[1].split(";")[0] for line in lines] == [
        "spec: tasks.table: suite: selection needs the CSV of task names, categories and languages",
        "prompt.demo_sets: input should be a valid integer, found 'none'",
        "spec: calibration ['cc', 'cc'] names a method twice",
        "spec: lora: adapters are not trained on a quantized model",
        "sed: unknown key",
    ]
    with pytest.raises(InputError) as caught:
        _majority(tmp_path, data={"max_test": 0}, seeds=[1, 1], predict=["generate"], calibration=["cc"])
    for part in ("data.max_test:", "spec: seeds [1, 1] names one twice", "spec: calibration changes likelihoods"):
        assert part in str(caught.value)
    models = [{"name": "a", "predictions": {"nq": "n"}}]
    with pytest.raises(InputError) as caught:
        _qa(tmp_path, models=models, heuristics=["ans_len"], thresholds={"cos_sim": 1.0}, bootstrap={"sample": 1})
    for part in ("spec: models: predictions of a for nq", "spec: thresholds: cos_sim not among", "bootstrap.sample:"):
        assert part in str(caught.value)


@pytest.mark.parametrize(("text", "expected"), [
    ("kind: nonsense\n", "kind: 'nonsense' is unknown"), ("name: x\n", "kind: is missing"),
    ("- a\n- b\n", "a spec is a mapping"), ("a: [1\n", "is not valid YAML"),
    (MINIMAL + "sed: 3\n", "sed: unknown key; did you mean seed?"),
    (MINIMAL + "lora: {rank: 64}\n", "lora.rank: unknown key"),
    (MINIMAL + "lora: {n_demos: [8, 3]}\n", "lora: n_demos 3 is not in prompt.n_demos; take it out, or add it there"),
    (MINIMAL + "lora: {demo_sets: 4}\n", "lora: demo_sets 4 is more than prompt.demo_sets 3; lower it"),
    (MINIMAL + "lora: {n_demos: []}\n", "lora.n_demos"), (MINIMAL + "seed: -1\n", "seed:"),
    (MINIMAL + "calibration: [cc, cc]\n", "names a method twice"),
    (MINIMAL + "calibration: [cd]\n",
        "calibration.0: 'cd' is no calibration; use one of cc, dc, looc, pride, bc, cc_softmax, "
        "dc_softmax, pmi, or with a strength, as in cc@0.7"),
    (MINIMAL + "calibration: [cc@1.6]\n", "calibration.0: 'cc@1.6': a strength is 0 (no calibration) to 1.5"),
    (MINIMAL + "calibration: [cc@1-2]\n", "calibration.0: 'cc@1-2': '1-2' is no number; write a strength as in"),
    (MINIMAL + "calibration: [dc/21]\n", "calibration.0: 'dc/21': dc has 20 inputs, not 21; lower the number"),
    (MINIMAL + "calibration: [cc, cc@1.0]\n", "calibration ['cc', 'cc'] names a method twice; name each once"),
    (MINIMAL.replace("path: tasks", "path: tasks, suite: selection"), "tasks.table"),
    (MINIMAL.replace("path: tasks", "path: tasks, min_instances: 96"), "tasks.min_instances"),
])  # fmt: skip
def test_a_mistake_names_the_key_and_the_remedy(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spec(_write(tmp_path, text))
    assert expected in str(caught.value)


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_spec(tmp_path / "absent.yaml")
    (tmp_path / "spec.yaml").write_bytes(b"kind: \xff\xfe")
    with pytest.raises(InputError, match="is not UTF-8"):
        load_spec(tmp_path / "spec.yaml")


def test_execution_and_places_may_differ_and_nothing_else(tmp_path: Path) -> None:
    spec = load_spec(_write(tmp_path, MINIMAL))

    def changed(*overrides: str) -> list[str]:
        other: Spec = load_spec(_write(tmp_path, MINIMAL), overrides)
        return differences(spec, other)

    assert changed() == []
    assert changed("execution.actors=3", "tasks.path=elsewhere") == []
    assert changed("seed=1") == ["seed: the run has 42, the spec 1"]
    assert len(changed("tasks.max_eval=5", "calibration=[dc]")) == 2
    assert changed("tasks.templates=t.csv") != []


MAJORITY = """\
kind: majority_bias
name: boolq
model: {path: some/model}
data: {train: train.jsonl}
prompt: {preset: boolq, n_demos: 50}
proportions: binary_11
"""


def _majority(folder: Path, overrides: Sequence[str] = (), **changes: Any) -> MajorityBiasSpec:
    """Load the smallest majority-bias spec, with ``changes`` over its keys and sections."""
    content = yaml.safe_load(MAJORITY)
    for key, value in changes.items():
        content[key] = {**content[key], **value} if isinstance(content.get(key), dict) else value
    spec = load_spec(_write(folder, yaml.safe_dump(content, sort_keys=False)), overrides)
    assert isinstance(spec, MajorityBiasSpec)
    return spec


def test_a_majority_bias_spec_as_in_the_documentation_loads(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("""\
kind: majority_bias
name: boolq
seed: 42
model: {path: tiiuae/falcon-40b, dtype: bfloat16}
data: {train: boolq/train.jsonl, test: boolq/test.jsonl, fields: {sentence: question}, label: answer, labels: {true: "True", false: "False"}, max_test: null}
prompt: {preset: boolq, n_demos: 50, instruction: [true, false]}
proportions: binary_11                # or ternary_15, or a list of {label: share}
seeds: [0, 1, 2, 3, 4]
predict: [likelihood, generate]
""")  # noqa: E501
    spec = load_spec(tmp_path / "spec.yaml")
    assert isinstance(spec, MajorityBiasSpec)
    assert [spec.data.train, spec.data.test] == [str(tmp_path / "boolq" / f"{n}.jsonl") for n in ("train", "test")]
    assert spec.model.path == "tiiuae/falcon-40b"
    assert list(spec.data.labels.items()) == [("true", "True"), ("false", "False")]


@pytest.mark.parametrize(("changes", "expected"), [
    ({"data": {"tst": "x"}}, "data.tst: unknown key; did you mean test?"),
    ({"tasks": {"path": "x"}}, "tasks: unknown key; known keys here: kind, name, seed, model, data, prompt,"),
    ({"data": {"labels": {True: True, False: False}}}, "data.labels: true: the label True is no text; quote it"),
    ({"data": {"labels": {"a": " a", "b": "b"}}}, "data.labels: a: the label ' a' is empty, invisible or has"),
    ({"data": {"labels": {"a": "\u200b", "b": "b"}}}, "data.labels: a: the label '\\u200b' is empty, invisible or"),
    ({"data": {"labels": {"a": "x", "b": "x"}}}, "data.labels: holds fewer than two labels"),
    ({"data": {"labels": {"yes": "good", "yes ": "bad"}}}, "data.labels: yes: stands there twice, with and"),
    ({"data": {"labels": {True: "x", "true": "y"}}}, "line 9: has the key 'true' a second time, after line 8"),
    ({"data": {"on_shortage": "skip"}}, "data.on_shortage: input should be 'error' or 'reduce', found 'skip'"),
    ({"prompt": {"n_demos": 0}}, "prompt.n_demos: input should be greater than 0"),
    ({"prompt": {"preset": None}}, "prompt: has both preset and item or neither"),
    ({"prompt": {"item": "{tweet} {label}"}}, "prompt: has both preset and item or neither"),
    ({"prompt": {"instruction_text": "x"}}, "prompt: instruction_text does not go with a preset"),
    ({"prompt": {"instruction": [True, True]}}, "names a choice twice"),
    ({"prompt": {"instruction": []}}, "prompt.instruction: list should have at least 1 item"),
    ({"prompt": {"separator": "###"}}, "prompt.separator: '###' is not white space"),
    ({"prompt": {"preset": None, "item": "Label: {label}"}}, "prompt.item: 'Label: {label}' has the fields"),
    ({"proportions": "binary"}, "proportions: 'binary' is no grid; write binary_11, ternary_15, {simplex: 0.25},"),
    ({"proportions": []}, "proportions: [] is no grid"),
    ({"proportions": {"simplex": 0.3}}, "proportions: the step 0.3 does not divide 1 evenly"),
    ({"proportions": {"simplex": True}}, "proportions: the step True does not divide 1 evenly"),
    ({"proportions": {"simplex": 1e-300}}, "proportions: the step 1e-300 makes too many settings; use 0.001 or"),
    ({"prompt": {"preset": "rte", "n_demos": 10**9}}, "prompt.n_demos: input should be less than or equal to"),
    ({"proportions": {"simplex": 0}}, "proportions: the step 0 does not divide 1 evenly"),
    ({"proportions": [{"a": 1}, {"a": 0.3, "b": 0.6}]}, "proportions: setting 1: the shares sum to 0.9; make it 1"),
    ({"proportions": [{"a": 1.5, "b": -0.5}]}, "setting 0: the share 1.5 of 'a' is not between 0 and 1"),
    ({"proportions": [{"a": float("nan")}]}, "proportions.0.a: nan is not finite or too large"),
    ({"proportions": ["a"]}, "setting 0: 'a' is no mapping of label to share"),
    ({"seeds": [1, 1]}, "seeds [1, 1] names one twice"),
    ({"seeds": [-1]}, "seeds.0: input should be greater than or equal to 0"),
    ({"predict": ["likelyhood"]}, "predict.0: input should be 'likelihood', 'generate' or 'constrained'"),
    ({"predict": []}, "predict: list should have at least 1 item"),
    ({"predict": ["generate"], "calibration": ["cc"]}, "add likelihood to predict"),
])  # fmt: skip
def test_a_mistake_in_a_majority_bias_spec_names_the_key(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InputError) as caught:
        _majority(tmp_path, **changes)
    assert expected in str(caught.value)
    assert f"{tmp_path / 'spec.yaml'}: " in str(caught.value)


def _qa(folder: Path, overrides: Sequence[str] = (), **changes: Any) -> QaBiasSpec:
    content = {
        "kind": "qa_bias",
        "name": "squad",
        "models": [{"name": "a", "path": "org/bert"}, {"name": "b", "predictions": {"squad": "b.json"}}],
        "datasets": {"in_distribution": {"squad": "dev.json"}},
    }
    spec = load_spec(_write(folder, yaml.safe_dump(content | changes)), overrides)
    assert isinstance(spec, QaBiasSpec)
    return spec


@pytest.mark.parametrize(("changes", "expected"), [
    ({"models": [{"name": "a"}]}, "models.0: has several of path, predictions and annotators or none; keep one"),
    ({"models": [{"name": "a", "path": "x", "predictons": {}}]}, "models.0.predictons: unknown key; did you mean"),
    ({"models": [{"name": "a", "predictions": {}}]}, "dictionary should have at least 1 item"),
    ({"models": [{"name": "a", "path": "x", "on_missing": "drop"}]}, "on_missing: goes with predictions"),
    ({"thresholds": {"ans_len": float("nan")}}, "thresholds.ans_len: nan is not finite"),
    ({"models": [{"name": "a", "path": "x"}] * 2}, "models ['a', 'a'] names one twice"),
    ({"models": [{"name": "a", "predictions": {"nq": "n"}}]}, "predictions of a for nq, no set of datasets"),
    ({"models": [{"name": "a", "path": "x", "prompt": "{context}"}]}, "must hold {context} and {question} once"),
    ({"datasets": {"in_distribution": {}}}, "datasets.in_distribution: dictionary should have at least 1 item"),
    ({"datasets": {"in_distribution": {"a": "x"}, "out_of_distribution": {"a": "y"}}},
        "a: stands under in_distribution and out_of_distribution"),
    ({"heuristics": ["word-dist"]}, "'word-dist' is unknown; use word_dist, sim_word"),
    ({"thresholds": {"word_dist": 7}, "heuristics": ["ans_len"]}, "thresholds: word_dist not among heuristics"),
    ({"thresholds": "published"}, "thresholds"),
    ({"windows": {"max_tokens": 100, "stride": 100}}, "stride must be smaller than max_tokens"),
    ({"bootstrap": {"sample": 1}}, "bootstrap.sample: input should be greater than 1"),
])  # fmt: skip
def test_a_mistake_in_a_qa_bias_spec_names_the_key(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        _qa(tmp_path, **changes)
    assert expected in str(caught.value)
