"""Computing the metrics of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from biaseval.analysis.causal_draws import derive_label_bias, derive_majority_bias
from biaseval.analysis.marts import write_marts
from biaseval.analysis.qa_draws import derive_qa_bias
from biaseval.analysis.queries import kind_of, refuse_missing_parts
from biaseval.errors import InputError
from biaseval.spec import MajorityBiasSpec, QaBiasSpec, validate_spec
from biaseval.store import Run
from biaseval.tables import run_outputs


def build_marts(run_dir: str | Path) -> None:
    """Compute the metrics of a scored run: ``marts/*.parquet``, ``results.duckdb``, and what the marts are made of.

    Args:
        run_dir: a local path or ``s3://`` URI whose prompts are all scored, or whose questions are all answered.

    Raises:
        InputError: it holds no run of a kind that has metrics, or its spec is not one.
        BiasevalError: parts are missing; or `write_marts`.
    """
    run = Run.open(str(run_dir))
    kind = kind_of(run)
    _derive(run, kind)
    write_marts(run, kind)


# ----- The one place of this package that tells kinds of runs apart -----


def _derive(run: Run, kind: str) -> None:
    """Derive what a kind's marts need beside its outputs, having made sure that these are all there."""
    families: dict[str, Callable[[Run, Any], None]] = {
        "label_bias": derive_label_bias,
        "majority_bias": derive_majority_bias,
        "qa_bias": derive_qa_bias,
    }
    if kind not in families:
        raise InputError(
            f"{run.uri}: holds no label-bias run, no majority-bias run and no QA-bias run; name the directory of one"
        )
    spec = validate_spec(run.read_yaml("spec.yaml"), source=f"{run.uri}/spec.yaml", folder=Path(run.root))
    if isinstance(spec, QaBiasSpec):
        rounds = {"qa_attributes": 1, "qa_predictions": len(spec.models)}
    else:
        predict = spec.predict if isinstance(spec, MajorityBiasSpec) else ["likelihood"]
        rounds = dict.fromkeys(run_outputs(predict, has_adapters=spec.lora is not None), 1)
    refuse_missing_parts(run, rounds)
    families[kind](run, spec)
