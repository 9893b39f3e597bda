"""Models whose code comes with them: scored as a plain pass of each text alone, or refused by name."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from biaseval.errors import InputError
from biaseval.models import ModelSource, describe_model
from biaseval.scoring import LabelScorer
from tests.scoring.families import EXACT, VOCABULARY, by_the_rule, few_shot_prompts, largest_difference
from tests.tinymodels import make_tokenizer

CODE = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

class OwnConfig(PretrainedConfig):
    model_type = "own"
    vocab_size: int = 420
    hidden_size: int = 32
    num_hidden_layers: int = 1
    sees: str = "before"

class OwnModel(PreTrainedModel):
    config_class = OwnConfig
    def __init__(self, config):
        super().__init__(config)
        self.embedding = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()
    def get_input_embeddings(self):
        return self.embedding
    def forward(self, input_ids):  # takes no mask
        states = self.embedding(input_ids)
        if self.config.sees == "all":
            states = states + states.mean(1, keepdim=True)
        else:
            states = states.cumsum(1) * torch.log(torch.tensor(float(input_ids.shape[1])))  # as Qwen's first models
        return CausalLMOutput(logits=self.head(states))
"""


def own_model(folder: Path, sees: str) -> Path:
    config = {"model_type": "own", "sees": sees, "vocab_size": VOCABULARY, "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(CODE)
    torch.manual_seed(0)
    shapes = {"embedding.weight": (VOCABULARY, 32), "head.weight": (VOCABULARY, 32), "head.bias": (VOCABULARY,)}
    save_file({name: torch.randn(shape) / 8 for name, shape in shapes.items()}, folder / "model.safetensors")
    make_tokenizer().save_pretrained(folder)
    return folder


def test_a_model_that_takes_no_mask_and_follows_the_length_of_a_batch_is_scored_one_text_at_a_time(
    tmp_path: Path,
) -> None:
    folder, prompts = own_model(tmp_path, "before"), few_shot_prompts()
    assert describe_model(ModelSource(str(folder), trust_remote_code=True)).family == "own"
    scoring = LabelScorer.load(str(folder), trust_remote_code=True)
    expected = by_the_rule(scoring.model, scoring.tokenizer, prompts)
    assert largest_difference(scoring.score(prompts), expected) < EXACT
    assert scoring.path == "one_by_one"


def test_a_model_that_takes_no_mask_and_looks_ahead_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no causal language model \(own\): its prediction for a token changes"):
        LabelScorer.load(str(own_model(tmp_path, "all")), trust_remote_code=True)


def test_code_that_nobody_trusts_is_not_run(tmp_path: Path) -> None:
    for read in (LabelScorer.load, lambda path: describe_model(ModelSource(path))):
        with pytest.raises(InputError, match="trust_remote_code"):
            read(str(own_model(tmp_path, "before")))
