"""Runs whose files are cut, changed, copied or gone: each is made again or refused by its name, and never counted."""

import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import open_runs, query
from biaseval.digests import recorded
from biaseval.errors import BiasevalError, InputError
from biaseval.execute.tasks import Made
from biaseval.pipelines.directory import read_spec
from biaseval.runs import reanalyse_run, report_run, run_spec, run_status
from biaseval.spec import AnySpec, load_spec
from biaseval.store import Run
from tests.commands import Command
from tests.growth.runs import own_spec
from tests.inprocess import in_this_process
from tests.label_bias.test_own_data import reviews, write_csv
from tests.older_runs import copy_older_run
from tests.test_pipelines import digests
from tests.test_qa_pipeline import make_bert
from tests.test_qa_pipeline import write_spec as write_qa_spec

pytestmark = [pytest.mark.usefixtures("here"), pytest.mark.slow]

KINDS = ("label_bias", "qa_bias")
SCORES = {"label_bias": "label_scores", "qa_bias": "qa_predictions"}
PLANNED = {"label_bias": "prompts", "qa_bias": "qa_examples"}
MARTS = {"label_bias": "label_bias_by_task", "qa_bias": "qa_by_dataset"}
Finished = dict[str, tuple[AnySpec, Path]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Finished:
    """Return the spec and the directory of an undisturbed run of each kind."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_csv(folder / "reviews.csv", reviews(30))
    write_csv(folder / "test.csv", reviews(20, "other"))
    label = own_spec(folder, tiny_llama, prompt={"n_demos": [0, 2]}, calibration=["cc"], execution={"part_rows": 10})
    qa = load_spec(write_qa_spec(folder, make_bert(folder / "bert"), bootstrap={"trials": 5, "sample": 5}))
    found: Finished = {"label_bias": (label, folder / "label_bias"), "qa_bias": (qa, folder / "qa_bias")}
    with in_this_process():
        for spec, run_dir in found.values():
            run_spec(spec, str(run_dir))
    return found


LABELS, QA = (pytest.mark.parametrize("kind", [kind]) for kind in KINDS)
"""What a test of one kind proves of both; the others take both."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def spec(kind: str, finished: Finished) -> AnySpec:
    return finished[kind][0]


@pytest.fixture
def undisturbed(kind: str, finished: Finished) -> Path:
    return finished[kind][1]


@pytest.fixture
def run_dir(undisturbed: Path, tmp_path: Path) -> Path:
    """Return a copy of the finished run, of the test's own."""
    return Path(shutil.copytree(undisturbed, tmp_path / "run"))


def tables(run_dir: Path) -> dict[str, pa.Table]:
    """Return the tables and marts of a run but for times, as its views have them, and ``results.duckdb``, if any."""
    names = sorted({path.parent.name for path in run_dir.glob("*/part-00000.parquet")})
    database = run_dir / "results.duckdb"
    with closing(open_runs([run_dir])) as connection:
        found = {name: connection.sql(f"from {name} order by all").to_arrow_table() for name in names}
        if "run_settings" in found:
            found["run_settings"] = found["run_settings"].drop_columns(["scoring_seconds"])
    if database.exists():
        with duckdb.connect(str(database), read_only=True) as shell:
            for name, rows in found.items():
                assert shell.execute(f"select count(*) from {name}").fetchall() == [(rows.num_rows,)]
    return found | {path.name: pq.read_table(path) for path in sorted((run_dir / "marts").iterdir())}


_undisturbed_tables = cache(tables)


def assert_same(run_dir: Path, undisturbed: Path) -> None:
    found, wanted = tables(run_dir), _undisturbed_tables(undisturbed)
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not found[name].equals(wanted[name])] == []
    status = run_status(str(run_dir))
    assert (status.size_done, status.damaged) == (status.size, [])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    path.write_bytes(random.Random(3).randbytes(path.stat().st_size))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def copy(path: Path) -> None:
    shutil.copy(path, path.with_name(f"{path.stem} (copy){path.suffix}"))


def add(path: Path) -> None:
    shutil.copy(path, path.with_name("part-00099.parquet"))


DAMAGES: tuple[Callable[[Path], None], ...] = (flip, cut, garble, empty, copy, Path.unlink)


@QA
def test_a_run_that_lost_its_plan_keeps_what_was_made(
    kind: str, spec: AnySpec, undisturbed: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {path: path.stat().st_mtime_ns for path in run_dir.glob("*/part-*.parquet")}
    made = {path for path in times if path.parent.name in (SCORES[kind], PLANNED[kind], "qa_attributes")}
    for spoil, said in ((Path.unlink, ""), *((spoil, r"plan\.json: is damaged \(.*\)\n.*") for spoil in (cut, garble))):
        spoil(run_dir / "plan.json")
        run_spec(spec, str(run_dir), page=False)
        assert {path: path.stat().st_mtime_ns for path in made} == {path: times[path] for path in made}
        assert re.search(rf"{said}plan\.json: is missing; planning again; existing parts stay", capsys.readouterr().err)
        assert (run_dir / "plan.json").read_bytes() == (undisturbed / "plan.json").read_bytes()
        assert_same(run_dir, undisturbed)


@LABELS
@pytest.mark.parametrize("lost", ["plan.json", "spec.yaml", "environment.json"])
def test_a_run_that_lost_a_file_is_not_taken_over(lost: str, spec: AnySpec, run_dir: Path) -> None:
    (run_dir / lost).unlink()
    before = digests(run_dir)
    for own in (spec.model_copy(update={"seed": 7}), *[spec] * (lost == "environment.json")):
        with pytest.raises(InputError, match=r"belongs to another spec|(spec\.yaml|environment\.json): is missing"):
            run_spec(own, str(run_dir))
        assert digests(run_dir) == before
    if lost == "environment.json":
        (run_dir / lost).write_text("{")
        with pytest.raises(InputError, match=r"environment\.json: is damaged \(.*\); restore it, or start the run"):
            run_spec(spec, str(run_dir))


@LABELS
def test_a_copy_that_was_interrupted_is_completed(kind: str, spec: AnySpec, undisturbed: Path, tmp_path: Path) -> None:
    """In the order of names, as ``rsync`` and ``aws s3 sync`` copy."""
    names = sorted(path.name for path in undisturbed.iterdir() if path.name != ".lock")
    for last in ("environment.json", SCORES[kind], "plan.json"):
        run_dir = tmp_path / last
        run_dir.mkdir()
        for source in (undisturbed / name for name in names if name <= last):
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, run_dir / source.name)
        times = {path: path.stat().st_mtime_ns for path in (run_dir / SCORES[kind]).glob("*")}
        run_spec(spec, str(run_dir), page=False)
        assert {path: path.stat().st_mtime_ns for path in times} == times
        assert_same(run_dir, undisturbed)


def test_a_run_without_plan_whose_data_changed_is_refused(finished: Finished, tmp_path: Path) -> None:
    spec, source = finished["label_bias"]
    run_dir = Path(shutil.copytree(source, tmp_path / "run"))
    for name in ("plan.json", "digests.json"):
        (run_dir / name).unlink()
    part = run_dir / "prompts" / "part-00000.parquet"
    rows = pq.read_table(part)
    pq.write_table(rows.slice(1), part)
    before = digests(run_dir)
    with pytest.raises(InputError, match=r"prompts/part-00000\.parquet: planning again gives other rows"):
        run_spec(spec, str(run_dir))
    assert {name: digest for name, digest in digests(run_dir).items() if name != "digests.json"} == before


@LABELS
def test_a_stored_spec_that_is_cut_is_refused(kind: str, spec: AnySpec, run_dir: Path) -> None:
    path = run_dir / "spec.yaml"
    lines = path.read_text().splitlines(keepends=True)
    for n_lines in range(0, len(lines), 3):
        path.write_text("".join(lines[:n_lines]))
        with pytest.raises(InputError, match=r"spec\.yaml: is "):
            read_spec(Run.open(str(run_dir)))
    path.write_text("".join(lines).replace("seed: 42", "seed: 43"))
    before = digests(run_dir)
    for act in (*_acts(kind, spec, run_dir), lambda: reanalyse_run(run_dir, [], page=False)):
        with pytest.raises(InputError, match=r"spec\.yaml: is damaged \(its bytes differ from those written\); "):
            act()
    assert digests(run_dir) == before
    path.write_text("".join(lines[:-3]))
    (run_dir / "digests.json").unlink()
    with pytest.raises(InputError, match=r"spec\.yaml: is damaged"):
        report_run(run_dir)


def _acts(kind: str, spec: AnySpec, run_dir: Path) -> tuple[Callable[[], object], ...]:
    """Return what reads a run in some way."""
    ask = lambda: query([run_dir], f"from {MARTS[kind]}")  # noqa: E731
    return (
        lambda: report_run(run_dir), lambda: run_spec(spec, str(run_dir), page=False), ask,
        lambda: run_status(str(run_dir)),
    )  # fmt: skip


def test_a_cut_spec_of_an_older_run_is_refused(tmp_path: Path) -> None:
    _, run_dir = copy_older_run("majority_bias", tmp_path)
    path = run_dir / "spec.yaml"
    text = path.read_text()
    path.write_text(text[: text.index("scoring:")])
    with pytest.raises(InputError, match=r"spec\.yaml: is damaged \(its end is missing\)"):
        report_run(run_dir)


@pytest.mark.parametrize(("kind", "damage"), [("label_bias", flip), ("qa_bias", empty)])
def test_a_changed_part_is_said_not_counted_and_made_again(
    damage: Callable[[Path], None],
    kind: str,
    spec: AnySpec,
    undisturbed: Path,
    run_dir: Path,
    command: Command,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = sorted(f"{table[kind]}/part-00001.parquet" for table in (SCORES, PLANNED))
    for name in names:
        damage(run_dir / name)
    status = run_status(str(run_dir))
    assert (status.is_complete, status.damaged) == (False, names)
    assert f"damaged {names[0]}" in command("status", str(run_dir)).out
    for act in (lambda: query([run_dir], f"from {MARTS[kind]}"), lambda: report_run(run_dir)):
        with pytest.raises(BiasevalError, match=r"\d .* missing.* \(first: .*run the same command again"):
            act()
    run_spec(spec, str(run_dir), page=False)
    assert_same(run_dir, undisturbed)
    if damage is not empty:  # nothing was there to keep
        kept = sorted(path.relative_to(run_dir / "aside") for path in (run_dir / "aside").rglob("*") if path.is_file())
        assert [str(path)[: len(name)] for path, name in zip(kept, names, strict=True)] == names
        assert "moved to aside/, as they differ from the recorded digest" in capsys.readouterr().err


@QA
def test_a_changed_mart_is_not_answered_with(kind: str, spec: AnySpec, undisturbed: Path, run_dir: Path) -> None:
    flip(run_dir / "marts" / f"{MARTS[kind]}.parquet")
    question = f"from {MARTS[kind]} order by all"
    assert query([run_dir], question).equals(query([undisturbed], question))
    assert run_status(str(run_dir)).damaged == [f"marts/{MARTS[kind]}.parquet"]
    report_run(run_dir)
    assert_same(run_dir, undisturbed)


@QA
def test_a_part_that_is_not_of_the_run_is_never_counted(spec: AnySpec, undisturbed: Path, run_dir: Path) -> None:
    for path in sorted(run_dir.glob("*/part-00000.parquet")):
        add(path)
        copy(path)
    assert_same(run_dir, undisturbed)
    run_spec(spec, str(run_dir), page=False)
    assert_same(run_dir, undisturbed)


@QA
def test_parts_that_a_killed_run_left_are_read_once_and_made_again_where_they_are_none(
    spec: AnySpec, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digests are written when a stage ends."""
    write, written = Made.write, iter(range(3))

    def killed(made: Made, run: Run) -> dict[str, Any]:
        digests = write(made, run)
        if next(written, None) is None:
            raise KeyboardInterrupt
        return digests

    run_dir = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Made, "write", killed)
        patch.setattr("biaseval.digests.record", lambda run, reads=True: None)
        with pytest.raises(KeyboardInterrupt):
            run_spec(spec, str(run_dir))
    made = sorted((run_dir / "qa_attributes").glob("*.parquet"))
    assert len(made) == 4
    assert not {f"{path.parent.name}/{path.name}" for path in made} & (recorded(Run.open(str(run_dir))) or {}).keys()
    flip(made[0])
    cut(made[1])
    times = {path: path.stat().st_mtime_ns for path in made[2:]}
    run_spec(spec, str(run_dir), page=False)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    assert_same(run_dir, undisturbed)


@LABELS
def test_an_analysis_that_is_killed_in_the_marts_leaves_nothing_that_seems_damaged(
    kind: str, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The settings are other rows then, and were set aside."""
    with monkeypatch.context() as patch:
        patch.setattr("biaseval.analysis.write_marts", Mock(side_effect=KeyboardInterrupt))
        patch.setattr("biaseval.digests.record", lambda run, reads=True: None)  # in `kept`: nothing follows a kill
        with pytest.raises(KeyboardInterrupt):
            reanalyse_run(run_dir, ["scoring.normalization=sum"], page=False)
    reanalyse_run(run_dir, ["scoring.normalization=sum"], page=False)
    assert not (run_dir / "aside").exists()


@LABELS
def test_a_run_that_lost_its_digests_counts_only_its_own_files(
    kind: str, undisturbed: Path, run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(run_dir / SCORES[kind] / "part-00000.parquet")
    for damage in (garble, Path.unlink):
        damage(run_dir / "digests.json")
        with pytest.raises(BiasevalError, match=rf"digests.json: is missing or damaged; biaseval report {run_dir} wr"):
            query([run_dir], f"from {SCORES[kind]}")
        assert run_status(str(run_dir)).damaged == ["digests.json"]
        assert "reads all files and writes it again" in capsys.readouterr().err
    report_run(run_dir)
    assert_same(run_dir, undisturbed)


def test_an_older_run_gets_digests_at_its_next_run(tmp_path: Path) -> None:
    spec, run_dir = copy_older_run("label_bias", tmp_path)
    before = query([run_dir], "from label_scores order by all")
    assert recorded(Run.open(str(run_dir))) is None
    garble(run_dir / "label_scores" / "part-00001.parquet")
    run_spec(load_spec(spec), str(run_dir), page=False)
    after = query([run_dir], "from label_scores order by all")
    assert after["prompt_id"].equals(before["prompt_id"])
    known = recorded(Run.open(str(run_dir)))
    assert known is not None
    assert {f"{path.parent.name}/{path.name}" for path in run_dir.glob("*/part-*.parquet")} <= known.keys()
    flip(run_dir / "label_scores" / "part-00000.parquet")
    assert run_status(str(run_dir)).damaged == ["label_scores/part-00000.parquet"]


def test_a_lost_planned_part_of_an_older_run_is_missed_by_all_that_ask_whether_it_is_finished(tmp_path: Path) -> None:
    """It has no digests: its plan alone says what it lacks."""
    _, run_dir = copy_older_run("label_bias", tmp_path)
    lost = "prompts/part-00001.parquet"
    (run_dir / lost).unlink()
    status = run_status(str(run_dir))
    assert (status.is_complete, status.damaged) == (False, [lost])
    for ask in (lambda: query([run_dir], "from tasks"), lambda: report_run(run_dir)):
        with pytest.raises(BiasevalError, match=rf"1 of \d+ parts missing or damaged \(first: {lost}\); run the same"):
            ask()


def test_a_planned_part_of_an_older_run_that_is_none_is_named_and_not_drawn_anew(tmp_path: Path) -> None:
    """Its plan does not say how many there are, and rows of BiasScore are drawn otherwise today."""
    spec, run_dir = copy_older_run("label_bias", tmp_path)
    garble(run_dir / "splits" / "part-00000.parquet")
    for _ in range(2):
        with pytest.raises(BiasevalError, match=r"first: splits/part-00000\.parquet\); run the same command again"):
            report_run(run_dir)
    with pytest.raises(
        InputError, match=r"splits/part-00000\.parquet: planning again gives other rows .*; restore the"
    ):
        run_spec(load_spec(spec), str(run_dir), page=False)


@QA
def test_a_run_of_a_later_schema_is_refused_with_one_message(kind: str, spec: AnySpec, run_dir: Path) -> None:
    run = Run.open(str(run_dir))
    text = run.read_text("spec.yaml").rpartition("# own_sha256")[0].replace("# schema: 1", "# schema: 2")
    run.write_sealed_yaml("spec.yaml", text)
    for act in _acts(kind, spec, run_dir):
        with pytest.raises(InputError, match=r"a later version of biaseval wrote this run \(schema 2, .* up to 1\)"):
            act()


@LABELS
def test_unchanged_files_are_not_read_again(undisturbed: Path, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    sha256 = Run.sha256

    def heard(run: Run, name: str) -> str:
        read.append(name)
        return sha256(run, name)

    monkeypatch.setattr(Run, "sha256", heard)
    assert run_status(str(run_dir)).is_complete
    assert read == []
    part = next(run_dir.glob("*/part-00001.parquet"))
    os.utime(part)  # a copy has another time
    assert run_status(str(run_dir)).is_complete
    assert read == [f"{part.parent.name}/{part.name}"]


@pytest.mark.parametrize("tries", [range(2), pytest.param(range(2, 6), marks=pytest.mark.slow)])
def test_whatever_is_damaged_no_number_changes(kind: str, finished: Finished, tmp_path: Path, tries: range) -> None:
    """Damage one file of a run after another, and run it again."""
    spec, undisturbed = finished[kind]
    wanted = tables(undisturbed)
    files = sorted(path.relative_to(undisturbed) for path in undisturbed.rglob("*") if path.is_file())
    for number in tries:
        drawn = random.Random(number)
        run_dir = Path(shutil.copytree(undisturbed, tmp_path / f"run-{number}"))
        name, damage = drawn.choice(files), drawn.choice(DAMAGES)
        if name.name == ".lock":
            continue
        data = bytearray((run_dir / name).read_bytes())
        if damage is flip:  # anywhere
            data[drawn.randrange(len(data))] ^= 1 << drawn.randrange(8)
            (run_dir / name).write_bytes(data)
        else:
            damage(run_dir / name)
        refused = None
        try:
            run_spec(spec, str(run_dir), page=name.name == "results.duckdb")  # which others leave as it is
        except BiasevalError as error:
            refused = str(error)
        if refused is not None:
            assert name.parts[0] in refused, (name, damage)
            continue
        found = tables(run_dir)
        assert [own for own in wanted if own not in found or not found[own].equals(wanted[own])] == [], (name, damage)
        status = run_status(str(run_dir))
        assert (status.size_done, status.damaged) == (status.size, []), (name, damage)
        shutil.rmtree(run_dir)


@LABELS
def test_a_run_on_an_object_store_is_mended(spec: AnySpec, undisturbed: Path, kind: str, object_store: str) -> None:
    run = run_spec(spec, f"{object_store}/damaged/{kind}", page=False)
    names = [f"{table[kind]}/part-00001.parquet" for table in (SCORES, PLANNED)]
    wanted = {name: run.read_table(name.partition("/")[0]) for name in names}
    store = Run.open(run.uri)
    store.write_bytes(names[0], bytes(reversed(store.read_bytes(names[0]))))  # of the same size, perhaps in one second
    store.write_bytes(names[1], store.read_bytes(names[1])[:-9])
    store.write_bytes(f"{SCORES[kind]}/part-00099.parquet", store.read_bytes(f"{SCORES[kind]}/part-00000.parquet"))
    assert run_status(run.uri).damaged == sorted(names)
    store.delete("plan.json")
    run_spec(spec, run.uri, page=False)
    status = run_status(run.uri)
    assert (status.size_done, status.damaged) == (status.size, [])
    again = Run.open(run.uri)
    for name, rows in wanted.items():
        assert again.read_table(name.partition("/")[0]).equals(rows)
    assert len(again.files("aside")) == 3
    found, expected = (query([place], f"from {MARTS[kind]} order by all") for place in (run.uri, undisturbed))
    assert found.equals(expected)
