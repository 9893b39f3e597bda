"""ExtractiveReader: answers that are spans of their context."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from biaseval.errors import BiasevalError, InputError
from biaseval.models import ON_CPU, Loading, ModelSource, encoder_window, load_extractive_model, load_reader_tokenizer
from biaseval.qa_bias.predictions import ANSWERS
from biaseval.qa_models.batches import Batches, token_budget_of
from biaseval.qa_models.questions import Integers, check_questions, distinct
from biaseval.qa_models.spans import Answer, Spans, best_spans, merged, window_answers
from biaseval.qa_models.windows import AS_PUBLISHED, Windows, WindowSettings, cut_windows, pair_form
from biaseval.scoring.memory import device_name, is_out_of_memory

logger = logging.getLogger(__name__)

Rank = Callable[[Integers, Spans], None]

_TYPED_FAMILIES = ("bert", "electra", "albert", "convbert", "funnel", "mobilebert", "rembert", "roformer", "xlnet")
"""Families whose tokenizers made token types up to transformers 4, when their checkpoints were trained.

From 5 on some of them leave token types out unless the tokenizer's files name them.
"""

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""What padding may change in a logit at most, as a share of the largest logit (or of 1, where all are smaller)."""


class ExtractiveReader:
    """Answers questions with a model that gives each token of a context a start and an end logit.

    Long contexts are read in windows (protocol section 7). Windows of like length run together, padded as little as
    possible. Before that, a few are compared with what the model gives each alone: a model that padding disturbs
    (Fourier mixing, convolutions) reads only windows of one length together. So answers are those of one forward pass
    per window without padding, up to rounding, and the same bit for bit in whatever order the questions come. (The
    published code pads to the full length, and lets padding take places among the best tokens.)

    Logits are compared and added in float32, whatever dtype the model runs in.

    Args:
        model: a question answering model in eval mode.
        tokenizer: its tokenizer, with character offsets.
        settings: how contexts are read, and which spans may be answers.
        token_budget: most tokens in one forward pass; halved for good when CUDA memory runs out. By default found from
            the device's free memory.

    Raises:
        InputError: windows longer than the model takes, or a tokenizer that is not the model's.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        settings: WindowSettings = AS_PUBLISHED,
        *,
        token_budget: int | None = None,
    ) -> None:
        window, max_tokens = encoder_window(model), settings.max_tokens
        if window is not None and max_tokens > window:
            raise InputError(f"max_tokens: {max_tokens}; {tokenizer.name_or_path} takes {window} tokens, lower it")
        if settings.stride >= max_tokens:
            raise InputError(f"stride: {settings.stride}; must be smaller than max_tokens ({max_tokens})")
        self.model = model
        self.tokenizer = tokenizer
        self.settings = settings
        self._inputs = reader_inputs(model, tokenizer)
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self._batches = Batches(
            token_budget if token_budget is not None else token_budget_of(model, max_tokens),
            n_workers=torch.get_num_threads() if model.device.type == "cpu" else 1,
        )
        self._difference: float | None = None

    @classmethod
    def load(
        cls,
        source: ModelSource,
        loading: Loading = ON_CPU,
        settings: WindowSettings = AS_PUBLISHED,
        *,
        allow_untrained_head: bool = False,
    ) -> ExtractiveReader:
        """Load model and tokenizer (see ``models.load_extractive_model``) and return their reader."""
        tokenizer = load_reader_tokenizer(source)
        model = load_extractive_model(source, loading, allow_untrained_head=allow_untrained_head)
        return cls(model, tokenizer, settings)

    def facts(self) -> dict[str, Any]:
        """Return how answers were made, for the record."""
        batches = self._batches
        return {
            "attention": self.model.config._attn_implementation,
            "dtype": str(self.model.dtype).removeprefix("torch."), "device": device_name(self.model.device),
            "token_budget": batches.token_budget, "n_workers": batches.n_workers, "is_padded": batches.is_padded,
            "self_test_difference": self._difference, "n_tokens": batches.n_tokens,
            "n_padded_tokens": batches.n_padded_tokens,
        }  # fmt: skip

    @torch.inference_mode()
    def read(self, questions: pa.Table) -> pa.Table:
        """Answer every question.

        Args:
            questions: ``example_id`` (unique), ``question``, ``context``. The same question about the same context is
                read once.

        Returns:
            One row per question, in order: ``example_id``; ``prediction``, the best span, or "" where there is none;
            ``score``, its start logit plus its end logit, null where there is none; ``n_best``, the ``n_best`` best
            spans with different texts, best first.

        Raises:
            InputError: a table that ``check_questions`` refuses, questions too long for the windows.
            BiasevalError: the model gives logits that are not finite, or memory does not suffice.
        """
        ids, asked, contexts = check_questions(questions)
        rows, pair_of_row = distinct(
            [(context, question.lstrip()) for context, question in zip(contexts, asked, strict=True)]
        )
        windows = cut_windows(
            self.tokenizer,
            [(asked[row], contexts[row]) for row in rows],
            [ids[row] for row in rows],
            max_tokens=self.settings.max_tokens,
            stride=self.settings.stride,
        )
        names = [ids[row] for row in rows[windows.pair]]
        self._refuse_foreign_tokens(windows, names)
        self._self_test(windows)
        found: list[list[Answer]] = [[] for _ in names]

        def rank(batch: Integers, spans: Spans) -> None:
            for place, window in enumerate(batch.tolist()):
                context = contexts[rows[windows.pair[window]]]
                characters = windows.characters(window)
                found[window] = window_answers(spans, place, context, characters, self.settings.n_best)

        with _later(rank, has_threads=self._batches.n_workers > 1) as rank_later:

            def run(batch: Integers) -> None:
                rank_later(batch, self._spans(windows, batch, names, *self._logits(windows, batch)))

            self._batches.run(windows.n_tokens, run, lambda window: f"question {names[window]!r}")
        bounds = np.searchsorted(windows.pair, np.arange(len(rows) + 1))
        best = [merged(found[start:stop], self.settings.n_best) for start, stop in pairwise(bounds)]
        return _answers(ids, [best[pair] for pair in pair_of_row])

    def _logits(self, windows: Windows, rows: Integers) -> tuple[torch.Tensor, torch.Tensor]:
        """Return start and end logits of some windows, ``[n_rows, width]`` float32; those of padding mean nothing."""
        batch = windows.padded(rows, self._pad_id)
        model: Any = self.model
        outputs = model(**{name: batch[name].to(model.device) for name in self._inputs})
        return outputs.start_logits.float(), outputs.end_logits.float()

    def _spans(
        self, windows: Windows, rows: Integers, names: list[str], start_logits: torch.Tensor, end_logits: torch.Tensor
    ) -> Spans:
        places = windows.places(rows, start_logits.device)
        is_token = torch.arange(start_logits.shape[1], device=start_logits.device) < places["n_tokens"][:, None]
        is_broken = (~torch.isfinite(start_logits + end_logits) & is_token).any(dim=1).cpu().numpy()
        if is_broken.any():
            dtype = str(self.model.dtype).removeprefix("torch.")
            raise BiasevalError(
                f"question {names[rows[is_broken.argmax()]]!r}: the model gives logits that are not finite "
                f"({is_broken.sum()} of {len(rows)} windows of a batch); try another dtype than {dtype}"
            )
        return best_spans(start_logits, end_logits, self.settings, **places)

    def _self_test(self, windows: Windows) -> None:
        """Compare the shortest window beside the longest with the same window alone, once."""
        lengths = windows.n_tokens
        if self._difference is not None or not len(lengths) or lengths.min() == lengths.max():
            return
        shortest, longest = int(lengths.argmin()), int(lengths.argmax())
        try:
            together = self._logits(windows, np.array([longest, shortest]))
            alone = self._logits(windows, np.array([shortest]))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            torch.cuda.empty_cache()  # another call may have shorter ones
            return
        n = int(lengths[shortest])
        difference = max(float((own[1, :n] - plain[0]).abs().max()) for own, plain in zip(together, alone, strict=True))
        scale = max(1.0, *(float(plain.abs().max()) for plain in alone))
        self._difference = difference
        if not difference <= TOLERANCE[self.model.dtype] * scale:
            self._batches.is_padded = False
            logger.warning(
                "%s: padding changes logits by up to %.2g; only windows of the same length run together",
                self.model.config.model_type,
                difference,
            )

    def _refuse_foreign_tokens(self, windows: Windows, names: list[str]) -> None:
        embeddings: Any = self.model.get_input_embeddings()
        vocabulary = int(embeddings.weight.shape[0])
        for row, name in enumerate(names):
            largest = max(
                windows.questions.ids[windows.question[row]].max(initial=-1),
                windows.contexts.ids[windows.context[row]].max(initial=-1),
            )
            if largest >= vocabulary:
                raise InputError(
                    f"question {name!r}: token {largest} is outside the model's vocabulary of {vocabulary}; "
                    "use the tokenizer that belongs to the model"
                )


def reader_inputs(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the inputs that the tokenizer makes and the model takes.

    Raises:
        InputError: a tokenizer that is not the model's.
    """
    taken = inspect.signature(type(model).forward).parameters
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in taken]
    is_silent = model.config.model_type in _TYPED_FAMILIES and "model_input_names" not in tokenizer.init_kwargs
    if "token_type_ids" not in tokenizer.model_input_names and not is_silent:
        return [name for name in names if name != "token_type_ids"]
    n_types = getattr(model.config, "type_vocab_size", None)
    form = pair_form(tokenizer)
    largest = max(int(np.max(own, initial=0)) for own in form.types)
    if "token_type_ids" in names and n_types and largest >= n_types:
        raise InputError(
            f"{tokenizer.name_or_path}: the tokenizer gives token type {largest}, the model knows {n_types}; "
            "use the tokenizer that belongs to the model"
        )
    return names


@contextmanager
def _later(rank: Rank, *, has_threads: bool) -> Iterator[Rank]:
    """Yield what ranks a batch's spans while the model reads the next; all are ranked after the block.

    Texts are cut and compared in Python, for which a GPU would wait. Batches that run on several threads each rank
    their own.
    """
    if has_threads:
        yield rank
        return
    with ThreadPoolExecutor(1) as executor:
        ranked: list[Future[None]] = []
        yield lambda batch, spans: ranked.append(executor.submit(rank, batch, spans))
        for each in ranked:
            each.result()


def _answers(ids: list[str], best: list[list[Answer]]) -> pa.Table:
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in best])]).astype(np.int32)
    flat = [answer for own in best for answer in own]
    struct = pa.StructArray.from_arrays(
        [pa.array([answer.text for answer in flat], pa.string()), pa.array([own.score for own in flat], pa.float64())],
        names=["text", "score"],
    )
    return pa.table(
        {
            "example_id": ids,
            "prediction": [own[0].text if own else "" for own in best],
            "score": [own[0].score if own else None for own in best],
            "n_best": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), struct),
        },
        schema=ANSWERS,
    )
