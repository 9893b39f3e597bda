"""Metrics of label bias: each is a file of ``analytics/metrics``.

Its head says what the metric is; its query gives the value of each setting and how far each row moves it, or the value
of each row, whose mean the metric is. Errors, tests, verdicts and comparisons follow from these. Imports nothing heavy.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Self

from biaseval.analytics_files import ANALYTICS, head

ROWS = {"predictions": "prediction, n_rows", "main": "row", "bias_score": "row"}
"""What the influences of a metric are over, to the columns that its query has beside ``gold``: cells of gold label and
prediction, main rows, or the rows of BiasScore."""

_GIVES = {"value": "value, influence", "row_value": "row_value"}
_NOISE = ("bias_score_p", "none")
_SETTING = "task, format, n_demos, demo_set, method"

Sql = Mapping[str, str]
"""Name of a metric to the text of its file."""


@dataclass(frozen=True)
class Metric:
    """What the head of a file says."""

    name: str
    """In marts and specs: the name of the file."""
    shown: str
    meaning: str
    better: str
    """``higher`` or ``lower``."""
    of_rows: str
    """One of `ROWS`."""
    low: float = -inf
    high: float = inf
    gives: str = "value"
    """``value``, with the influence of its rows, or ``row_value``, whose mean over rows it is."""
    by_gold: bool = False
    """Whether rows are resampled within gold labels: of metrics that are made of means within these."""
    fewest_rows: int = 1
    """Of each gold label, below which rows have no influence, so that there are no errors."""
    least_effect: float = 0.01
    """The smallest difference of interest."""
    requires: str | None = None
    """Its partner: a smooth metric that has to agree before a word is said of a difference."""
    noise: str | None = None
    """A metric whose influences take each side as known gets a verdict only if a side is above noise.
    ``bias_score_p``: this p of the settings decides. ``none``: no p decides, so the metric gets no verdict. None:
    it needs no such test."""

    @classmethod
    def of(cls, name: str, sql: str) -> Self:
        """Return what a file says of itself; Raises ValueError: its head lacks a key, or a key has no known value."""
        keys = head(sql)
        if lacking := [key for key in ("shown", "meaning", "better", "rows") if not keys.get(key)]:
            raise ValueError(f"its head lacks {', '.join(lacking)}; begin the file with lines such as -- shown: ECE")
        known = {
            "better": ("higher", "lower"),
            "rows": ROWS,
            "gives": _GIVES,
            "resampled": ("all", "by_gold"),
            "noise": _NOISE,
        }
        for key, values in known.items():
            if keys.get(key) not in (None, *values):
                raise ValueError(f"{key}: {keys[key]!r} is unknown; use {' or '.join(values)}")
        low, high = _numbers(keys, "range", " to ", ["-inf", "inf"])
        [least] = _numbers(keys, "least_effect", None, ["0.01"])
        [fewest] = _numbers(keys, "fewest_rows", None, ["1"])
        if not low < high or not least > 0 or fewest not in range(1, 10_000):
            raise ValueError("range, least_effect or fewest_rows: is out of bounds; write such as 0 to 1, 0.01 and 5")
        return cls(
            name=name, shown=keys["shown"], meaning=keys["meaning"], better=keys["better"], of_rows=keys["rows"],
            low=low, high=high, gives=keys.get("gives", "value"), by_gold=keys.get("resampled") == "by_gold",
            fewest_rows=int(fewest), least_effect=least, requires=keys.get("requires"), noise=keys.get("noise"),
        )  # fmt: skip

    @property
    def columns(self) -> str:
        """The columns that its query must have."""
        return f"{_SETTING}, gold, {ROWS[self.of_rows]}, {_GIVES[self.gives]}"

    def influences(self, sql: str) -> str:
        """Return the query of what a file gives ``metric_influences``: the value of a setting, and influences."""
        is_cell = self.of_rows == "predictions"
        own = [
            f"'{self.name}' as metric",
            _SETTING,
            "gold",
            "prediction" if is_cell else "null::varchar as prediction",
            "null::integer as row" if is_cell else "row",
            "n_rows" if is_cell else "1 as n_rows",
        ]
        if self.gives == "value":
            own += ["value", "influence"]
        else:
            weight = "n_rows" if is_cell else "1"
            own += [
                f"sum({weight} * row_value) over setting / sum({weight}) over setting as value",
                "row_value - value as influence",
            ]
        return (
            f"select {', '.join(own)} from (select {self.columns} from (\n{sql}\n)) "
            f"window setting as (partition by {_SETTING} order by gold, {'prediction' if is_cell else 'row'} "
            "rows between unbounded preceding and unbounded following)"
        )

    @property
    def literal(self) -> str:
        """What SQL knows of it, as a struct."""
        return (
            f"{{'metric': '{self.name}', 'of_rows': '{self.of_rows}', 'by_gold': {self.by_gold}, "
            f"'fewest_rows': {self.fewest_rows}, 'least_effect': {self.least_effect!r}::double, "
            f"'requires': {_text(self.requires)}, 'noise': {_text(self.noise)}, "
            f"'apart': {self.name not in EVERY_RUN}, 'shown': {_text(self.shown)}, "
            f"'better': '{self.better}'}}"
        )


def _numbers(keys: Mapping[str, str], key: str, between: str | None, default: list[str]) -> list[float]:
    texts = (keys[key].split(between) if between else [keys[key]]) if key in keys else default
    try:
        found = [float(text) for text in texts]
    except ValueError:
        found = []
    if len(found) != len(default):
        raise ValueError(f"{key}: {keys[key]!r} is not understood; write it as {(between or '').join(default)}")
    return found


def _text(value: str | None) -> str:
    return "null::varchar" if value is None else "'" + value.replace("'", "''") + "'"


_FILES: Sql = {path.stem: path.read_text(encoding="utf-8") for path in sorted(ANALYTICS.glob("metrics/*.sql"))}

METRICS = {name: Metric.of(name, sql) for name, sql in _FILES.items()}
"""By name."""

EVERY_RUN = ("macro_f1", "accuracy", "rsd", "bias_score")
"""The metrics of P1, which every run has, with their partners."""

MORE = tuple(
    name for name in METRICS if name not in EVERY_RUN and name not in {METRICS[own].requires for own in METRICS}
)
"""Those that a spec names (``analysis.metrics``)."""

NONE: Sql = MappingProxyType({})


def metric_files(named: Collection[str] = (), own: Sql = NONE) -> dict[str, str]:
    """Return the files of a run's metrics: those of every run, those that its spec names and brings, and partners."""
    found = {name: _FILES[name] for name in (*EVERY_RUN, *named)} | dict(own)
    for name in list(found):
        if (partner := Metric.of(name, found[name]).requires) is not None and partner not in found:
            found[partner] = _FILES[partner]
    return found
