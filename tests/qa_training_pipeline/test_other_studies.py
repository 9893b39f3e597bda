"""Other studies: readers that are given up, many bases and seeds, padding that takes part, a bias fitted by TF-IDF."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
import torch
from safetensors.torch import load_file
from transformers import T5EncoderModel

from biaseval.errors import BiasevalError, InputError
from biaseval.models import ModelSource, load_extractive_model, load_reader_tokenizer
from biaseval.qa_models import ExtractiveReader, WindowSettings, reader_inputs
from biaseval.runs import run_spec, run_status, train_qa
from biaseval.store import Run
from biaseval.tables import TRAINED_MODELS
from biaseval.training import outcome as outcome_module
from biaseval.training.outcome import Outcome
from biaseval.training.questions import Questions, answer_logits
from tests.smallstudy import MAX_TOKENS, SIX_STEPS, generated, load, rows, trained, write_spec
from tests.test_qa_pipeline import make_t5

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]

# Given up


def test_a_reader_that_is_given_up_takes_along_what_needs_it_and_nothing_else(
    bert: Path, tmp_path: Path, here: None
) -> None:
    changes = {"methods": ["standard", "resample", "learned_mixin"], "bias_model": {"learning_rate": 1e18, **SIX_STEPS}}
    spec = write_spec(tmp_path, bert, train=changes)
    for sitting in range(2):  # nothing is tried again that would fail again
        with pytest.raises(BiasevalError, match="2 readers were given up") as caught:
            run_spec(load(spec), str(tmp_path / "run"), page=not sitting)
        assert "bert+bias_model: loss" in str(caught.value)
        assert "(questions planted-0" in str(caught.value)
        assert "bert+learned_mixin: bert+bias_model was given up" in str(caught.value)
        assert list(run_status(str(tmp_path / "run")).given_up) == ["bert+bias_model", "bert+learned_mixin"]
        found = trained(tmp_path / "run")
        assert list(found) == ["bert", "bert+bias_model", "bert+resample"]
        assert [row["path"] is None for row in found.values()] == [False, True, False]
        assert sitting or (tmp_path / "run" / "report.html").exists()
        measured = rows(tmp_path / "run", "select distinct model from qa_debiasing order by all")
        assert [row["model"] for row in measured] == ["bert", "bert+resample"]
    assert len(list((tmp_path / "run" / "models").iterdir())) == 2


def test_without_a_standard_reader_of_one_seed_the_other_seed_judges_and_goes_on(
    bert: Path, tmp_path: Path, here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs its logits is not trained, and what would be compared with it has no change."""
    changes = {"methods": ["standard", "resample", "confidence_regularization"], "seeds": [1, 2]}
    spec = write_spec(tmp_path, bert, train=changes)
    real = outcome_module.train

    def failing(run: Run, base: Any, work: Any, *arguments: Any) -> Any:
        if work.key["model"] != "bert#1":
            return real(run, base, work, *arguments)
        run.write_part("trained_models", 0, TRAINED_MODELS.rows([{**work.row, "steps": 1, "problem": "loss nan"}]))
        return Outcome(0, 1, float("nan"), None, step_seconds=0.0, problem="loss nan")

    monkeypatch.setattr(outcome_module, "train", failing)
    with pytest.raises(BiasevalError, match="2 readers were given up") as caught:
        run_spec(load(spec), str(tmp_path / "run"), page=False)
    for line in ("bert#1: loss nan", "bert+confidence_regularization#1: bert#1 was given up"):
        assert line in str(caught.value)
    [segment] = rows(tmp_path / "run", "from qa_segments")
    assert segment["judged_by"] == "bert#2"
    measured = rows(tmp_path / "run", "select model, count(gap_change) as n_changes from qa_debiasing group by all")
    assert {row["model"]: row["n_changes"] > 0 for row in measured} == {
        "bert#2": False, "bert+confidence_regularization#2": True, "bert+resample#1": False, "bert+resample#2": True,
    }  # fmt: skip


# Other ways to the same


def test_every_reader_of_a_large_study_is_guided_by_its_own(bert: Path, tmp_path: Path, here: None) -> None:
    """Two bases, two sets, two seeds, two biases: teachers are those of the same base, set and seed."""
    two = {"max_steps": 2}
    changes = {
        "bases": [{"name": "bert", "path": str(bert)}, {"name": "new", "path": str(bert), "init": "random"}],
        "data": {"one": generated(24, 0.6), "two": generated(32, 0.0)},
        "methods": ["standard", "confidence_regularization"], "biases": ["ans_pos", "word_dist"],
        "thresholds": {"ans_pos": 0, "word_dist": 3}, "seeds": [1, 2], "evaluation_steps": 2,
        "evaluate_others": False, "batch_size": 4, "max_steps": 2, "confidence_regularization": two,
        "bias_model": two,
    }  # fmt: skip
    spec = load(write_spec(tmp_path, bert, train=changes))
    train_qa(spec, str(tmp_path / "run"))
    run, found = Run.open(str(tmp_path / "run")), trained(tmp_path / "run")
    assert len(found) == 2 * 2 * 2 + 2 * 2 * 2 + 2 * 2 * 2 * 2
    features, guides = run.read_table("qa_features"), run.read_table("qa_guide_logits")
    assert len(guides["guide"].unique()) == 8 + 8
    for name, reader in found.items():
        own = guides.filter(pc.equal(guides["guide"], name))
        if reader["method"] == "confidence_regularization":
            assert reader["standard"] == f"{reader['base']}@{reader['data']}#{reader['seed']}"
            assert found[reader["standard"]]["seed"] == reader["seed"]
            continue
        is_own = pc.and_(pc.equal(features["base"], reader["base"]), pc.equal(features["dataset"], reader["data"]))
        windows = features.filter(is_own)
        assert own.select(["example_id", "window"]).equals(windows.select(["example_id", "window"]))
        source = ModelSource(str(tmp_path / "run" / reader["path"]))
        model, tokenizer = load_extractive_model(source), load_reader_tokenizer(source)
        shown = Questions(windows, reader_inputs(model, tokenizer), tokenizer.pad_token_id or 0)
        with torch.no_grad():
            alone = answer_logits(model, shown.batch([5]), model.device)[:, 0].numpy()
        np.testing.assert_allclose(own["start_logits"][5].as_py(), alone[0], atol=1e-5)
    segments = {(row["base"], row["data"], row["bias"]): row for row in run.read_table("qa_segments").to_pylist()}
    assert len(segments) == 8
    assert {row["judged_by"] for row in segments.values()} == {"bert@one#1", "bert@two#1", "new@one#1", "new@two#1"}


def test_bias_may_be_fitted_by_tfidf(bert: Path, tmp_path: Path, here: None) -> None:
    changes = {"methods": ["standard", "product_of_experts"], "bias_model": {"tfidf": True}}
    spec = write_spec(tmp_path, bert, train=changes)
    train_qa(load(spec), str(tmp_path / "run"))
    [weight] = json.loads((tmp_path / "run" / "plan.json").read_text())["training"]["tfidf_weights"].values()
    assert weight >= 0
    guides = Run.open(str(tmp_path / "run")).read_table("qa_guide_logits")
    assert guides["guide"].unique().to_pylist() == ["bert+tfidf"]
    sums = [np.exp(np.array(own)).sum() for own in guides["start_logits"].to_pylist()]
    np.testing.assert_allclose(sums, 1, atol=1e-5)


def test_an_encoder_with_a_decoder_is_trained_and_measured(tmp_path: Path, here: None) -> None:
    """T5's decoder marks spans; the gate of LearnedMixin reads the states of the decoder."""
    t5 = make_t5(tmp_path / "t5")
    changes = {"methods": ["standard", "learned_mixin"], "bases": [{"name": "t5", "path": str(t5)}]}
    run_spec(load(write_spec(tmp_path, t5, train=changes, preset="mikula2024")), str(tmp_path / "run"), page=False)
    readers = trained(tmp_path / "run")
    assert {name: (own["steps"], own["problem"]) for name, own in readers.items()} == dict.fromkeys(
        ["t5", "t5+bias_model", "t5+learned_mixin"], (6, None)
    )
    source = ModelSource(str(tmp_path / "run" / readers["t5+learned_mixin"]["path"]))
    alone = ExtractiveReader.load(source, settings=WindowSettings(MAX_TOKENS, 24))
    questions = Run.open(str(tmp_path / "run")).read_table("qa_examples")
    plain = questions.filter(pc.equal(questions["dataset"], "plain"))
    expected = dict(zip(plain["example_id"].to_pylist(), alone.read(plain)["prediction"].to_pylist(), strict=True))
    found = rows(tmp_path / "run", "from qa_predictions where model = 't5+learned_mixin' and dataset = 'plain'")
    assert {row["example_id"]: row["prediction"] for row in found} == expected
    assert all(expected.values())
    embeddings = [load_file(path)["shared.weight"] for path in (t5 / "model.safetensors", *_files(source.path))]
    assert not torch.equal(*embeddings)
    T5EncoderModel.from_pretrained(t5).save_pretrained(tmp_path / "encoder")
    with pytest.raises(InputError, match=r"weights of T5ForQuestionAnswering missing \(first: decoder"):
        load_extractive_model(ModelSource(str(tmp_path / "encoder")), allow_untrained_head=True)


def _files(folder: str) -> list[Path]:
    return sorted(Path(folder).glob("*.safetensors"))
