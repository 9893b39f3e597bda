"""GenerativeReader: answers that a sequence-to-sequence or causal language model writes. Protocol section 12."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from biaseval import models
from biaseval.errors import InputError
from biaseval.qa_bias.predictions import written_answers
from biaseval.qa_models.questions import check_questions, distinct
from biaseval.qa_models.sequences import SequenceWriter
from biaseval.scoring import LabelScorer

PROMPT = "{context} {question} Answer:"
"""The published one."""

MAX_TOKENS = 20
"""Most tokens of an answer: for sequence-to-sequence models as published, the decoder's start token included."""


class GenerativeReader:
    """Answers questions greedily with a model and a prompt.

    Sequence-to-sequence models write at most 20 tokens, the decoder's start token included; the answer is all of it
    without special tokens. Causal models, which the published code does not have, write at most 20 new tokens; the
    answer is the text before the first line break, stripped. No prompt is cut: one that the model cannot take is
    refused.

    Args:
        writer: a sequence-to-sequence model's ``SequenceWriter`` or a causal model's ``LabelScorer``.
        prompt: the template, with ``{context}`` and ``{question}`` once each; nothing in a context or a
            question is replaced.

    Raises:
        InputError: a prompt without its fields.
    """

    def __init__(self, writer: SequenceWriter | LabelScorer, *, prompt: str = PROMPT) -> None:
        if prompt.count("{context}") != 1 or prompt.count("{question}") != 1:
            raise InputError(f"prompt {prompt!r}: must hold {{context}} and {{question}} once each")
        self.writer = writer
        self.prompt = prompt
        self._pieces = re.split(r"(\{context\}|\{question\})", prompt)

    @classmethod
    def load(
        cls, source: models.ModelSource, loading: models.Loading = models.ON_CPU, *, prompt: str = PROMPT
    ) -> GenerativeReader:
        """Load model and tokenizer and return their reader; which kind of model it is, its configuration says.

        Raises:
            InputError: what ``models.load_sequence_model`` and ``models.load_model`` refuse.
        """
        if not models.is_sequence_model(source):
            tokenizer = models.load_tokenizer(source)
            return cls(LabelScorer(models.load_model(source, loading), tokenizer), prompt=prompt)
        tokenizer = models.read_tokenizer(source)
        model = models.load_sequence_model(source, loading)
        return cls(SequenceWriter(model, tokenizer, max_tokens=MAX_TOKENS), prompt=prompt)

    def facts(self) -> dict[str, Any]:
        """Return how answers were made, for the record."""
        return self.writer.facts()

    def read(self, questions: pa.Table) -> pa.Table:
        """Answer every question.

        Args:
            questions: ``example_id`` (unique), ``question``, ``context``. The same question about the same context is
                answered once.

        Returns:
            One row per question, in order: ``example_id``, ``prediction``, ``score`` (null), ``n_best`` (empty).

        Raises:
            InputError: a table that ``check_questions`` refuses, prompts that are empty or too long for the model.
            BiasevalError: the model gives logits that are not numbers, or memory does not suffice.
        """
        ids, asked, contexts = check_questions(questions)
        prompts = [self._prompt(question, context) for question, context in zip(asked, contexts, strict=True)]
        if isinstance(self.writer, SequenceWriter):
            return written_answers(ids, self.writer.write(prompts, ids))
        rows, prompt_of_row = distinct([(prompt,) for prompt in prompts])
        distinct_prompts = {"prompt_id": [ids[row] for row in rows], "text": [prompts[row] for row in rows]}
        schema = pa.schema([("prompt_id", pa.string()), ("text", pa.string())])
        texts = self.writer.generate(pa.table(distinct_prompts, schema=schema), MAX_TOKENS)["text"].to_pylist()
        lines = [re.split(r"[\r\n]", text, maxsplit=1)[0].strip() for text in texts]
        return written_answers(ids, [lines[row] for row in prompt_of_row])

    def _prompt(self, question: str, context: str) -> str:
        given = {"{context}": context, "{question}": question}
        return "".join(given.get(piece, piece) for piece in self._pieces)
