from pathlib import Path

import pytest

from biaseval.store import Run
from biaseval.units import missing_units
from tests.bench.actors import benchmark, markdown, units


def test_a_driver_of_ten_million_prompts_knows_what_is_missing(tmp_path: Path) -> None:
    run = Run.open(str(tmp_path))
    every = units(3_000)
    assert sum(unit.size for unit in every) == 9_900_000
    run.write_bytes(every[7].files[0], b"x" * 100)
    assert [unit.number for unit in missing_units(run, every)] == [*range(7), *range(8, 3_000)]


@pytest.mark.ray
@pytest.mark.slow
def test_parts_without_a_model_are_made_by_many_actors(tmp_path: Path, ray_cluster: None) -> None:
    report = benchmark(str(tmp_path / "run"), 20, 3)
    (row,) = report["records"]
    assert (row["n_parts"], row["n_actors"]) == (20, 3)
    assert Run.open(str(tmp_path / "run")).parts("label_scores") == set(range(20))
    assert 0 < row["first_s"] < row["seconds"]
    assert markdown([report]).count("\n") == 2
