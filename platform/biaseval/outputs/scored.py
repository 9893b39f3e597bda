"""The common form of imported scores, for every kind of file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Setting = tuple[int, int]
"""The number of demonstrations, and the number of the demonstration set."""

MOST_LOGPROB = 1e-3
"""The largest log-likelihood: rounding may lift that of a certain label slightly above 0."""


@dataclass(frozen=True)
class ScoredPrompt:
    """A prompt, and the score of each label after it."""

    task: str
    setting: Setting
    purpose: str
    """``main``, ``bias_score``, or the calibration whose input it is (``cc``, ``dc``, ``looc``)."""
    instance: str
    """The name of the input within its task and purpose, the same in every setting and unique within a setting."""
    gold: str | None
    """The right label; null for calibration inputs without one."""
    logprobs: Mapping[str, float]
    """Label to the summed log-likelihood of its tokens, in nats."""
    input: str | None
    """The question, the same in every setting; null if the file does not have it."""
    text: str | None
    """The whole prompt; null if the file does not have it."""
    place: str
    """File and line, for messages."""


@dataclass(frozen=True)
class Outputs:
    """The content of score files."""

    model: str | None
    """The model's name in the files."""
    prompts: Sequence[ScoredPrompt]
    sha256: str
    """The hash of all files that were read."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Task to the definition at the start of its prompts, if known."""
    notes: Sequence[str] = ()
    """Notes for readers of the results, one sentence each."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Facts about the scores for ``environment.json``."""
