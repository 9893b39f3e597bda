"""A table of label scores, whoever wrote it, becomes a run of label bias."""

import csv
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biaseval.analysis import query
from biaseval.analysis.comparing import comparing
from biaseval.errors import InputError
from biaseval.outputs.plan import plan_outputs
from biaseval.outputs.table import COLUMNS, read_table
from biaseval.pipelines.labels import imported_scores
from biaseval.report.compare_models import MODEL_RELATIONS, model_charts
from biaseval.runs import import_scores
from biaseval.store import Run
from tests.commands import Command
from tests.labelplans import two_tasks
from tests.measuring import measure

pytestmark = pytest.mark.slow

Record = dict[str, Any]

AS_TABLE = """
select task, instance_id as prompt_id, label, gold, n_demos, demo_set, purpose, input_text as text,
    log_likelihood(token_logprobs, n_label_tokens, normalization, eos) as logprob
from prompts inner join label_scores using (prompt_id) cross join run_settings
where purpose in ('main', 'bias_score')
order by task, purpose, n_demos, demo_set, row
"""
"""The table of scores that a run's own prompts would be given by another tool."""


def rows_of(prompt: str, gold: str | None, probabilities: dict[str, float], **columns: Any) -> list[Record]:
    """Return the rows of a prompt whose labels have these probabilities."""
    row = {"task": "t", "prompt_id": prompt, "gold": gold, **columns}
    return [{**row, "label": label, "logprob": math.log(p)} for label, p in probabilities.items()]


def write(path: Path, rows: Sequence[Record]) -> Path:
    names = list(dict.fromkeys(name for row in rows for name in row))
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]), path)
    return path


SMALL = [
    *rows_of("1", "yes", {"yes": 0.6, "no": 0.2}), *rows_of("2", "yes", {"yes": 0.3, "no": 0.6}),
    *rows_of("3", "no", {"no": 0.5, "yes": 0.25}), *rows_of("10", "no", {"no": 0.6, "yes": 0.4}),
    *rows_of("a", "yes", {"yes": 0.4, "no": 0.1}, purpose="bias_score"),
    *rows_of("b", "no", {"yes": 0.3, "no": 0.3}, purpose="bias_score"),
    *rows_of("N/A", None, {"yes": 0.1, "no": 0.4}, purpose="cc"),
]  # fmt: skip


def test_tasks_with_equivalent_labels_are_a_suite_by_their_names_and_have_their_figure(tmp_path: Path) -> None:
    scores = [row | {"task": task} for task in ("task309_race_answer_generation", "task309") for row in SMALL]
    file = write(tmp_path / "scores.csv", scores)
    run = import_scores("table", [file], str(tmp_path / "run"), page=False).uri
    found = query([run], "select suite, n_tasks from label_bias_by_model where method = 'none' order by all")
    assert [tuple(row.values()) for row in found.to_pylist()] == [("all", 2), ("semantically_equivalent", 1)]
    with comparing([run, str(shutil.copytree(run, tmp_path / "again"))], MODEL_RELATIONS) as (_, ask):
        assert "suites" in [chart.name for chart in model_charts("label_bias", ask)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_has_the_same_scores_in_every_format(suffix: str, tmp_path: Path) -> None:
    outputs = read_table([write(tmp_path / f"scores.{suffix}", SMALL)])
    found = [(prompt.instance, prompt.purpose, prompt.gold) for prompt in outputs.prompts]
    main = [("1", "main", "yes"), ("2", "main", "yes"), ("3", "main", "no"), ("10", "main", "no")]
    assert found == [*main, ("a", "bias_score", "yes"), ("b", "bias_score", "no"), ("N/A", "cc", None)]
    assert outputs.prompts[0].logprobs == {"yes": math.log(0.6), "no": math.log(0.2)}


def test_metrics_with_held_out_rows_and_calibration_by_hand(tmp_path: Path, command: Command) -> None:
    file, run = write(tmp_path / "their scores.csv", SMALL), str(tmp_path / "run")
    shown = command("import", "table", str(file), "--run-dir", run)
    assert shown.code == 0, shown.err
    assert shown.out.endswith(f"report: {run}/report.html\n")
    found = {row["method"]: row for row in query([run], "from label_bias_by_task").to_pylist()}
    # Right: 1, 3, 10. Of the two labels one is recognised half the time, the other always.
    assert (found["none"]["model"], found["none"]["accuracy"]) == ("their-scores", 0.75)
    assert found["none"]["rsd"] == pytest.approx(0.25 / 0.75)
    # The mean of yes is 0.8 where yes is right and 0.5 where no is.
    assert found["none"]["bias_score"] == pytest.approx(0.15)
    # Divided by 0.2 and 0.8, every row but none is yes: 0.4 / 0.2 > 0.6 / 0.8.
    assert (found["cc"]["accuracy"], found["cc"]["share_most_frequent"]) == (0.5, 1)
    rows = query([run], "from prompts where purpose = 'main' order by row").to_pylist()
    assert [row["instance_id"] for row in rows] == ["1", "2", "3", "10"]


GOOD: Record = {"task": "t", "prompt_id": "1", "label": "a", "logprob": -1.0, "gold": "a"}
OTHER = {**GOOD, "label": "b"}


def _twice(**columns: Any) -> list[Record]:
    """Return the rows of a prompt of two labels, with columns of their own."""
    return [{**GOOD, **columns}, {**OTHER, **columns}]


MISTAKES: list[tuple[list[Record], str]] = [
    ([{"task": "t", "label": "a"}], "has no column logprob; a table needs task, label, logprob"),
    ([{**GOOD, "n_demo": 2}], "column 'n_demo' is unknown; did you mean n_demos?"),
    ([{**GOOD, "colour": 2}], f"column 'colour' is unknown; columns may be {', '.join(COLUMNS)}; leave it out"),
    ([{**GOOD, "logprob": 0.7}], "line 1: logprob 0.7 is no logarithm of a probability: a number of at most 0"),
    ([{**GOOD, "logprob": "much"}], "line 1: logprob 'much' is no logarithm"),
    ([{**GOOD, "logprob": None}], "line 1: logprob None is no logarithm"),
    ([{**GOOD, "label": None}], "line 1: label is missing; add it"),
    ([{**GOOD, "label": 0.5}], "line 1: label 0.5 is no text; write it as text"),
    ([{**GOOD, "purpose": "test"}], "line 1: purpose 'test' is unknown; use main, bias_score, cc, dc, looc"),
    ([GOOD, {**OTHER, "glod": "a"}], "line 2: column 'glod' is unknown; did you mean gold?"),
    ([{**GOOD, "n_demos": -1}], "line 1: n_demos '-1' is no number from 0 to 999,999,999"),
    ([{**GOOD, "n_demos": 1e30}], "line 1: n_demos .* is no number from 0 to"),
    ([{**GOOD, "demo_set": 3_000_000_000}], "line 1: demo_set '3000000000' is no number from 0 to"),
    ([{**GOOD, "prompt_id": None}], "line 1: none of prompt_id, input and text tells which prompt this is"),
    ([GOOD, GOOD], "line 2: label 'a' of prompt '1' stands there twice, in one setting and purpose"),
    ([GOOD, {**OTHER, "gold": "b"}], "line 2: gold 'b' of prompt '1' is 'a' at .*line 1; all rows of a prompt need"),
    ([GOOD], "line 1: t has the label 'a' alone; a preference needs two labels or more"),
    (_twice(gold="c"), r"line 1: t: gold 'c' is none of the labels \['a', 'b'\]"),
    (_twice(gold=None), "line 1: t: gold is missing, which rows of the purpose main"),
    ([GOOD, OTHER, {**GOOD, "prompt_id": "2"}], r"line 3: t has labels \['a'\], at .*line 1 \['a', 'b'\]"),
    (_twice(demo_set=1), "line 1: t: demo_set 1 has no demonstrations; use demo_set 0"),
    (_twice(purpose="bias_score"), "t, n_demos 0, demo_set 0: has no rows of the purpose main"),
    ([*_twice(), *_twice(purpose="bias_score")], r"t: 1 rows are both main and bias_score \(first: '1'\); held-out"),
    ([*_twice(), *_twice(task="u", n_demos=2)], "t: has no scores of main at n_demos 2, demo_set 0, which other tasks"),
    ([*_twice(), *_twice(task="u"), *_twice(task="u", purpose="cc")],
        "t: has no scores of cc at n_demos 0, demo_set 0, which other tasks have"),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes_are_named_with_their_place(rows: list[Record], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        plan_outputs(read_table([write(tmp_path / "scores.jsonl", rows)]))


def test_files_that_are_no_table_are_refused(tmp_path: Path) -> None:
    for name, content, message in [
        ("a.txt", b"", "is empty; CSV"),
        ("b.csv", b"", "is empty; CSV"),
        ("c.csv", b"task,label,logprob\nt,a\n", "line 2: has 2 columns and the header 3"),
        ("d.csv", b'task,label,logprob\nt,"a"b,1\n', "line 2: is no row of a table"),
        ("e.parquet", b"no", "is no readable Parquet or Arrow file"),
        ("f.csv", b"\xff\xfe\n\n", "is UTF-16"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=f"{name}: {message}"):
            read_table([tmp_path / name])  # fmt: skip
    with pytest.raises(InputError, match=r"absent\.jsonl: cannot be read \(No such file"):
        read_table([tmp_path / "absent.jsonl"])
    pq.write_table(pa.table({"task": pa.array([], pa.string())}), tmp_path / "g.parquet")
    with pytest.raises(InputError, match="holds no row"):
        read_table([tmp_path / "g.parquet"])


def test_a_table_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path / "scores.jsonl", SMALL)
    spec = imported_scores.imported_spec("table", [file], None)
    assert imported_scores.IMPORTED.describe(spec, imported_scores.IMPORTED.read(spec)).facts == {"n_tasks": 1}
    write(file, SMALL[:-2])
    with pytest.raises(InputError, match="changed while it was read; run the same command again"):
        imported_scores.IMPORTED.read(spec)


def test_a_run_of_own_scores_is_compared_with_its_imported_twin(tmp_path: Path) -> None:
    plan = two_tasks()
    for row in plan.prompts:
        row["input_text"] = f"{row['task']} {row['instance_id']}"
    own = plan.write(tmp_path / "own")
    measure(own, has_checks=False)
    rows = query([own], AS_TABLE).to_pylist()
    imported = import_scores(
        "table", [write(tmp_path / "scores.parquet", rows)], str(tmp_path / "imported"), page=False
    ).uri
    [shared] = query([own, imported], "from label_bias_shared where run = 'own'").to_pylist()
    assert (shared["n_tasks"], shared["n_rows"], shared["n_demos"]) == (2, 60, [0, 2])
    assert (shared["has_same_bias_score_rows"], shared["has_same_scoring"]) == (True, False)
    metrics = """
        select task, n_demos, demo_set, accuracy, macro_f1, rsd, round(bias_score, 6) as bias_score
        from label_bias_by_task where method = 'none' order by all
    """
    assert query([own], metrics).to_pylist() == query([imported], metrics).to_pylist()


def test_prompts_without_their_right_label_may_be_left_out_in_all_settings(tmp_path: Path, command: Command) -> None:
    rows = []
    for n_demos in (0, 2):
        for n in range(8):
            gold = None if n == 3 and n_demos else "yes"
            rows += rows_of(str(n), gold, {"yes": 0.6, "no": 0.3}, n_demos=n_demos)
        rows += rows_of("N/A", None, {"yes": 0.1, "no": 0.4}, purpose="cc", n_demos=n_demos)
    named = ["import", "table", str(write(tmp_path / "scores.csv", rows)), "--run-dir", str(tmp_path / "run")]
    refused = command(*named)
    assert refused.code == 2
    assert "t: gold is missing, which rows of the purpose main need; add it, or leave such prompts" in refused.err
    done = command(*named, "--on-bad-row", "drop")
    assert done.code == 0, done.err
    run = str(tmp_path / "run")
    found = query([run], "select n_demos, purpose, count(*) as n from prompts group by all order by all").to_pylist()
    assert [tuple(row.values()) for row in found] == [(0, "cc", 1), (0, "main", 7), (2, "cc", 1), (2, "main", 7)]
    again = command("report", run)
    assert again.code == 0, again.err
    notes = Run.open(run).read_json("plan.json")["notes"]
    assert "1 inputs without a right label are left out in all settings (--on-bad-row drop)." in notes
    with pytest.raises(InputError, match="no input has a right label; add the column gold"):
        read_table([write(tmp_path / "none.csv", rows_of("1", None, {"yes": 0.6, "no": 0.3}))], on_bad_row="drop")
