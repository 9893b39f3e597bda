"""A file of prompts is what its spec says it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.pipelines import describe
from biaseval.pipelines.prompts_file import score_spec
from biaseval.spec import ExecutionSpec, ModelSpec


def test_a_file_that_changes_between_two_reads_is_refused(tmp_path: Path, tiny_llama: Path) -> None:
    """Else other prompts would be scored than the run says it holds."""
    file = tmp_path / "prompts.jsonl"
    row = {"prompt_id": "a", "text": "Is it so?", "labels": ["yes", "no"]}
    file.write_text(json.dumps(row) + "\n")
    spec = score_spec(ModelSpec(path=str(tiny_llama)), ExecutionSpec(), file)
    assert describe(spec).facts["n_prompts"] == 1
    file.write_text(json.dumps({**row, "text": "Is it not so?"}) + "\n")
    with pytest.raises(InputError, match=r"prompts\.jsonl: changed while it was read; run the same command again"):
        describe(spec)
