"""The one form of scores that somebody else made, whatever file they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Setting = tuple[int, int]
"""The number of demonstrations, and which set of them."""

MOST_LOGPROB = 1e-3
"""Rounding may lift the logarithm of a certain label a little above 0, and no further."""


@dataclass(frozen=True)
class ScoredPrompt:
    """A prompt, and what a model gave each label behind it."""

    task: str
    setting: Setting
    purpose: str
    """``main``, ``bias_score``, or the calibration whose input it is (``cc``, ``dc``, ``looc``)."""
    instance: str
    """Names the input within its task and purpose, in every setting the same; no two prompts of one setting have it."""
    gold: str | None
    """Null for inputs of a calibration that have none."""
    logprobs: Mapping[str, float]
    """Label to the log-likelihood of its tokens together (nats)."""
    input: str | None
    """What is asked, in every setting the same; null where the file does not say."""
    text: str | None
    """The whole prompt; null where the file does not say."""
    place: str
    """File and line, for messages."""


@dataclass(frozen=True)
class Outputs:
    """What files of scores hold."""

    model: str | None
    """What they call the model."""
    prompts: Sequence[ScoredPrompt]
    sha256: str
    """Of all that was read."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Task to what its prompts begin with, where that is known."""
    notes: Sequence[str] = ()
    """What a reader of the results should know, a sentence each."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What ``environment.json`` says of them."""
