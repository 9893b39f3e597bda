"""Logits that readers are trained with: of bias models, teachers or files, for every window once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from biaseval.errors import InputError
from biaseval.execute.machine import take_share
from biaseval.execute.tasks import Made, Task
from biaseval.qa_bias.tfidf_bias import SentenceCosines, token_log_probabilities
from biaseval.records import read_file
from biaseval.spec import QaBiasSpec, QaTrainSpec
from biaseval.store import Run
from biaseval.tables import QA_GUIDE_LOGITS

if TYPE_CHECKING:
    from biaseval.execute.resources import Allocation


_SIDES = ("start_logits", "end_logits")

Sides = tuple[list[npt.NDArray[np.float32]], list[npt.NDArray[np.float32]]]
"""Start and end logits of windows, in their order."""


class FileLogits:
    """Logits that a Parquet file holds for a bias, for the windows that ask for them; until then they stay in Arrow."""

    def __init__(self, uri: str, bias: str | None, padded_to: int | None) -> None:
        self._uri, self._padded_to = uri, padded_to
        rows = _of_bias(uri, _parquet(uri), bias)
        self._places = {key: place for place, key in enumerate(_keys(rows))}
        self._sides = [rows[name].combine_chunks() for name in _SIDES]

    def __call__(self, work: Mapping[str, Any], features: pa.Table) -> Sides:
        """Return the logits of windows.

        Raises:
            InputError: the file lacks some, or has another number of logits than a window has tokens.
        """
        names = _keys(features)
        if lacking := [name for name in names if name not in self._places]:
            raise InputError(
                f"{self._uri}: lacks {len(lacking):,} of {len(names):,} windows of a part of {work['data']} (first: "
                f"window {lacking[0][1]} of question {lacking[0][0]}); add them, one row for each window"
            )
        found = [[self._of(side, self._places[name]) for name in names] for side in self._sides]
        lengths = [self._padded_to or len(own) for own in features["token_ids"].to_pylist()]
        for name, start, end, length in zip(names, *found, lengths, strict=True):
            if {len(start), len(end)} != {length}:
                raise InputError(
                    f"{self._uri}: window {name[1]} of question {name[0]} has {len(start)} start and {len(end)} end "
                    f"logits, and {length} tokens by the tokenizer of {work['base']}; give one for each"
                )
        return found[0], found[1]

    @staticmethod
    def _of(side: Any, place: int) -> npt.NDArray[np.float32]:
        values: npt.NDArray[np.float32] = side.slice(place, 1).flatten().to_numpy(zero_copy_only=False)
        return values


def check_logits_file(uri: str, biases: Sequence[str], ids: Sequence[str]) -> None:
    """Make sure that a file has logits of all questions for all biases, as far as that is known before windows are cut.

    Raises:
        InputError: it cannot be used, or lacks questions.
    """
    table = _parquet(uri)
    for bias in biases:
        known = set(_of_bias(uri, table, bias)["example_id"].to_pylist())
        if lacking := [name for name in ids if name not in known]:
            raise InputError(
                f"{uri}: has no logits of {len(lacking):,} of {len(ids):,} training questions for {bias} (first: "
                f"{lacking[0]}); add them, or leave these questions out of train.data"
            )


def _of_bias(uri: str, table: pa.Table, bias: str | None) -> pa.Table:
    """Return the rows for a bias, and those for any.

    Raises:
        InputError: a window stands there twice, or with a number that is not finite.
    """
    if bias is not None:
        table = table.filter(pc.or_(pc.is_null(table["bias"]), pc.fill_null(pc.equal(table["bias"], bias), False)))
    keys = _keys(table)
    if len(set(keys)) < len(keys):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise InputError(f"{uri}: has window {twice[1]} of question {twice[0]} twice; keep one row")
    for name in _SIDES:
        side = table[name].combine_chunks()
        is_finite = pc.fill_null(pc.is_finite(side.flatten()), False)
        if not pc.all(is_finite, min_count=0).as_py():
            question, window = keys[side.value_parent_indices()[is_finite.index(False).as_py()].as_py()]
            raise InputError(f"{uri}: a logit of window {window} of question {question} is not finite; mend it")
    return table


def _keys(table: pa.Table) -> list[tuple[str, int]]:
    """Return question and window of each row."""
    return list(zip(table["example_id"].to_pylist(), table["window"].to_pylist(), strict=True))


def _parquet(uri: str) -> pa.Table:
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(pa.BufferReader(read_file(uri)))
    except pa.ArrowException as error:
        raise InputError(f"{uri}: is no Parquet file ({error}); give one with a row for each window") from error
    lacking = [name for name in ("example_id", *_SIDES) if name not in table.column_names]
    lacking += [
        name for name in _SIDES if name in table.column_names and not _is_list_of_numbers(table.schema.field(name).type)
    ]
    if lacking:
        raise InputError(
            f"{uri}: has no such column {', '.join(lacking)}; it needs example_id, start_logits and end_logits (lists "
            "of a number for each token), and window where questions have several"
        )
    windows = table["window"] if "window" in table.column_names else pa.array([0] * table.num_rows)
    is_for_one = "bias" in table.column_names
    biases = pc.cast(table["bias"], pa.string()) if is_for_one else pa.nulls(table.num_rows, pa.string())
    lists = pa.large_list(pa.float32())
    columns = {"example_id": table["example_id"], "window": windows, "bias": biases}
    columns |= {name: pc.cast(table[name], lists, safe=False) for name in _SIDES}
    return pa.table(columns)


def _is_list_of_numbers(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


class GuideWorker:
    """Has one guide after another read windows, whatever it is."""

    def __init__(self, run: Run, allocation: Allocation, *, spec: QaBiasSpec, train: QaTrainSpec) -> None:
        take_share(allocation.n_threads, allocation.num_gpus)
        self._run, self._allocation, self._spec, self._train = run, allocation, spec, train
        self._guides: dict[str, Callable[[Mapping[str, Any], pa.Table], Sides]] = {}

    def make(self, task: Task, prepared: None) -> Made:
        """Return a part of ``qa_guide_logits``."""
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
        return Made({file: table})

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
        from biaseval.qa_models import reader_inputs
        from biaseval.training.objectives import Share
        from biaseval.training.questions import Questions, answer_logits

        with self._run.local_folder(work["folder"]) as folder:
            source = ModelSource(folder, trust_remote_code=work["is_trusted"])
            model = load_extractive_model(source, Loading("float32", self._allocation.device))
            tokenizer = load_reader_tokenizer(source)
        inputs, pad_id = reader_inputs(model, tokenizer), tokenizer.pad_token_id or 0

        def read(_: Mapping[str, Any], features: pa.Table) -> Sides:
            windows = Questions(features, inputs, pad_id, padded_to=self._padded_to)
            lengths = windows.lengths
            found: dict[int, npt.NDArray[np.float32]] = {}
            for rows in Share(self._train.batch_size).batches_of_like_length(range(len(lengths)), lengths):
                with torch.inference_mode():
                    logits = answer_logits(model, windows.batch(rows), model.device).cpu().numpy()
                for place, row in enumerate(rows):
                    found[row] = logits[:, place, : self._padded_to or lengths[row]]
            return [found[row][0] for row in range(len(lengths))], [found[row][1] for row in range(len(lengths))]

        return read

    def _tfidf(self, work: Mapping[str, Any]) -> Callable[[Mapping[str, Any], pa.Table], Sides]:
        from biaseval.models import ModelSource, load_reader_tokenizer
        from biaseval.qa_bias.heuristics.text import load_text
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
