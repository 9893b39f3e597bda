"""A study on real questions in its smallest form: what a tiny random encoder learns of them is no finding."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerFast

from biaseval.analysis import query
from biaseval.runs import run_spec
from biaseval.spec import load_spec
from tests.inprocess import in_this_process
from tests.pages import page_of

pytestmark = pytest.mark.timeout(900)

N_MEASURED, N_TRAINED = 240, 300


def write_base(folder: Path, texts: list[str]) -> None:
    """Write a BERT of two layers of random weights and a tokenizer of these texts' word pieces."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=6000, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    ids = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids
    )
    fast: Any = PreTrainedTokenizerFast
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    named: dict[str, Any] = dict(zip(names, special, strict=True))
    named["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    made = fast(tokenizer_object=tokenizer, model_max_length=512, **named)
    made.save_pretrained(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 1}
    sizes |= {"intermediate_size": 128, "max_position_embeddings": 512}
    torch.manual_seed(0)
    model: Any = BertForQuestionAnswering(BertConfig(vocab_size=len(made), **sizes))
    model.save_pretrained(folder)


STUDY = """
kind: qa_bias
name: small-study
models: [{name: people, annotators: true}, {name: untrained, path: base}]
datasets: {train: train.jsonl, in_distribution: {squad: dev.jsonl}, out_of_distribution: {naturalquestions: nq.jsonl}}
windows: {max_tokens: 192, stride: 64}
thresholds: mikula2024
bootstrap: {sample: 20}
train:
  bases: [{name: tiny, path: base, init: random}]
  data: {squad: train.jsonl}
  validation: {squad: dev.jsonl}
  methods: [standard, resample, learned_mixin]
  biases: [word_dist, ans_len]
  learning_rate: 1.0e-3
  warmup: 0.1
  epochs: 50
  max_steps: 4
  learned_mixin: {max_steps: 4}
  bias_model: {learning_rate: 1.0e-3, max_steps: 4}
  evaluation_steps: 1
  evaluation_questions: 40
  checkpoint_steps: 1
"""


def lines_of(data: Path, name: str, n: int) -> list[str]:
    """Return questions of a file of SQuAD as JSON lines, from all over it: it is sorted by article."""
    with gzip.open(data / "qa" / name, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    return lines[:: len(lines) // n][:n]


def write_study(folder: Path, data: Path) -> Path:
    """Write the spec of a study, its questions and its base, and return the spec's path.

    The base as it was written is measured beside those that are trained from random weights like its own.
    """
    train = lines_of(data, "squad_train.jsonl.gz", N_TRAINED)
    others = (data / "qa" / "naturalquestions_dev.jsonl").read_text(encoding="utf-8").splitlines()[:60]
    dev = lines_of(data, "squad_dev.jsonl.gz", N_MEASURED)
    for name, lines in (("train", train), ("dev", dev), ("nq", others)):
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    rows = [json.loads(line) for line in train]
    write_base(folder / "base", [row[key] for row in rows for key in ("context", "question")])
    content = yaml.safe_load(STUDY) | {"text": {"nltk_data": str(data / "nltk_data")}}
    (folder / "spec.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return folder / "spec.yaml"


@pytest.mark.slow
def test_a_study_on_real_questions_goes_from_texts_to_a_report(tmp_path: Path, shared: Path) -> None:
    path = write_study(tmp_path, shared / "data")
    with in_this_process():
        run = run_spec(load_spec(path), str(tmp_path / "run"))
    found = query([run.uri], "select model, n_rows, exact_match from qa_by_dataset where dataset = 'squad'").to_pylist()
    by_model = {row["model"]: row for row in found}
    assert len(by_model) == 2 + 1 + 2 * 2
    people = query([run.uri], "select distinct dataset from qa_predictions where model = 'people'").to_pylist()
    assert people == [{"dataset": "squad"}]
    plan = json.loads(run.read_text("plan.json"))
    left_out = "people: naturalquestions lists no answer twice: alternatives, not several people's; left out"
    assert left_out in plan["notes"]
    assert all(row["n_rows"] == N_MEASURED for name, row in by_model.items() if name != "people")
    assert 0.7 < by_model["people"]["exact_match"] < 1
    segments = query([run.uri], "select bias, n_lower + n_higher + n_undefined as n from qa_segments").to_pylist()
    assert {row["bias"]: row["n"] for row in segments} == {"word_dist": N_TRAINED, "ans_len": N_TRAINED}
    [windows] = query([run.uri], "from qa_training_windows").to_pylist()
    assert windows["n_questions"] == N_TRAINED < windows["n_windows"]
    assert windows["n_without"] > 0
    assert f" tiny squad 300 {windows['n_windows']:,} {windows['n_without']:,} " in page_of(run).text
