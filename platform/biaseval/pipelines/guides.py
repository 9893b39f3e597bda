"""Logits that readers are trained with: of bias models and teachers, once for every window that is trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from biaseval.execute.machine import take_share
from biaseval.execute.tasks import Made, Task
from biaseval.pipelines.logits_files import FileLogits, Sides
from biaseval.qa_bias.tfidf_bias import SentenceCosines, token_log_probabilities
from biaseval.spec import QaBiasSpec, QaTrainSpec
from biaseval.store import Run
from biaseval.tables import QA_GUIDE_LOGITS

if TYPE_CHECKING:
    from biaseval.execute.resources import Allocation


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
        from biaseval.reading import reader_inputs
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
