"""The losses against a shortcut equal the published code's, and padding takes no part in them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biaseval.errors import BiasevalError
from biaseval.training.debias import (
    LearnedMixinVariant,
    confidence_regularization_loss,
    learned_mixin_loss,
    product_of_experts_loss,
)

SIDES = ("start", "end")
GATES = {"paper": "g2", "head": "g", "clark": "g"}
GOLDEN_NAMES = {"paper": "lmix_adaptor", "head": "lmix_head"}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Mapping[str, Any]:
    return dict(np.load(shared / "golden/qa/losses.npz"))


def inputs(golden: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return fresh tensors; logits and hidden states may have gradients."""
    found = {name.removeprefix("in_"): torch.tensor(golden[name]) for name in golden if name.startswith("in_")}
    for name in ("logits_start", "logits_end", "hidden_states"):
        found[name].requires_grad_()
    return found


def gate_of(weight: Tensor, bias: Tensor) -> nn.Linear:
    gate = nn.Linear(weight.shape[1], 1, dtype=weight.dtype)
    with torch.no_grad():
        gate.weight.copy_(weight)
        gate.bias.copy_(bias)
    return gate


def call(loss: Callable[..., Tensor], own: Mapping[str, Tensor], *more: str, gate: Any = (), **settings: Any) -> Tensor:
    """Give a loss the logits, those of its guides, and labels."""
    names = ["logits", *(name for name in more if name != "hidden_states"), "labels"]
    given: list[Any] = [[own[f"{name}_{side}"] for side in SIDES] for name in names]
    if "hidden_states" in more:
        given.insert(-1, own["hidden_states"])
    return loss(*given, *gate, **settings)


def mixed(own: Mapping[str, Tensor], gate: nn.Linear, **settings: Any) -> Tensor:
    return call(learned_mixin_loss, own, "bias_logits", "hidden_states", gate=[gate], **settings)


def regularized(own: Mapping[str, Tensor], **settings: Any) -> Tensor:
    return call(confidence_regularization_loss, own, "teacher_logits", "bias_logits", **settings)


def multiplied(own: Mapping[str, Tensor], **settings: Any) -> Tensor:
    return call(product_of_experts_loss, own, "bias_logits", **settings)


def assert_gradients(found: Mapping[str, Tensor | None], golden: Mapping[str, Any], prefix: str) -> None:
    for name, gradient in found.items():
        assert gradient is not None, name
        np.testing.assert_allclose(gradient.numpy(), golden[f"{prefix}_grad_{name}"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", ["paper", "head"])
def test_learned_mixin_is_that_of_the_published_code(golden: Mapping[str, Any], variant: LearnedMixinVariant) -> None:
    name, gate_name = GOLDEN_NAMES[variant], GATES[variant]
    n_gradients = 0
    for row, penalty in enumerate(golden["H_values"]):
        for column, scale in enumerate(golden["x_values"]):
            own = inputs(golden)
            gate = gate_of(own[f"{gate_name}_weight"], own[f"{gate_name}_bias"])
            loss = mixed(own, gate, bias_scale=scale, entropy_penalty=penalty, variant=variant)
            assert loss.item() == pytest.approx(golden[f"{name}_loss_total"][row, column], abs=1e-10)
            prefix = f"{name}_H{penalty}_x{scale}"
            if f"{prefix}_grad_logits_start" in golden:
                n_gradients += 1
                loss.backward()
                gradients = {key: own[key].grad for key in ("logits_start", "logits_end", "hidden_states")}
                gradients |= {f"{gate_name}_weight": gate.weight.grad, f"{gate_name}_bias": gate.bias.grad}
                assert_gradients(gradients, golden, prefix)
    assert n_gradients == 4


def test_learned_mixin_is_that_of_its_definition(golden: Mapping[str, Any]) -> None:
    for row, penalty in enumerate(golden["H_values"]):
        own = inputs(golden)
        loss = mixed(
            own, gate_of(own["g_weight"], own["g_bias"]), bias_scale=1.0, entropy_penalty=penalty, variant="clark"
        )
        expected = np.mean([golden[f"clark_loss_{side}"][row] for side in SIDES])
        assert loss.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("variant", ["utama", "head"])
def test_confidence_regularization_is_that_of_the_published_code(golden: Mapping[str, Any], variant: Any) -> None:
    n_gradients = 0
    for column, scale in enumerate(golden["x_values"]):
        own = inputs(golden)
        loss = regularized(own, bias_scale=scale, variant=variant)
        assert loss.item() == pytest.approx(golden[f"creg_{variant}_loss_total"][column], abs=1e-10)
        prefix = f"creg_{variant}_x{scale}"
        if f"{prefix}_grad_logits_start" in golden:
            n_gradients += 1
            loss.backward()
            assert_gradients({key: own[key].grad for key in ("logits_start", "logits_end")}, golden, prefix)
    assert n_gradients == 2


def test_an_exponential_that_overflows_is_refused() -> None:
    """The published code goes on with NaN."""
    logits = torch.tensor([[1.0, 100.0, 2.0]])
    label = torch.tensor([1])
    sides = [logits, logits]
    with pytest.raises(BiasevalError, match=r"variant head: the exponential of a logit of 100 overflows float32; use"):
        confidence_regularization_loss(sides, sides, sides, [label, label], bias_scale=0.2, variant="head")
    loss = confidence_regularization_loss(sides, sides, sides, [label, label], bias_scale=0.2, variant="utama")
    assert loss.isfinite()


def test_a_product_of_experts_is_the_cross_entropy_of_both_together() -> None:
    """Three positions, by hand: probabilities multiply, each side for itself."""
    model = {"start": [0.5, 0.25, 0.25], "end": [0.2, 0.2, 0.6]}
    bias = {"start": [0.8, 0.1, 0.1], "end": [0.25, 0.25, 0.5]}
    # Raw logits of the bias may have any offset.
    own = {
        **{f"logits_{side}": torch.tensor([model[side]]).log() for side in SIDES},
        **{f"bias_logits_{side}": torch.tensor([bias[side]]).log() + 7 for side in SIDES},
        "labels_start": torch.tensor([0]),
        "labels_end": torch.tensor([1]),
    }
    together = [0.5 * 0.8 / (0.4 + 0.025 + 0.025), 0.2 * 0.25 / (0.05 + 0.05 + 0.3)]
    assert multiplied(own).item() == pytest.approx(-np.log(together).mean(), abs=1e-6)
    weaker = [
        0.5 * 0.8**0.5 / (0.5 * 0.8**0.5 + 2 * 0.25 * 0.1**0.5),
        0.2 * 0.25**0.5 / (2 * 0.2 * 0.25**0.5 + 0.6 * 0.5**0.5),
    ]
    assert multiplied(own, bias_scale=0.5).item() == pytest.approx(-np.log(weaker).mean(), abs=1e-6)


def losses(width: int) -> dict[str, Callable[..., Tensor]]:
    torch.manual_seed(0)
    single, double = nn.Linear(width, 1, dtype=torch.float64), nn.Linear(2 * width, 1, dtype=torch.float64)
    settings = {"bias_scale": 0.3, "entropy_penalty": 0.4}
    return {
        "paper": lambda own, **more: mixed(own, double, **settings, **more),
        "head": lambda own, **more: mixed(own, single, variant="head", **settings, **more),
        "clark": lambda own, **more: mixed(own, single, variant="clark", **settings, **more),
        "utama": lambda own, **more: regularized(own, bias_scale=0.3, **more),
        "creg head": lambda own, **more: regularized(own, bias_scale=0.3, variant="head", **more),
        "product": lambda own, **more: multiplied(own, bias_scale=0.3, **more),
    }


@pytest.mark.parametrize("name", list(losses(1)))
def test_padding_takes_no_part(name: str) -> None:
    """A padded batch with its mask has the loss and the gradients of one without padding, whatever padding holds."""
    width, n_rows, n_positions, n_padded = 4, 3, 6, 5
    loss_of = losses(width)[name]
    generator = torch.Generator().manual_seed(1)
    bare: dict[str, Tensor] = {
        key: torch.randn(n_rows, n_positions, generator=generator, dtype=torch.float64)
        for key in (f"{kind}_{side}" for kind in ("logits", "bias_logits", "teacher_logits") for side in SIDES)
    }
    bare["hidden_states"] = torch.randn(n_rows, n_positions, width, generator=generator, dtype=torch.float64)
    labels = {f"labels_{side}": torch.tensor([0, 2, 5]) for side in SIDES}
    mask = torch.arange(n_positions + n_padded).expand(n_rows, -1) < n_positions
    for filling in (30.0, -torch.inf):
        padded = {
            key: torch.cat([value, torch.full((n_rows, n_padded, *value.shape[2:]), 30.0, dtype=torch.float64)], dim=1)
            for key, value in bare.items()
        }
        for key in padded:
            if key.startswith(("bias", "teacher")):
                padded[key][:, n_positions:] = filling
        gradients = []
        for own, more in ((bare, {}), (padded, {"mask": mask})):
            leaf = own["logits_start"].clone().requires_grad_()
            loss = loss_of({**own, **labels, "logits_start": leaf}, **more)
            loss.backward()
            gradients.append((loss.item(), leaf.grad))
        (expected, of_bare), (found, of_padded) = gradients
        assert found == pytest.approx(expected, abs=1e-12)
        torch.testing.assert_close(of_padded[:, :n_positions], of_bare, rtol=0, atol=1e-12)
        assert not of_padded[:, n_positions:].any()
