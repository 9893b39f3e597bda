"""Plans on the published data; the numbers of rows and labels are those of the data pack's own description."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from biaseval.majority_bias.data import read_dataset
from biaseval.majority_bias.plan import plan_settings
from biaseval.prompting.parts import n_prompts
from biaseval.spec import MajorityBiasSpec
from tests.tinymodels import make_tokenizer

STANCE = {
    "item": "Target: {target}\nTweet: {tweet}\nStance: {label}",
    "instruction_text": "Say whether the tweet is in favor of the target, against it, or none of both.",
    "n_demos": 28,
}


def _spec(folder: Path, **content: Any) -> MajorityBiasSpec:
    data = {"train": str(folder / "train.jsonl"), "test": str(folder / "test.jsonl"), "max_test": 40}
    common = {"kind": "majority_bias", "name": folder.name, "model": {"path": "unused"}, "seeds": [0]}
    return MajorityBiasSpec.model_validate({**common, **content, "data": {**data, **content.get("data", {})}})


@pytest.mark.parametrize(
    ("name", "content", "labels", "n_train"),
    [
        ("boolq", {"prompt": {"preset": "boolq", "n_demos": 50}, "proportions": "binary_11"}, "True False", 2000),
        ("rte", {"prompt": {"preset": "rte", "n_demos": 10}, "proportions": "binary_11"}, "True False", 2490),
        ("tweets_stance", {"prompt": STANCE, "proportions": "ternary_15"}, "against favor none", 2914),
    ],
)
def test_grids_are_planned_on_real_data(
    shared: Path, name: str, content: dict[str, Any], labels: str, n_train: int
) -> None:
    spec = _spec(shared / "data" / "majority" / name, **content)
    dataset = read_dataset(spec)
    assert " ".join(dataset.labels) == labels
    n_left_out = sum(int(note.split()[1]) for note in dataset.notes)
    assert len(dataset.train) + n_left_out == n_train
    plans = list(plan_settings(spec, dataset, make_tokenizer(), None))
    assert len(plans) == (11 if spec.proportions == "binary_11" else 15)
    for plan in plans:
        (setting,) = plan.settings.to_pylist()
        assert n_prompts(plan.parts) == 2 * 40
        for context in plan.contexts.to_pylist():
            counts = dict(zip(setting["labels"], setting["counts"], strict=True))
            assert Counter(context["demo_labels"]) == Counter(counts)
            assert not {example.id for example in dataset.test} & set(context["demo_ids"])
    tokens = sum(part.tokens for plan in plans for part in plan.parts)
    assert tokens * 5 < sum(part.tokens_unshared for plan in plans for part in plan.parts)
