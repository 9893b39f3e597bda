"""Build prompts that equal those of P1's code byte for byte, and apply its length limit."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from biaseval.prompting.lengths import JOINT_MARGIN, PieceLengths, TokenCounter, merge_margin

INPUT = "input"
"""The one field of P1's prompts."""

_PUNCTUATION = frozenset(string.punctuation)


def with_full_stop(text: str) -> str:
    """Return ``text`` with a ``.`` after it, unless it ends in ASCII punctuation or is empty."""
    return text if not text or text[-1] in _PUNCTUATION else text + "."


def definition_text(definition: str) -> str:
    """Return the start of every prompt of a task."""
    return with_full_stop(definition.strip()) + "\n\n"


def demonstration_text(text: str, label: str) -> str:
    """Return one demonstration: input and answer, each with a full stop at its end."""
    shown_input = with_full_stop("Input: " + text.strip())
    return with_full_stop(f"{shown_input}\n Output: {label.strip()}") + "\n\n"


def test_text(text: str) -> str:
    """Return the test item, which ends in ``Output:`` without a space after it."""
    return with_full_stop("Input: " + text.strip()) + "\n\nOutput:"


@dataclass(frozen=True)
class PublishedFormat:
    """The format of P1's prompts, whose one field is ``input``."""

    definition: str
    """The definition of the task; empty if it has none."""

    @property
    def instruction(self) -> str | None:
        """The definition, without its separator."""
        return with_full_stop(self.definition.strip()) or None

    @property
    def head(self) -> str:
        """The text before the first item."""
        return definition_text(self.definition) if self.instruction else ""

    def demonstration(self, fields: Mapping[str, str], label: str) -> str:
        """Return an example with its answer."""
        return demonstration_text(fields[INPUT], label)

    def test(self, fields: Mapping[str, str]) -> str:
        """Return an example up to its answer."""
        return test_text(fields[INPUT])


@dataclass(frozen=True)
class FittedPrompt:
    """A prompt under the length limit."""

    n_demos_used: int
    """The number of demonstrations kept, from the first one on."""
    text: str | None
    """The whole prompt if it was truncated; None if it is definition + kept demonstrations + test item."""
    n_tokens: int
    """Tokens of the prompt: exact near the limit, elsewhere the sum over its pieces."""


class PromptFitter:
    """Apply the length limit of P1's code to prompts made of pieces.

    The fitter adds demonstrations in order while the text joined by spaces fits, and stops at the first that does not.
    A prompt that is too long without demonstrations is truncated on the right (without ``Output:``).

    The rule needs the length of whole texts. Tokenising each text again for every demonstration would dominate
    planning. The fitter therefore sums lengths over pieces, and tokenises whole texts only if the sum is within a
    margin of the limit. This is safe because tokens merge only where pieces meet, a few at each joint. Near the limit
    it measures the error of the sum once for each head of a prompt, so only the last joint remains unknown.
    """

    def __init__(self, tokenizer: TokenCounter, max_tokens: int) -> None:
        self.lengths = PieceLengths(tokenizer)
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._offsets: dict[str, int] = {}

    def fit(self, definition: str, demonstrations: Sequence[str], test: str) -> FittedPrompt:
        """Return the prompt made of these pieces, each as a prompt shows it, within the limit."""
        total = self.lengths.n_special + self.lengths.of(definition) + self.lengths.of(test)
        in_demos = [self.lengths.of(demonstration) for demonstration in demonstrations]
        if (whole := total + sum(in_demos)) + merge_margin(len(demonstrations)) < self._max_tokens:
            # Every shorter prompt fits too: nearly all prompts end here.
            return FittedPrompt(n_demos_used=len(demonstrations), text=None, n_tokens=whole)
        kept = 0
        for demo_tokens in in_demos:
            longer = total + demo_tokens
            if not self._fits(longer, definition, demonstrations[: kept + 1], " ", test):
                break
            kept, total = kept + 1, longer
        if self._fits(total, definition, demonstrations[:kept], "", test):
            return FittedPrompt(n_demos_used=kept, text=None, n_tokens=total)
        text = self._tokenizer.cut(definition + "".join(demonstrations[:kept]) + test, self._max_tokens)
        return FittedPrompt(n_demos_used=kept, text=text, n_tokens=self._tokenizer.count(text))

    def _fits(self, estimate: int, definition: str, demonstrations: Sequence[str], joint: str, test: str) -> bool:
        # P1's code joins by a space while it adds demonstrations, and by nothing in the prompt.
        if abs(estimate - self._max_tokens) > merge_margin(len(demonstrations)):
            return estimate < self._max_tokens
        head = definition + joint.join(demonstrations)
        if head not in self._offsets:
            self._offsets[head] = self._tokenizer.count(head + test) - estimate
        # The merges inside the head are now known; only its joint with this test item may differ.
        if abs(estimate + self._offsets[head] - self._max_tokens) > JOINT_MARGIN:
            return estimate + self._offsets[head] < self._max_tokens
        return self._tokenizer.count(head + test) <= self._max_tokens
