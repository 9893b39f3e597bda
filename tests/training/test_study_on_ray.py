"""A study on a real Ray, in a bucket: what is trained there is answered with there."""

from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.runs import run_spec, run_status
from biaseval.spec import load_spec
from biaseval.store import Run
from tests.smallstudy import write_spec
from tests.test_qa_pipeline import make_bert

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


@pytest.mark.slow
def test_a_study_in_a_bucket_trains_and_measures(ray_cluster: None, object_store: str, tmp_path: Path) -> None:
    changes = {"methods": ["standard", "confidence_regularization"], "thresholds": "mikula2024"}
    spec = load_spec(write_spec(tmp_path, make_bert(tmp_path / "bert"), train=changes))
    uri = f"{object_store}/study"
    run_spec(spec, uri)
    assert run_status(uri).is_complete
    trained = Run.open(uri).read_table("trained_models").to_pylist()
    assert [row["model"] for row in trained] == ["bert", "bert+bias_model", "bert+confidence_regularization"]
    assert all(Run.open(uri).has(f"{row['path']}/config.json") for row in trained)
    assert not any(name.endswith(".safetensors") for name in Run.open(uri).files("checkpoints"))
    [found] = query([uri], "select count(*) as n, count(distinct model) as n_models from qa_predictions").to_pylist()
    assert found == {"n": 2 * 52, "n_models": 2}
