"""Turns prompts and labels into token ids, the whole text at once, without tokenising shared text twice.

The text is prompt + separator + label + EOS, tokenised together. Its first tokens are the context, and the rest, label
tokens and EOS, is scored: where a label begins is said in ``boundary``. Behind a prompt that does not end in white
space, and joins with no label, that is P1's rule: the context is the first ``len(tokenizer(prompt))`` ids.

A few-shot prompt is tokenised with every row and every label, and all but its end is the same each time. Where the
structure of the tokenizer proves that it never joins anything across "printable ASCII character, space", texts are cut
at such places, each distinct piece is tokenised once, and the ids are joined. Other tokenizers get whole texts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from biaseval.errors import InputError, refuse
from biaseval.parsing import json_value
from biaseval.prompting.beginnings import without_second_bos
from biaseval.prompting.labels import separator
from biaseval.scoring.boundary import Ids, beginnings, n_context, n_staying, parted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

ENCODED = pa.schema(
    [
        ("prompt_id", pa.string()),
        ("label", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("n_context_tokens", pa.int32()),
        ("n_label_tokens", pa.int32()),
    ]
)

_BOUNDARY = re.compile(r"(?<=[!-~]) (?=[\s\S])")
_PIECE_CHARACTERS = 256
_N_VERIFIED = 3

# Patterns of byte-level pre-tokenizers, as their projects publish them. None has an alternative in which a space
# follows a non-space, none looks behind, and none looks ahead from a non-space: so each of them ends a match at "x| ",
# and its matches on either side are the same when the two sides are matched separately.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WHITESPACE_RUNS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = frozenset(
    {
        # GPT-2
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
        # GPT-4 (cl100k), Llama 3
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _WHITESPACE_RUNS,
        # Qwen 2
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _WHITESPACE_RUNS,
    }
)

_DIGITS = frozenset({"[0-9][0-9][0-9]"})  # Falcon


def encode(tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> pa.Table:
    """Tokenise prompts with each of their labels.

    Args:
        tokenizer: one that ``models.load_tokenizer`` accepts.
        prompts: ``prompt_id`` (unique), ``text``, ``labels`` (list of non-empty strings, at least one). A text may
            begin with the token that the tokenizer puts before every text; it is there once. With the column
            ``n_prefix_characters``, the tokens of so many characters alone replace as many of the text (P1's code).

    Returns:
        One row per (prompt, label) in the order of ``prompts`` and of the labels: ``prompt_id``, ``label``,
        ``token_ids`` (context, label, EOS), ``n_context_tokens``, ``n_label_tokens`` (without EOS, at least 1); so
        ``len(token_ids) == n_context_tokens + n_label_tokens + 1``.

    Raises:
        InputError: missing columns or values, a repeated ``prompt_id``, a prompt without any token before the label,
            a label without a token of its own, or two labels of a prompt with the same tokens.
    """
    prompt_ids, written, labels = _columns(prompts)
    texts = [without_second_bos(tokenizer, text) for text in written]
    eos = str(tokenizer.eos_token)
    bodies, tails = zip(*map(parted, texts), strict=True) if texts else ((), ())
    endings = [
        [*beginnings(tail), *(tail + separator(text, label) + label + eos for label in own)]
        for text, tail, own in zip(texts, tails, labels, strict=True)
    ]
    encoded = _encoded_texts(tokenizer, bodies, endings)
    prefixes = _prefixes(tokenizer, prompts)

    rows: dict[str, list[Any]] = {name: [] for name in ENCODED.names}
    problems = []
    for prompt_id, tail, own, (body, found), prefix in zip(prompt_ids, tails, labels, encoded, prefixes, strict=True):
        beginning, sequences = [body, *found[: len(tail)]], found[len(tail) :]
        staying = beginning[: n_staying(tokenizer, len(tokenizer), tail) + 1]
        for label, ids in zip(own, sequences, strict=True):
            n_before = n_context(staying, ids)
            n_label = len(ids) - n_before - 1
            if np.array_equal(ids[:-1], beginning[-1][: len(ids) - 1]):
                problems.append(
                    f"prompt {prompt_id!r}: label {label!r} adds no token to the prompt; change it, or the tokenizer"
                )
            elif n_label < 1 or ids[-1] != tokenizer.eos_token_id:
                problems.append(
                    f"prompt {prompt_id!r}: label {label!r} has no token of its own followed by EOS with this "
                    "tokenizer; change the label or the end of the prompt"
                )
            elif n_before == 0:
                problems.append(
                    f"prompt {prompt_id!r}: no token before the label {label!r}; give the prompt a text before it"
                )
            if len(prefix):
                ids = np.concatenate([prefix[:n_before], ids[len(prefix[:n_before]) :]])
            for name, value in zip(ENCODED.names, (prompt_id, label, ids, n_before, n_label), strict=True):
                rows[name].append(value)
        problems += [f"prompt {prompt_id!r}: {problem}" for problem in _indistinct(own, sequences)]
    refuse(problems[:20])
    return pa.table({**rows, "token_ids": _list_array(rows["token_ids"])}, schema=ENCODED)


def _prefixes(tokenizer: PreTrainedTokenizerBase, prompts: pa.Table) -> list[Ids]:
    """Return the tokens of each prompt's shared prefix alone; none where prompts say nothing of it."""
    if "n_prefix_characters" not in prompts.column_names:
        return [np.empty(0, dtype=np.int32)] * prompts.num_rows
    counts = prompts["n_prefix_characters"].to_pylist()
    texts = [text[: n or 0] for text, n in zip(prompts["text"].to_pylist(), counts, strict=True)]
    ids = {text: tokenizer(without_second_bos(tokenizer, text), verbose=False)["input_ids"] for text in set(texts)}
    return [np.asarray(ids[text], dtype=np.int32) for text in texts]


def _indistinct(labels: Sequence[str], sequences: Sequence[Ids]) -> Iterator[str]:
    first: dict[bytes, str] = {}
    for label, ids in zip(labels, sequences, strict=True):
        other = first.setdefault(ids.tobytes(), label)
        if other is not label:
            yield f"labels {other!r} and {label!r} have the same tokens; rename one, or use another tokenizer"


def check_prompts(prompts: pa.Table) -> tuple[list[str], list[str]]:
    """Return ``prompt_id`` and ``text`` of all prompts; InputError where they are missing or an id is repeated."""
    if missing := [name for name in ("prompt_id", "text") if name not in prompts.column_names]:
        raise InputError(f"prompts: column {', '.join(missing)} missing; prompt_id and text are needed")
    prompt_ids, texts = prompts["prompt_id"].to_pylist(), prompts["text"].to_pylist()
    seen: set[str] = set()
    problems = []
    for prompt_id, text in zip(prompt_ids, texts, strict=True):
        if not isinstance(prompt_id, str) or prompt_id in seen:
            problems.append(f"prompt_id {prompt_id!r}: missing or repeated; each prompt needs its own string")
        elif not isinstance(text, str):
            problems.append(f"prompt {prompt_id!r}: no text")
        seen.add(prompt_id)
    refuse(problems[:20])
    return prompt_ids, texts


def _columns(prompts: pa.Table) -> tuple[list[str], list[str], list[list[str]]]:
    prompt_ids, texts = check_prompts(prompts)
    if "labels" not in prompts.column_names:
        raise InputError("prompts: column labels missing; prompt_id, text and labels are needed")
    labels = prompts["labels"].to_pylist()
    problems = [
        f"prompt {prompt_id!r}: labels {own!r} must be a list of non-empty strings"
        for prompt_id, own in zip(prompt_ids, labels, strict=True)
        if not own or not all(isinstance(label, str) and label for label in own)
    ]
    refuse(problems[:20])
    return prompt_ids, texts, labels


def _encoded_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], endings: Sequence[Sequence[str]]
) -> list[tuple[Ids, list[Ids]]]:
    """Return, per text, its ids and those of text + ending for each of its endings."""
    rules = _cutting_rules(tokenizer, len(tokenizer))
    if rules is None or len(texts) <= _N_VERIFIED:
        return _encoded_whole(tokenizer, texts, endings)
    encoded = _encoded_in_pieces(tokenizer, rules, texts, endings)
    # The rules hold for the content of the tokenizer's files; this guards against behaviour outside the files.
    by_length = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    sample = [by_length[i * (len(by_length) - 1) // (_N_VERIFIED - 1)] for i in range(_N_VERIFIED)]
    expected = _encoded_whole(tokenizer, [texts[row] for row in sample], [endings[row] for row in sample])
    for row, (body, sequences) in zip(sample, expected, strict=True):
        if not all(map(np.array_equal, [encoded[row][0], *encoded[row][1]], [body, *sequences])):
            logger.warning("tokenising in pieces differs from tokenising whole texts; using whole texts")
            return _encoded_whole(tokenizer, texts, endings)
    return encoded


def _encoded_whole(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], endings: Sequence[Sequence[str]]
) -> list[tuple[Ids, list[Ids]]]:
    wholes = [text + ending for text, own in zip(texts, endings, strict=True) for ending in own]
    distinct = list(dict.fromkeys([*texts, *wholes]))
    ids = tokenizer(distinct, return_attention_mask=False, verbose=False)["input_ids"] if distinct else []
    by_text = {text: np.asarray(own, dtype=np.int32) for text, own in zip(distinct, ids, strict=True)}
    return [
        (by_text[text], [by_text[text + ending] for ending in own]) for text, own in zip(texts, endings, strict=True)
    ]


@dataclass(frozen=True)
class _CuttingRules:
    """How to tokenise in pieces with one tokenizer."""

    opening_ids: Ids
    """What the tokenizer puts before every text."""
    is_space_prepended: bool
    """The tokenizer puts a space before every text, also one that begins with a space; so a piece gives its own up."""
    added_tokens: re.Pattern[str]
    """Tokens that are found in the text before anything else. Prompts that contain one are not cut."""


def _encoded_in_pieces(
    tokenizer: PreTrainedTokenizerBase, rules: _CuttingRules, texts: Sequence[str], endings: Sequence[Sequence[str]]
) -> list[tuple[Ids, list[Ids]]]:
    numbers: dict[str, int] = {}

    def number(piece: str) -> int:
        return numbers.setdefault(piece, len(numbers))

    plan: list[tuple[list[int], list[list[int]]] | None] = []
    for text, own in zip(texts, endings, strict=True):
        if not text or rules.added_tokens.search(text):
            plan.append(None)
            continue
        pieces = list(_pieces(text, rules.is_space_prepended))
        head = [number(piece) for piece in pieces[:-1]]
        tails = []
        for ending in own:
            is_cut = ending[0] == " " and "!" <= text[-1] <= "~"
            if is_cut and (not rules.is_space_prepended or _keeps_its_space(rules, ending)):
                tails.append([number(pieces[-1]), number(ending[1:] if rules.is_space_prepended else ending)])
            else:
                tails.append([number(pieces[-1] + ending)])
        plan.append(([*head, number(pieces[-1])], [head + tail for tail in tails]))

    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    found = backend.encode_batch_fast(list(numbers), add_special_tokens=False)
    ids = [np.asarray(encoding.ids, dtype=np.int32) for encoding in found]

    def joined(pieces: Sequence[int]) -> Ids:
        return np.concatenate([rules.opening_ids, *(ids[piece] for piece in pieces)])

    uncut = [row for row, pieces in enumerate(plan) if pieces is None]
    wholes = iter(_encoded_whole(tokenizer, [texts[row] for row in uncut], [endings[row] for row in uncut]))
    return [
        next(wholes) if pieces is None else (joined(pieces[0]), [joined(own) for own in pieces[1]]) for pieces in plan
    ]


def _pieces(text: str, is_space_prepended: bool) -> Iterator[str]:
    """Cut a text before spaces that follow printable ASCII. Texts that begin alike give the same first pieces."""
    start = 0
    while (match := _BOUNDARY.search(text, start + _PIECE_CHARACTERS)) is not None:
        yield text[start : match.start()]
        # A tokenizer that prepends a space reads the piece "x" as " x"; an empty piece would lose the space.
        start = match.end() if is_space_prepended else match.start()
    yield text[start:]


def _keeps_its_space(rules: _CuttingRules, ending: str) -> bool:
    """Return whether the tokenizer prepends a space to ``ending[1:]``: not to nothing, nor to an added token."""
    return len(ending) > 1 and rules.added_tokens.match(ending, 1) is None


@lru_cache(maxsize=8)
def _cutting_rules(tokenizer: PreTrainedTokenizerBase, n_tokens: int) -> _CuttingRules | None:
    """Return how texts can be cut for this tokenizer, or None where nothing proves that they can.

    ``n_tokens`` is the size of its vocabulary, so that adding tokens to a tokenizer asks again.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not tokenizer.is_fast:
        return None
    model = backend.model
    if type(model).__name__ != "BPE" or model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    added = list(backend.get_added_tokens_decoder().values())
    if any(token.single_word or any(map(str.isspace, token.content)) for token in added):
        return None
    normalizers, splitters = _parts(backend.normalizer, "normalizers"), _parts(backend.pre_tokenizer, "pretokenizers")
    is_space_prepended = normalizers == _PREPENDED and not splitters
    if not is_space_prepended and normalizers not in ([], [{"type": "NFC"}]):
        return None
    if not _is_split_at_spaces(splitters):
        # One long word: only the vocabulary can say where it never holds together.
        is_metaspace = [step["type"] for step in splitters] == ["Metaspace"] and not normalizers
        if not (is_space_prepended or is_metaspace) or model.ignore_merges:
            return None
        if not _never_joins_words(tokenizer.get_vocab()):
            return None
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    opening = tokenizer("a")["input_ids"]
    return _CuttingRules(
        opening_ids=np.asarray(opening[: len(opening) - len(bare)], dtype=np.int32),
        is_space_prepended=is_space_prepended,
        added_tokens=re.compile("|".join(re.escape(token.content) for token in added) or r"(?!)"),
    )


# Llama 2, Mistral and other tokenizers converted from SentencePiece; the newer form of the same is Metaspace.
_PREPENDED = [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]


def _parts(component: Any, key: str) -> list[dict[str, Any]]:
    """Return the description of a normalizer or pre-tokenizer as a flat list of its steps."""
    if component is None:
        return []
    state = json_value(component.__getstate__())
    return state[key] if state["type"] == "Sequence" else [state]


def _is_split_at_spaces(splitters: list[dict[str, Any]]) -> bool:
    """Return whether these steps are a byte-level pre-tokenizer that always starts a new word at "x| "."""
    is_byte_level = is_split = False
    for step in splitters:
        if step["type"] == "ByteLevel":
            is_byte_level = True
            is_split |= step["use_regex"]
        elif step["type"] == "Split":
            pattern = step["pattern"].get("Regex")
            if step["behavior"] != "Isolated" or step["invert"] or pattern not in _WORDS | _DIGITS:
                return False
            is_split |= pattern in _WORDS
        elif step["type"] not in ("Punctuation", "Digits"):  # these two split runs of one kind of character
            return False
    return is_byte_level and is_split


def _never_joins_words(vocabulary: dict[str, int]) -> bool:
    """Return whether no token holds a word's end and the next word's space: then no merge ever crosses "x| "."""
    return "▁" in vocabulary and not any("▁" in token.lstrip("▁") for token in vocabulary)


def _list_array(rows: Sequence[Ids]) -> pa.ListArray:
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    values = np.concatenate(rows) if rows else np.empty(0, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
