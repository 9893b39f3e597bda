"""Logits that readers are trained with: of bias models and teachers, once for every window that is trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.errors import InputError
from biaseval.pipelines.questions import use_threads
from biaseval.qa_bias.data import read_file
from biaseval.qa_bias.tfidf_bias import SentenceCosines, token_log_probabilities
from biaseval.spec import QaBiasSpec, QaTrainSpec
from biaseval.store import Run
from biaseval.tables import QA_GUIDE_LOGITS

if TYPE_CHECKING:
    from biaseval.execute.parts import Task
    from biaseval.execute.resources import Allocation

Sides = tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]
"""Start and end logits of windows, in their order."""


class GuideWorker:
    """Has one guide after another read windows, whatever it is."""

    def __init__(self, run: Run, allocation: Allocation, *, spec: QaBiasSpec, train: QaTrainSpec) -> None:
        use_threads(allocation)
        self._run, self._allocation, self._spec, self._train = run, allocation, spec, train
        self._guides: dict[str, Callable[[Mapping[str, Any], pa.Table], Sides]] = {}

    def make(self, task: Task, prepared: None) -> Mapping[str, Any]:
        """Write a part of ``qa_guide_logits``."""
        [file] = task.files
        work = task.work
        if work["guide"] not in self._guides:
            self._guides.clear()  # two models need not fit a device
            self._guides[work["guide"]] = self._loaded(work)
        features = self._run.read_part("qa_features", work["features"])
        start, end = self._guides[work["guide"]](work, features)
        table = pa.table(
            {
                "guide": pa.array([work["guide"]] * features.num_rows, pa.string()),
                **{name: features[name] for name in ("base", "dataset", "example_id", "window")},
                "start_logits": pa.array(start, pa.list_(pa.float32())),
                "end_logits": pa.array(end, pa.list_(pa.float32())),
            },
            schema=QA_GUIDE_LOGITS.schema,
        )
        self._run.write_table(file, table)
        return {}

    def _loaded(self, work: Mapping[str, Any]) -> Callable[[Mapping[str, Any], pa.Table], Sides]:
        if work["source"] == "tfidf":
            return self._tfidf(work)
        if work["source"] == "predictions":
            return FileLogits(str(self._train.bias_model.predictions), work["bias"], self._padded_to)
        return self._reader(work)

    @property
    def _padded_to(self) -> int | None:
        return None if self._train.mask_padding else self._spec.windows.max_tokens

    def _reader(self, work: Mapping[str, Any]) -> Callable[[Mapping[str, Any], pa.Table], Sides]:
        import torch

        from biaseval.models import Loading, ModelSource, load_extractive_model, load_reader_tokenizer
        from biaseval.reading import reader_inputs
        from biaseval.training.questions import Questions, answer_logits

        with self._run.local_folder(work["folder"]) as folder:
            source = ModelSource(folder, trust_remote_code=work["is_trusted"])
            model = load_extractive_model(source, Loading("float32", self._allocation.device))
            tokenizer = load_reader_tokenizer(source)
        inputs, pad_id = reader_inputs(model, tokenizer), tokenizer.pad_token_id or 0

        def read(_: Mapping[str, Any], features: pa.Table) -> Sides:
            windows = Questions(features, inputs, pad_id, padded_to=self._padded_to)
            order = np.argsort(-np.array(windows.lengths), kind="stable").tolist()
            found: dict[int, npt.NDArray[np.float32]] = {}
            for first in range(0, len(order), self._train.batch_size):
                rows = order[first : first + self._train.batch_size]
                with torch.inference_mode():
                    logits = answer_logits(model, windows.batch(rows), model.device).cpu().numpy()
                for place, row in enumerate(rows):
                    found[row] = logits[:, place, : self._padded_to or windows.lengths[row]]
            return [found[row][0] for row in range(len(order))], [found[row][1] for row in range(len(order))]

        return read

    def _tfidf(self, work: Mapping[str, Any]) -> Callable[[Mapping[str, Any], pa.Table], Sides]:
        from biaseval.models import ModelSource, load_reader_tokenizer
        from biaseval.qa_bias.text import load_text
        from biaseval.training.features import cut_questions

        [base] = [base for base in self._train.bases if base.name == work["base"]]
        tokenizer = load_reader_tokenizer(ModelSource.of(base))
        cosines = SentenceCosines(load_text(self._spec.text.nltk_data))
        settings = self._spec.windows

        def read(work: Mapping[str, Any], features: pa.Table) -> Sides:
            examples = self._run.read_part("qa_training_examples", work["examples"])
            windows = cut_questions(tokenizer, examples, max_tokens=settings.max_tokens, stride=settings.stride)
            asked, contexts = (examples[name].to_pylist() for name in ("question", "context"))
            logits = []
            for row, pair in enumerate(windows.pair.tolist()):
                sentences, values = cosines.of(asked[pair], contexts[pair])
                own = token_log_probabilities(
                    sentences,
                    values,
                    work["weight"],
                    windows.characters(row),
                    int(windows.n_tokens[row]),
                    int(windows.context_place[row]),
                )
                # Padding that takes part is as improbable as a number allows that is no infinity.
                logits.append(np.pad(own, (0, (self._padded_to or len(own)) - len(own)), constant_values=-1e4))
            return logits, logits

        return read


class FileLogits:
    """Logits that a Parquet file holds, for the windows that ask for them."""

    def __init__(self, uri: str, bias: str | None, padded_to: int | None) -> None:
        self._uri, self._padded_to = uri, padded_to
        self._rows = logits_of_file(uri, bias)

    def __call__(self, work: Mapping[str, Any], features: pa.Table) -> Sides:
        """Return the logits of windows.

        Raises:
            InputError: the file lacks some, or has another number of logits than a window has tokens.
        """
        names = list(zip(features["example_id"].to_pylist(), features["window"].to_pylist(), strict=True))
        lacking = [name for name in names if name not in self._rows]
        if lacking:
            raise InputError(
                f"{self._uri}: lacks {len(lacking):,} of {len(names):,} windows of a part of {work['data']} (first: "
                f"window {lacking[0][1]} of question {lacking[0][0]}); add them, one row for each window"
            )
        found = [self._rows[name] for name in names]
        lengths = [self._padded_to or len(own) for own in features["token_ids"].to_pylist()]
        for name, sides, length in zip(names, found, lengths, strict=True):
            if {len(side) for side in sides} != {length}:
                raise InputError(
                    f"{self._uri}: window {name[1]} of question {name[0]} has {len(sides[0])} start and "
                    f"{len(sides[1])} end logits, and {length} tokens by the tokenizer of {work['base']}; give "
                    "one for each"
                )
        return [start for start, _ in found], [end for _, end in found]


def logits_of_file(
    uri: str, bias: str | None
) -> dict[tuple[str, int], tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
    """Return the logits that a Parquet file has for a bias, by question and window.

    Raises:
        InputError: it cannot be read, lacks columns, has numbers that are not finite, or a window twice.
    """
    table = _parquet(uri)
    if bias is not None and "bias" in table.column_names:
        chosen = [own in (bias, None) for own in table["bias"].to_pylist()]
        table = table.filter(pa.array(chosen, pa.bool_()))
    windows = table["window"].to_pylist() if "window" in table.column_names else [0] * table.num_rows
    keys = list(zip(table["example_id"].to_pylist(), windows, strict=True))
    if len(set(keys)) < len(keys):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise InputError(f"{uri}: has window {twice[1]} of question {twice[0]} twice; keep one row")
    sides = [
        [np.array(own, dtype=np.float32) for own in table[name].to_pylist()] for name in ("start_logits", "end_logits")
    ]
    for key, start, end in zip(keys, *sides, strict=True):
        if not (np.isfinite(start).all() and np.isfinite(end).all()):
            raise InputError(f"{uri}: a logit of window {key[1]} of question {key[0]} is not finite; mend it")
    return dict(zip(keys, zip(*sides, strict=True), strict=True))


def _parquet(uri: str) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(read_file(uri)))
    except pa.ArrowException as error:
        raise InputError(f"{uri}: is no Parquet file ({error}); give one with a row for each window") from error
    sides = ("start_logits", "end_logits")
    lacking = [name for name in ("example_id", *sides) if name not in table.column_names]
    lacking += [
        name for name in sides if name in table.column_names and not _is_list_of_numbers(table.schema.field(name).type)
    ]
    if lacking:
        raise InputError(
            f"{uri}: has no such column {', '.join(lacking)}; it needs example_id, start_logits and end_logits (lists "
            "of a number for each token), and window where questions have several"
        )
    return table


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def check_logits_file(uri: str, biases: Sequence[str], ids: Sequence[str]) -> None:
    """Make sure that a file has logits of all questions for all biases, as far as that is known before windows are cut.

    Raises:
        InputError: it cannot be used, or lacks questions.
    """
    for bias in biases:
        known = {name for name, _ in logits_of_file(uri, bias)}
        lacking = [name for name in ids if name not in known]
        if lacking:
            raise InputError(
                f"{uri}: has no logits of {len(lacking):,} of {len(ids):,} training questions for {bias} (first: "
                f"{lacking[0]}); add them, or leave these questions out of train.data"
            )
