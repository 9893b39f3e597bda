"""What plans say of the smallest bias that a run would see."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from biaseval.analysis.sql_files import connect
from biaseval.prompting.power import smallest_gap
from biaseval.runs import describe
from tests.growth.runs import own_spec
from tests.label_bias.test_own_data import reviews, write_csv
from tests.label_bias_statistics.test_smallest_biases import smallest
from tests.majority_bias.datafiles import boolq_rows, boolq_spec, write_jsonl


def test_a_plan_says_the_smallest_bias_of_its_rows_and_what_it_assumes(tmp_path: Path, tiny_llama: Path) -> None:
    write_csv(tmp_path / "reviews.csv", reviews(200))
    write_csv(tmp_path / "test.csv", reviews(300, "other"))
    described = describe(own_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}))
    found, counts = described.facts["smallest_bias"], [150, 75, 75]
    names = ("n_test_rows", "n_fewest_rows", "n_gold_labels")
    assert [described.facts[name] for name in names] == [300, 75, 3]
    accuracy = 1 / 3 + 0.4 * (1 - 1 / 3)
    rsd, bias_score = found["rsd"], found["bias_score"]
    assert (found["accuracy"], rsd) == pytest.approx((accuracy, smallest(counts, accuracy)))
    assert 0.03 < bias_score < 0.3
    lines = list(described.lines)
    place = [name for name, _ in lines].index("smallest bias found")
    assert lines[place][1] == f"RSD {rsd:.3f}, BiasScore {bias_score:.3f}, in four of five such runs"
    assert f"at an accuracy of {accuracy:.2f} (40% of the way from chance to 1)" in lines[place + 1][1]
    # Few rows show none.
    write_csv(tmp_path / "reviews.csv", reviews(30))
    write_csv(tmp_path / "test.csv", reviews(12, "other"))
    few = describe(own_spec(tmp_path, tiny_llama, prompt={"n_demos": [0]}))
    assert few.facts["smallest_bias"]["rsd"] is None
    assert dict(few.lines)["smallest bias found"].startswith("RSD none, ")


def test_a_plan_of_majority_bias_says_the_smallest_effect_of_proportions(tmp_path: Path, tiny_llama: Path) -> None:
    for name, each in (("train", 10), ("test", 5)):
        write_jsonl(tmp_path / f"{name}.jsonl", boolq_rows(name, each, each))
    model, predict = {"path": str(tiny_llama)}, ["likelihood", "generate"]

    def planned(**changes: object) -> tuple[float | None, str]:
        described = describe(boolq_spec(tmp_path, model=model, predict=predict, **changes))
        return described.facts["smallest_bias"]["sd_f1_corrected"], dict(described.lines)["smallest bias found"]

    smallest, line = planned(calibration=["cc", "dc"], seeds=[0, 1, 2, 3, 4])
    with closing(connect([])) as connection:  # with and without instruction; likelihood, cc, dc and generate
        [(expected,)] = connection.execute("select visible_settings(0.01, 11, 5, 8)").fetchall()
    assert smallest == pytest.approx(expected)
    assert line == f"a standard deviation of weighted F1 over settings of {expected:.3f}"
    assert (planned()[0] or 0) > 1.5 * expected
    assert planned(seeds=[0]) == (None, "none: one seed cannot separate proportions from the draw of demonstrations")
    few = planned(proportions=[{"True": 0.5, "False": 0.5}, {"True": 1, "False": 0}])
    assert few == (None, "hardly any: so few settings and seeds have too few orders for the test")


@pytest.mark.parametrize(("n", "sample", "replacement"), [(10_570, 800, False), (3000, 800, True), (1600, 800, False)])
def test_the_smallest_gap_of_halves_is_found_in_four_of_five_runs(n: int, sample: int, replacement: bool) -> None:
    """A bias is found where it is above 0 and above 95 % of those of answers without any."""
    rng = np.random.default_rng(n)
    half = n // 2
    gap = smallest_gap(n, sample, replacement=replacement)
    assert gap is not None

    def significances(distance: float) -> np.ndarray:
        shares = [rng.binomial(half, 0.8 + side * distance / 2, size=20_000) / half for side in (1, -1)]
        shrink = 1 if replacement else np.sqrt((half - sample) / (half - 1))
        reach = sum(1.8777 * np.sqrt(share * (1 - share) / sample) * shrink for share in shares)
        found: np.ndarray = np.maximum(0, np.abs(shares[0] - shares[1]) - reach)
        return found

    noise = np.quantile(significances(0), 0.95)
    assert 0.75 <= np.mean(significances(gap) > noise) <= 0.85


def test_halves_that_are_smaller_than_a_sample_show_no_gap() -> None:
    assert smallest_gap(1599, 800, replacement=False) is None
