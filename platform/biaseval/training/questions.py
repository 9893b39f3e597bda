"""Questions as an objective: an extractive reader learns where answers start and end, with regard to a bias or without.

A row is a window (`features`). Every window counts the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from biaseval.errors import BiasevalError
from biaseval.scoring.blocks import on_device
from biaseval.training import debias
from biaseval.training.objectives import Objective, Share

Integers = npt.NDArray[np.int64]
Guide = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Another model's start and end logits of a window, ``[positions]`` each."""


@dataclass(frozen=True)
class Reading:
    """The inputs of a reader for some windows, and its outputs; all on one device."""

    logits: tuple[Tensor, Tensor]
    """Of the start and of the end, ``[windows, positions]`` each."""
    hidden_states: Tensor | None
    """``[windows, positions, width]`` of the last layer, where they are asked for."""
    positions: tuple[Tensor, Tensor]
    """Labels of start and end, ``[windows]`` each."""
    mask: Tensor | None
    """``[windows, positions]`` true except at padding; None if padding takes part."""
    guides: Mapping[str, tuple[Tensor, Tensor]]
    """``bias``, ``teacher``: start and end logits, ``[windows, positions]``."""


class Method(ABC):
    """A training method of readers: its loss, and its additional layers and logits."""

    guides: Sequence[str] = ()
    """The other models whose logits it needs: ``bias``, ``teacher``."""
    layers: nn.Module | None
    """Layers on the reader's hidden states that are trained with it and dropped afterwards; None without any."""

    @abstractmethod
    def loss(self, reading: Reading) -> Tensor:
        """Return the mean loss of the windows, in nats."""


@dataclass(frozen=True)
class Standard(Method):
    """Cross-entropy of the answer's start and end, their mean; also that of ``resample``, which repeats rows."""

    layers = None

    def loss(self, reading: Reading) -> Tensor:
        """Return the mean over windows and over start and end."""
        losses = []
        for logits, positions in zip(reading.logits, reading.positions, strict=True):
            shown = logits.float()
            if reading.mask is not None:
                shown = shown.masked_fill(~reading.mask, -torch.inf)
            losses.append(F.cross_entropy(shown, positions))
        return torch.stack(losses).mean()


@dataclass(frozen=True)
class LearnedMixin(Method):
    """LearnedMixin+H, see `debias.learned_mixin_loss`."""

    layers: nn.Linear
    bias_scale: float
    entropy_penalty: float
    variant: debias.LearnedMixinVariant = "paper"
    guides = ("bias",)

    @classmethod
    def new(cls, width: int, seed: int, **settings: Any) -> LearnedMixin:
        """Return it with a new gate for hidden states of this width, drawn from the seed."""
        n_inputs = 2 * width if settings.get("variant", "paper") == "paper" else width
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(nn.Linear(n_inputs, 1), **settings)

    def loss(self, reading: Reading) -> Tensor:
        """Return the mean over windows and over start and end."""
        if reading.hidden_states is None:
            raise ValueError("the gate needs hidden states")
        return debias.learned_mixin_loss(
            reading.logits, reading.guides["bias"], reading.hidden_states, reading.positions, self.layers,
            bias_scale=self.bias_scale, entropy_penalty=self.entropy_penalty, variant=self.variant,
            mask=reading.mask,
        )  # fmt: skip


@dataclass(frozen=True)
class ConfidenceRegularization(Method):
    """Confidence regularisation, see `debias.confidence_regularization_loss`."""

    bias_scale: float
    variant: debias.ConfidenceVariant = "utama"
    guides = ("teacher", "bias")
    layers = None

    def loss(self, reading: Reading) -> Tensor:
        """Return the mean over windows and over start and end; not a number where the variant ``head`` overflows."""
        try:
            return debias.confidence_regularization_loss(
                reading.logits, reading.guides["teacher"], reading.guides["bias"], reading.positions,
                bias_scale=self.bias_scale, variant=self.variant, mask=reading.mask,
            )  # fmt: skip
        except BiasevalError:  # it ends this training as any loss does that is not finite, in all its workers
            return torch.stack(reading.logits).float().sum() * torch.nan


@dataclass(frozen=True)
class ProductOfExperts(Method):
    """A product of experts, see `debias.product_of_experts_loss`."""

    bias_scale: float = 1.0
    guides = ("bias",)
    layers = None

    def loss(self, reading: Reading) -> Tensor:
        """Return the mean over windows and over start and end."""
        return debias.product_of_experts_loss(
            reading.logits, reading.guides["bias"], reading.positions, bias_scale=self.bias_scale, mask=reading.mask
        )


@dataclass(frozen=True)
class QuestionBatch:
    """Windows that go through the reader together, padded on the right."""

    inputs: Mapping[str, Integers]
    """What the model takes, ``[windows, positions]`` each."""
    is_token: Integers
    """``[windows, positions]`` 0 where there is padding."""
    start_positions: Integers
    end_positions: Integers
    guides: Mapping[str, Guide]
    """``[windows, positions]`` each; 0 where there is padding."""
    weight: float
    """Of the batch's mean loss in that of the step; 0 where no row is left."""


@dataclass(frozen=True)
class Questions(Objective):
    """Windows of questions to train on."""

    windows: pa.Table
    """As `features.question_features` returns them; a row may stand in it several times."""
    inputs: Sequence[str]
    """What the model takes of ``input_ids``, ``attention_mask`` and ``token_type_ids``."""
    pad_id: int
    method: Method = Standard()
    guides: Mapping[str, Sequence[Guide]] = field(default_factory=dict)
    """By what the method calls them, of each row: a logit for each token, of padding too where that takes part."""
    padded_to: int | None = None
    """All rows have so many positions, and padding takes part in the loss, as in the published code; None: rows are as
    long as the longest of their batch, and padding takes no part."""

    def __post_init__(self) -> None:
        """Lay the windows out in one piece: of parts, Arrow would put all together again for the rows of each step."""
        object.__setattr__(self, "windows", self.windows.combine_chunks())

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each window."""
        found: list[int] = pc.list_value_length(self.windows["token_ids"]).to_pylist()
        return found

    @property
    def layers(self) -> nn.Module | None:
        """The layers that are trained with the reader."""
        return self.method.layers

    def names(self, rows: Sequence[int]) -> list[str]:
        """Return the ids of their questions, each once."""
        return list(dict.fromkeys(self.windows["example_id"].take(pa.array(rows)).to_pylist()))

    def batches(self, rows: Sequence[int], share: Share) -> list[QuestionBatch]:
        """Return what one worker computes of the mean over the windows of a step."""
        lengths = [self.padded_to or self.lengths[row] for row in rows]
        return [
            self.batch(own, len(own) / len(rows)) if own else self.batch(rows[:1], 0.0)
            for own in share.batches_of_like_length(rows, lengths)
        ]

    def loss(self, model: PreTrainedModel, batch: QuestionBatch, device: torch.device) -> Tensor:
        """Return the weighted mean of the method's loss."""
        needs_states = self.layers is not None
        outputs = _outputs(model, batch, device, output_hidden_states=needs_states)
        states = "decoder_hidden_states" if model.config.is_encoder_decoder else "hidden_states"
        reading = Reading(
            logits=(outputs.start_logits, outputs.end_logits),
            hidden_states=outputs[states][-1] if needs_states else None,
            positions=(on_device(batch.start_positions, device), on_device(batch.end_positions, device)),
            mask=on_device(batch.is_token, device).bool() if self.padded_to is None else None,
            guides={
                name: (on_device(start, device), on_device(end, device)) for name, (start, end) in batch.guides.items()
            },
        )
        return self.method.loss(reading) * batch.weight

    def batch(self, rows: Sequence[int], weight: float = 1.0) -> QuestionBatch:
        """Return windows, at least one, as a batch whose mean loss counts so much."""
        chosen = self.windows.take(pa.array(rows))
        lengths = pc.list_value_length(chosen["token_ids"]).to_numpy()
        longest = int(lengths.max()) if self.padded_to is None else self.padded_to
        is_token = np.arange(longest) < lengths[:, None]
        shape, mask = is_token.shape, is_token.astype(np.int64)
        ids, types = np.full(shape, self.pad_id, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        ids[is_token] = pc.list_flatten(chosen["token_ids"]).to_numpy()
        types[is_token] = pc.list_flatten(chosen["token_types"]).to_numpy()
        guides = {name: (np.zeros(shape, np.float32), np.zeros(shape, np.float32)) for name in self.method.guides}
        for name, sides in guides.items():
            for place, (row, n) in enumerate(zip(rows, lengths.tolist(), strict=True)):
                for side, logits in zip(sides, self.guides[name][row], strict=True):
                    # Padding that takes part has logits, too.
                    if len(logits) != (n if self.padded_to is None else longest):
                        raise ValueError(f"{name}: {len(logits)} logits for a window of {n} tokens in {longest}")
                    side[place, : len(logits)] = logits
        made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return QuestionBatch(
            {name: made[name] for name in self.inputs},
            mask,
            chosen["start_position"].to_numpy().astype(np.int64),
            chosen["end_position"].to_numpy().astype(np.int64),
            guides,
            weight,
        )


def answer_logits(model: PreTrainedModel, batch: QuestionBatch, device: torch.device) -> Tensor:
    """Return start and end logits of a batch, ``[2, windows, positions]`` float32; those of padding mean nothing."""
    outputs = _outputs(model, batch, device)
    return torch.stack([outputs.start_logits, outputs.end_logits]).float()


def _outputs(model: PreTrainedModel, batch: QuestionBatch, device: torch.device, **options: bool) -> Any:
    reader: Any = model
    return reader(**{name: on_device(values, device) for name, values in batch.inputs.items()}, **options)
