"""The section train of QA-bias specs: published defaults, what the variant decides, mistakes with key and remedy."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import InputError
from biaseval.spec import QaBiasSpec, QaTrainSpec, differences, dump_spec, load_spec, stored_spec

TRAIN: dict[str, Any] = {
    "bases": [{"name": "bert", "path": "org/bert"}],
    "data": {"squad": "train.json"},
    "validation": {"squad": "dev.json"},
}
SPEC: dict[str, Any] = {"kind": "qa_bias", "name": "study", "datasets": {"in_distribution": {"squad": "dev.json"}}}
ADDRESSING = {"methods": ["standard", "learned_mixin"], "biases": ["word_dist"]}


def load(folder: Path, train: dict[str, Any], **changes: Any) -> QaBiasSpec:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "train": {**TRAIN, **train}, **changes}, sort_keys=False))
    spec = load_spec(path)
    assert isinstance(spec, QaBiasSpec)
    return spec


def section(folder: Path, train: dict[str, Any], **changes: Any) -> QaTrainSpec:
    found = load(folder, train, **changes).train
    assert found is not None
    return found


def test_the_defaults_are_the_published_ones(tmp_path: Path) -> None:
    """Protocol sections 7 to 9."""
    own = section(tmp_path, {})
    assert (own.learning_rate, own.batch_size * own.accumulation, own.epochs) == (2e-5, 16, 3)
    assert (own.evaluation_steps, own.patience, own.best) == (200, 10, "loss")
    assert (own.weight_decay, own.warmup, own.precision, own.seeds) == (0, 0, "float32", [42])
    mixin, regularization, bias_model = own.learned_mixin, own.confidence_regularization, own.bias_model
    assert (mixin.bias_scale, mixin.entropy_penalty, mixin.max_steps, mixin.variant) == (0.2, 0.4, 100_000, "paper")
    assert (regularization.bias_scale, regularization.max_steps, regularization.variant) == (0.1, 30_000, "utama")
    assert (bias_model.learning_rate, bias_model.max_steps, bias_model.init) == (4e-5, 88_000, "random")
    assert own.mask_padding
    assert not own.group_by_length


def test_the_preset_is_what_p3_ran_own_keys_win_and_the_stored_spec_has_all(tmp_path: Path) -> None:
    """Protocol sections 9.2, 9.5 and 13: the code's heuristics, the text's methods."""

    def found(spec: QaBiasSpec) -> tuple[str | None, ...]:
        own = spec.train
        assert own is not None
        methods = (own.learned_mixin.variant, own.confidence_regularization.variant, own.bias_model.init)
        return (spec.variant, *methods)

    own = load(tmp_path, {"learned_mixin": {"bias_scale": 0.5}}, preset="mikula2024")
    assert found(own) == ("reference", "paper", "utama", "random")
    assert own.train is not None
    assert own.train.learned_mixin.bias_scale == 0.5
    content = yaml.safe_load(dump_spec(own))
    assert content["train"]["learned_mixin"]["variant"] == "paper"
    assert stored_spec(content, "stored") == own
    assert found(load(tmp_path, {}, variant="reference")) == ("reference", "head", "head", "pretrained")
    given = {"learned_mixin": {"variant": "clark"}, "bias_model": {"init": "pretrained"}}
    assert found(load(tmp_path, given, preset="mikula2024", variant="paper")) == (
        "paper", "clark", "utama", "pretrained",
    )  # fmt: skip
    # The same keys without the preset are the same run, and a run of before has no preset.
    assert not differences(own, stored_spec({key: each for key, each in content.items() if key != "preset"}, "older"))
    with pytest.raises(InputError, match=r"preset: input should be 'mikula2024', found 'mikula'; change it"):
        load(tmp_path, {}, preset="mikula")
    with pytest.raises(InputError, match=r"train.learned_mixin"):
        load(tmp_path, {"learned_mixin": "paper"}, preset="mikula2024")


def test_paths_are_made_absolute_names_of_the_hub_and_generated_sets_stay(tmp_path: Path) -> None:
    generated = {"planted": {"shortcut": "ans_pos", "strength": 1, "questions": 5}}
    spec = load(
        tmp_path,
        {"data": {"a": "train.json", "b": generated}, "deepspeed_config": "ds.json", "zero": 1},
        datasets={"in_distribution": {"squad": "dev.json", "made": generated}},
    )
    assert spec.train is not None
    assert spec.train.bases[0].path == "org/bert"
    assert spec.train.data["a"] == str(tmp_path / "train.json")
    assert spec.train.deepspeed_config == str(tmp_path / "ds.json")
    assert spec.train.data["b"] == spec.datasets.in_distribution["made"]
    assert stored_spec(yaml.safe_load(dump_spec(spec)), "stored") == spec
    files = {
        "datasets.train", "datasets.squad", "train.data.a", "train.validation.squad", "train.bias_model.predictions",
    }  # fmt: skip
    assert set(spec.files()) == files
    assert list(spec.models_used()) == [("bases", "bert")]


@pytest.mark.parametrize(("train", "changes", "expected"), [
    ({"methods": ["resample"], "biases": ["word_dist"]}, {}, "train.methods: standard is missing"),
    ({"biases": ["word_dist"]}, {}, "train.biases: no method addresses one; add resample or"),
    ({"methods": ["standard", "resample"]}, {}, "train.biases: is empty; name the heuristics that"),
    ({"methods": ["standard", "bold"]}, {}, "train.methods.1: input should be 'standard', 'resample'"),
    (ADDRESSING, {"heuristics": ["ans_len"]}, "train.biases: word_dist is not among heuristics (ans_len); mend"),
    ({"methods": ["standard", "resample"], "biases": ["my:own"]}, {"heuristics": ["my:own"]},
        "train.thresholds: none is published for my:own; give one ({my:own: NUMBER}), or search"),
    ({**ADDRESSING, "thresholds": {"ans_len": 3}}, {}, "train.thresholds: ans_len not among train.biases"),
    ({"validation": {"squad": "other.json"}}, {}, "train.validation.squad: is not the file that datasets"),
    ({"bases": [{"name": "a", "path": "x"}] * 2}, {}, "bases ['a', 'a'] names one twice"),
    ({"seeds": [1, 1]}, {}, "seeds [1, 1] names one twice"),
    ({}, {"models": [{"name": "bert", "path": "x"}]}, "train.bases: bert is the name of one of models, too"),
    ({"data": {"a": "x", "b": "y"}, "bias_model": {"predictions": "p"}}, {}, "train.bias_model.predictions: is"),
    ({"workers": 3}, {}, "3 workers cannot share accumulation 1 evenly"),
    ({"bias_model": {"tfidf": True, "predictions": "p"}}, {}, "has both tfidf and predictions; keep one"),
    ({"learned_mixin": {"bias_scale": 2}}, {}, "bias_scale: input should be less than or equal to 1"),
    ({"learned_mixin": {"entropy": 2}}, {}, "entropy: unknown key; did you mean entropy_penalty"),
    ({"data": {"a": {"planted": {"shortcut": "cos_sim", "strength": 0.5, "questions": 5}}}}, {},
        "'cos_sim' cannot be planted; use ans_pos or word_dist"),
    ({"learning_rate": "fast"}, {}, "train.learning_rate"),
])  # fmt: skip
def test_mistakes_name_the_key(train: dict[str, Any], changes: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, train, **changes)
    assert expected in str(caught.value)


_CHECK = "train.validation.check"
_PLANTED = {"shortcut": "ans_pos", "strength": 3, "questions": 5}


@pytest.mark.parametrize(("train", "expected"), [
    ({"thresholds": "mikula"}, ["train.thresholds: input should be 'mikula2024' or 'search', or a mapping of keys"]),
    ({"validation": {"check": {"planted": _PLANTED}}},
        [f"{_CHECK}.planted.strength: input should be less than or equal to 1, found 3; change it"]),
    ({"validation": {"check": {"plantd": {}}}}, [f"{_CHECK}.planted: is required and missing; add it",
            f"{_CHECK}.plantd: unknown key; did you mean planted?"]),
    ({"validation": {"check": 5}}, [f"{_CHECK}: input should be a valid string, or a mapping of keys, found 5"]),
])  # fmt: skip
def test_a_value_of_several_kinds_is_told_by_its_key(
    tmp_path: Path, train: dict[str, Any], expected: list[str]
) -> None:
    """Where something inside one of the kinds is wrong, the others are not spoken of."""
    with pytest.raises(InputError) as caught:
        load(tmp_path, train)
    lines = [line.partition("spec.yaml: ")[2] for line in str(caught.value).splitlines() if "spec.yaml: " in line]
    assert [line.startswith(own) for line, own in zip(lines, expected, strict=True)] == [True] * len(expected)
