"""The page ``docs/models.md``: how a small random model of every type of transformers is scored.

python -m tests.bench.models_page
"""

import math
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval.models import REFUSED, ModelSource, load_model, load_tokenizer
from biaseval.scoring import LabelScorer
from tests.bench.causaltypes import TYPES, save_small, small_config
from tests.scoring.families import by_the_rule, largest_difference
from tests.taskfiles import WORDS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"

ENCODERS = {
    "bert", "bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie", "megatron-bert", "rembert",
    "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "xlm", "xlm-roberta", "xlm-roberta-xl", "xmod",
}  # fmt: skip
WITH_ENCODER = {
    "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus", "plbart",
    "whisper",
}  # fmt: skip
NEEDS = {"gemma3n": "timm"}
"""Types whose parts need a package that is no dependency."""

_DEMOS = "".join(
    f"Input: the {word} {number}.\nOutput: {'not ' * (number % 2)}sure.\n\n" for number, word in enumerate(WORDS[:9])
)
PROMPTS = pa.table(
    {
        "prompt_id": ["a", "b", "c", "d"],
        "text": [f"Say which.\n\n{_DEMOS}Input: {own}\nOutput:" for own in ("one", "one more", "another")] + ["x"],
        "labels": [["yes", "not sure at all", "no"]] * 4,
    }
)


class Row(NamedTuple):
    """What the page says of a type."""

    path: str
    difference: float
    """Nats between a token's score and that of the plain pass, at most."""
    reason: str
    """Why its texts are not packed."""


def decoder_settings(model_type: str) -> dict[str, bool]:
    """Return what makes a causal model of a type that is none by default."""
    if model_type == "xlm":
        return {"causal": True}
    if model_type in ENCODERS:
        return {"is_decoder": True}
    return {"is_decoder": True, "is_encoder_decoder": False} if model_type in WITH_ENCODER else {}


def measured(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, expected: list[list[float]] | None = None
) -> Row:
    """Return how a model is scored by default; a plain pass gives the right scores where ``expected`` does not."""
    scoring = LabelScorer(model, tokenizer)
    difference = largest_difference(scoring.score(PROMPTS), expected or by_the_rule(model, tokenizer, PROMPTS))
    reason = scoring.facts()["paths_left"].get("packed", "").replace("was not tried: ", "")
    if "nats off" in reason:
        reason = "the self-test finds other scores"
    return Row(scoring.path, difference, reason)


def row_of(model_type: str) -> Row:
    """Return what the page should say of a type."""
    if model_type in REFUSED:
        return Row("refused", 0.0, REFUSED[model_type])
    if model_type in NEEDS:
        return Row("not measured", 0.0, f"it needs the package {NEEDS[model_type]}")
    with tempfile.TemporaryDirectory() as folder:
        source = ModelSource(str(save_small(small_config(model_type, **decoder_settings(model_type)), Path(folder))))
        return measured(load_model(source), load_tokenizer(source))


def page() -> str:
    """Return the page; takes minutes."""
    lines = [_ABOUT.format(version=transformers.__version__)]
    for name in sorted(TYPES):
        row = row_of(name)
        difference = f"{10.0 ** math.ceil(math.log10(row.difference)):.0e}" if row.difference else ""
        lines.append(f"| `{name}` | {row.path} | {difference} | {row.reason} |")
    return "\n".join(lines) + "\n"


def rows_of_the_page() -> dict[str, Row]:
    """Return what the page says of each type."""
    found = re.findall(
        r"^\| `([\w-]+)` \| ([\w ]+) \| ([\de.-]*) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: Row(path, float(difference or 0), reason) for name, path, difference, reason in found}


_ABOUT = """\
# Models

`python -m tests.bench.models_page` writes this page; tests compare its types, paths and reasons with the code.

The table has every type that transformers {version} loads as a causal language model.
For each type, a small random model scored four prompts with three labels each.
Most of these texts are longer than the model's sliding window, if it has one.

- **path**: the path that the model's texts took. [The scorer](scorer.md) explains the paths.
- **difference**: the largest difference from the plain forward pass of each text alone.
  It is in nats for one token, in float32 on a CPU, rounded up to a power of ten.
- **why not packed**: the reason why the scorer did not use `packed`, its fastest path.

Your own model may differ from the small model in its settings.
So the scorer repeats the comparison with your model and texts on first use.
`environment.json` records the result of the run.

| type | path | difference | why not packed |
|---|---|---|---|"""

if __name__ == "__main__":
    torch.set_num_threads(1)
    PAGE.write_text(page(), encoding="utf-8")
