from pathlib import Path

import pyarrow.parquet as pq
import pytest

from biaseval.errors import InputError
from biaseval.label_bias.splits import Sampler, read_splits, reproduce
from biaseval.prompting.task_files import read_task
from tests.taskfiles import write_task


def test_per_task_rows_do_not_depend_on_other_tasks(tmp_path: Path) -> None:
    first = read_task(write_task(tmp_path, "task1_x_classification"))
    second = read_task(write_task(tmp_path, "task2_x_classification"))
    alone = Sampler("per_task", 42).draw(second, 50)
    sampler = Sampler("per_task", 42)
    sampler.draw(first, 50)
    assert sampler.draw(second, 50) == alone
    assert Sampler("per_task", 43).draw(second, 50) != alone
    single_stream = Sampler("reif2024", 42)
    single_stream.draw(first, 50)
    assert single_stream.draw(second, 50) != Sampler("reif2024", 42).draw(second, 50)


@pytest.mark.parametrize("sampling", ["per_task", "reif2024"])
def test_roles_share_no_instance_and_more_rows_extend_fewer(tmp_path: Path, sampling: str) -> None:
    task = read_task(write_task(tmp_path))
    few = Sampler(sampling, 1).draw(task, 20)  # type: ignore[arg-type]
    many = Sampler(sampling, 1).draw(task, 1000)  # type: ignore[arg-type]
    assert many.main[:20] == few.main
    assert (len(many.demonstrations), len(many.bias_score), len(many.main)) == (64, 32, 304)
    drawn = [instance.id for instances in many.by_role().values() for instance in instances]
    assert len(set(drawn)) == 400


def test_demonstration_sets_are_slices_of_the_pool_and_labels_come_from_outside_it(tmp_path: Path) -> None:
    splits = Sampler("per_task", 0).draw(read_task(write_task(tmp_path, labels=("b", "B", " a"))), 10)
    assert splits.demonstration_set(16, 3) == splits.demonstrations[48:64]
    assert splits.demonstration_set(4, 1) == splits.demonstrations[4:8]
    assert splits.demonstration_set(0, 0) == ()
    assert splits.labels == (" a", "B", "b")  # in the order of code points


def test_recorded_splits_are_reproduced_exactly(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path / "tasks"))
    drawn = Sampler("per_task", 7).draw(task, 30)
    (tmp_path / "splits").mkdir()
    pq.write_table(drawn.table(task.name), tmp_path / "splits" / "part-00000.parquet")
    assert reproduce(task, read_splits(str(tmp_path / "splits"))) == drawn
    assert reproduce(task, read_splits(str(tmp_path / "splits" / "part-00000.parquet"))) == drawn


def test_recorded_splits_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    task = read_task(write_task(tmp_path))
    other = read_task(write_task(tmp_path, "task2_x_classification", number=2))
    table = Sampler("per_task", 7).draw(task, 30).table(task.name)
    for asked, splits, message in (
        (other, {task.name: table}, "holds no row of task2_x"),
        (other, {other.name: table}, "has no instance 'task9500-"),
        (task, {task.name: table.slice(1)}, "64 and 32 are needed"),
        (task, {task.name: table.slice(0, 96)}, "has no main row"),
    ):
        with pytest.raises(InputError, match=message):
            reproduce(asked, splits)
    with pytest.raises(InputError, match="is no splits table"):
        read_splits(str(tmp_path / "task2_x_classification.json"))
