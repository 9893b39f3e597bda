"""Macros and marts in queries over several runs, the shell and plain readers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from biaseval.analysis import query
from biaseval.errors import InputError
from biaseval.store import Run
from biaseval.tables import LABEL_SCORES, PROMPTS
from tests.labelplans import two_tasks
from tests.majorityplans import MajorityPlan, rows
from tests.measuring import measure
from tests.relationnames import views_of


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run without scores."""
    run = MajorityPlan(("generate",)).write(tmp_path_factory.mktemp("runs") / "generated")
    measure(run, has_database=True)
    return run


def test_runs_of_this_kind_and_of_others_are_read_together(built: str, generated: str, tmp_path: Path) -> None:
    label_bias = two_tasks().write(tmp_path / "animals")
    measure(label_bias)
    scored = Run.open(str(tmp_path / "scored"))
    scored.write_text("spec.yaml", "kind: score\n")
    scored.write_part("prompts", 0, PROMPTS.rows([{"prompt_id": "p"}]))
    scored.write_part("label_scores", 0, LABEL_SCORES.empty())
    assert rows(scored.uri, "select rb_at_k([0.5, 0.4], 10) as rb") == [{"rb": 1.0}]
    sql = "select run, weighted_f1(list(gold), list(prediction)) as f1 from calibrated_predictions"
    found = query([label_bias, built], f"{sql} where purpose = 'main' and method = 'none' group by run").to_pylist()
    assert [(row["run"], 0 < row["f1"] < 1) for row in found] == [("animals", True)]
    counted = query([built, generated, label_bias], "select run, count(*) as n from majority_predictions group by all")
    assert dict(zip(*counted.to_pydict().values(), strict=True)) == {"boolq": 48 * (3 + 1), "generated": 48}
    with pytest.raises(InputError, match="a gold label is null"):
        query([built], "select weighted_f1(list(gold), list(gold)) from prompts where gold is null")


@pytest.mark.parametrize("name", ["built", "generated"])
def test_the_duckdb_shell_has_the_macros_and_every_relation(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run: str = request.getfixturevalue(name)
    found = str(Path(sys.executable).with_name("duckdb"))  # of duckdb-cli, in the extra dev
    of_draws = "from majority_draws_by_model where instruction and predict = 'generate'"
    asked = [
        "select instruction::varchar as name, rb_at_k(list(weighted_f1), 10) as n "
        "from majority_over_seeds where predict = 'generate' group by all",
        "select setting, weighted_f1(list(gold), list(prediction)) from majority_predictions "
        "where predict = 'generate' and instruction group by all",
        "select 'relative', rb_at_k_relative([0.5, 0.45, 0.44], 10)",
        f"select 'estimate', estimate(mean_f1, draw) {of_draws}",
        f"select 'low', interval_low(mean_f1, draw) {of_draws}",
        f"select 'high', interval_high(mean_f1, draw) {of_draws}",
        *(f"select '{view}', count(*)::double from {view}" for view in views_of("majority_bias")),
    ]
    sql = " union all ".join(asked)
    call = [found, "-readonly", "-json", str(Path(run, "results.duckdb")), sql]
    answer = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=True)
    shown = {row["name"]: row["n"] for row in json.loads(answer.stdout)}
    assert shown == pytest.approx({row["name"]: row["n"] for row in rows(run, sql)})
    assert shown["relative"] == pytest.approx(2 / 3)
    [row] = rows(run, "from majority_by_model where instruction and predict = 'generate'")
    wanted = [row["mean_f1"], row["mean_f1_low"], row["mean_f1_high"]]
    assert [shown[one] for one in ("estimate", "low", "high")] == pytest.approx(wanted)
    assert shown["majority_by_setting"] > 0
