"""What ``biaseval demo`` needs, without a download: generated tasks, and a tiny model trained on such tasks."""

from pathlib import Path

_FOLDER = Path(__file__).parent

SPEC_PATH = _FOLDER / "spec.yaml"
"""The quickstart: the model below on the task files below."""

QA_SPEC_PATH = _FOLDER / "qa.yaml"
"""The quickstart on QA models: the reader below, fine-tuned on questions with a planted shortcut."""

READER_PATH = _FOLDER / "reader"
"""The tiny reader's directory, pretrained on questions without a shortcut."""

MODEL_PATH = _FOLDER / "model"
"""The tiny model's directory, in the Hugging Face layout."""
