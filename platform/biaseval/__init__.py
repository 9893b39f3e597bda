"""Measure label bias, majority-label bias and prediction bias of language models."""

import os

# transformers imports DeepSpeed where it is installed, which then looks for accelerators and says on standard output
# what it found. Workers that train with it say what they have.
os.environ.setdefault("DS_ACCELERATOR", "cpu")
