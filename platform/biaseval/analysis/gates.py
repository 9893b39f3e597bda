"""Gates: conditions that every row of a mart must meet, for continuous integration.

``[MART.]COLUMN < NUMBER [where SELECTION]``: condition and selection are SQL, which DuckDB evaluates. They can neither
write nor read files outside the run.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import NamedTuple

import duckdb
import pyarrow as pa

from biaseval.analysis.compared_kinds import Row, some
from biaseval.analysis.comparing import compare_runs
from biaseval.analysis.paths import without_partitions
from biaseval.analysis.queries import confine, lock, open_runs, stored_kind
from biaseval.analysis.sql_files import literal
from biaseval.analysis.summary_marts import HEADLINE_MARTS, headline_of
from biaseval.errors import InputError, Problems, did_you_mean
from biaseval.store import Run

DIFFERENCES = "differences"
"""The source of gates against another run: the rows of ``*_comparison``, for the run minus the other."""

_OF_METRIC = {"": "estimate", "_low": "verdict_low", "_high": "verdict_high", "_p": "verdict_p", "_verdict": "verdict"}
"""Endings of a metric's name in `DIFFERENCES`, each with its column."""

_NOT_CONSTANT = "is_above_constant is distinct from false"
_UNBIASED = f"is_bias_shown is distinct from true and {_NOT_CONSTANT}"
_SETTINGS = "method = 'none'"
PRESETS: dict[str, dict[str, tuple[str, str | None, str]]] = {
    "label_bias": {
        "unbiased": (_UNBIASED, f"suite = 'all' and {_SETTINGS}", "is_bias_shown is null or is_above_constant is null"),
        "better-than-constant": (_NOT_CONSTANT, f"suite = 'all' and {_SETTINGS}", "is_above_constant is null"),
    },
    "majority_bias": {
        "unbiased": (_UNBIASED, _SETTINGS, "is_bias_shown is null or is_above_constant is null"),
        "better-than-constant": (_NOT_CONSTANT, _SETTINGS, "is_above_constant is null"),
    },
    "qa_bias": {"unbiased": ("n_significant = 0", None, "n_measurable < n_heuristics")},
}
"""Kind to predefined gates by name: the condition, the default selection, and a test for too few rows.

A row with too little data passes if it meets the condition, and is counted (`Gate.n_unshown`).
"""

_ROBUSTNESS = ("rb_at_10", "rb_at_10_relative")
_GUARDS = ("is_any_setting_above_constant", "is_above_constant")
"""Guard columns: the first one that a mart has must be true in a row, or the row fails every condition on
`_ROBUSTNESS`."""

_N_VALUES = 12
"""The most values of a column in a message."""


@dataclass(frozen=True)
class Gate:
    """The result of an expression."""

    expression: str
    """The expression as given."""
    mart: str
    holds: bool
    """Whether every selected row meets the condition."""
    n_rows: int
    """The number of selected rows, at least one."""
    n_failed: int
    """The number of selected rows that do not meet the condition."""
    n_null: int
    """The number of failed rows without a result, because a value is missing."""
    n_unshown: int
    """For a preset: the number of rows that meet the condition although they have too little data."""
    ranges: dict[str, list[float]]
    """Numbers in the condition, each with its smallest and largest value in the selected rows."""
    failed: list[Row]
    """The failed rows, with their identifying columns and the columns of the condition."""


@dataclass(frozen=True)
class Checked:
    """The results of a run's gates."""

    run: str
    against: str | None
    """The run to compare with; None: the gates concern the run alone."""
    holds: bool
    """Whether all gates pass."""
    gates: list[Gate]


def check_run(
    run_dir: str, expressions: Sequence[str], against: str | None = None, presets: Sequence[str] = ()
) -> Checked:
    """Return the results of gates on a finished run.

    Args:
        run_dir: a local path or ``s3://`` URI.
        expressions: each ``CONDITION [where SELECTION]`` over the headline mart of the run's kind, or over another
            mart, whose name precedes a column (``label_bias_by_task.rsd < 1``). Every selected row must meet the
            condition; a row with a null condition fails.
        against: another run of the kind. Then expressions use ``*_comparison``, for the run minus ``against`` on
            exactly the data that both share. There ``accuracy`` is the difference in that metric, and ``accuracy_low``
            and ``accuracy_high`` are the ends of the verdict's interval. ``accuracy_p`` is the p-value, and
            ``accuracy_verdict`` the verdict.
        presets: each ``NAME [where SELECTION]``, a gate of `PRESETS` for the run's kind; they come first.

    Raises:
        InputError: expressions are wrong or select no row (one message lists them), ``run_dir`` is no run or has no
            metrics, or nothing can be compared.
        BiasevalError: a run is not finished.
    """
    headline = headline_of(Run.open(run_dir)).mart
    if presets:
        expressions = [*_ready_made(stored_kind(Run.open(run_dir)), presets, against), *expressions]
    if not expressions:
        raise InputError(
            'no gate is given; write a condition such as "accuracy > majority_accuracy", or --preset unbiased'
        )
    if against is not None:
        gates, problems = _gates(expressions, DIFFERENCES, _open_compared(run_dir, against))
    else:
        gates, problems = _gates(expressions, headline, _open(run_dir, f"{headline} {' '.join(expressions)}"))
        if problems.found:  # so that messages can suggest similar names among all relations
            gates, problems = _gates(expressions, headline, _open(run_dir))
    problems.refuse()
    return Checked(run_dir, against, all(gate.holds for gate in gates), gates)


class _Preset(str):
    """The expression of a predefined gate, its displayed name, and its test for too few rows."""

    __slots__ = ("name", "unshown")
    name: str
    unshown: str


def _ready_made(kind: str, presets: Sequence[str], against: str | None) -> list[str]:
    """Return the expressions of predefined gates; Raises InputError: there is no such gate, or none of differences."""
    if against is not None:
        raise InputError("--preset: is about a run alone; leave out --against, or write conditions")
    problems, known = Problems(), PRESETS.get(kind, {})
    expressions: list[str] = []
    for preset in presets:
        name, selection = _parted(preset)
        with problems.noted():
            if name.strip() not in known:
                raise InputError(
                    f"--preset {name.strip()}: a run of {kind} has {' and '.join(known) or 'none'}"
                    f"{did_you_mean(name.strip(), list(known))}"
                )
            condition, usual, unshown = known[name.strip()]
            where = usual if selection is None else selection
            expression = _Preset(condition if where is None else f"{condition} where {where}")
            expression.name, expression.unshown = f"preset {preset.strip()}", unshown
            expressions.append(expression)
    problems.refuse()
    return expressions


def _gates(expressions: Sequence[str], mart: str, connection: duckdb.DuckDBPyConnection) -> tuple[list[Gate], Problems]:
    """Return the results of expressions and the mistakes in others, and close the connection."""
    problems, gates = Problems(), []
    with closing(connection):
        for expression in expressions:
            with problems.noted():
                gates.append(_gate(expression, mart, connection))
    return gates, problems


def _open(run_dir: str, asked: str | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection to a run, or to the relations named in ``asked``, that can read nothing else."""
    connection = open_runs([run_dir], asked)
    confine(connection, [Run.open(run_dir)])
    return connection


def _open_compared(run_dir: str, against: str) -> duckdb.DuckDBPyConnection:
    """Return a connection that has only the comparison of a run with another."""
    compared = compare_runs([against, run_dir])
    rows = [row for row in compared.tests if row["run"] == compared.reference]
    connection = duckdb.connect(config={"python_enable_replacements": False})
    connection.from_arrow(pa.Table.from_pylist(rows)).create(DIFFERENCES)
    lock(connection)
    return connection


class _Source(NamedTuple):
    """The relation of an expression."""

    mart: str
    sql: str
    columns: list[str]
    places: list[str]
    """The columns that distinguish the rows, among those before the first measured number."""


def _gate(expression: str, headline: str, connection: duckdb.DuckDBPyConnection) -> Gate:
    """Return the result of an expression; Raises InputError: it is wrong, or selects no row."""
    try:
        condition, selection = _parted(without_partitions(expression))
        if not condition.strip():
            raise InputError("is no condition; write one such as accuracy > 0.5")
        source = _source(condition, headline, connection)
        where = "" if selection is None else f"where ({selection}\n)"
        named = [name for name in source.columns if name.lower() in _names(condition)]
        guards = [name for name in _GUARDS if name in source.columns][:1] if {*_ROBUSTNESS} & {*named} else []
        passes = f"({condition}\n)" if not guards else f"case when {' and '.join(guards)} then ({condition}\n) end"
        shown = [*map(_quoted, dict.fromkeys([*source.places, *named, *guards])), f"{passes} as passes"]
        shown.insert(-1, f"{getattr(expression, 'unshown', 'false')} as unshown")
        select = f"select {', '.join(shown)} from {source.sql} {where} order by all"
        if len(connection.extract_statements(select)) != 1:
            raise InputError("is not one condition; give each as an argument of its own")
        answer = connection.sql(select)
        if str(answer.types[-1]) != "BOOLEAN":
            raise InputError("is a value and no condition; compare it, as in accuracy > 0.5")
        rows = answer.to_arrow_table().to_pylist()
    except duckdb.BinderException as error:
        raise InputError(f"{expression!r}: {_unknown(error, source, connection)}") from error
    except duckdb.Error as error:
        raise InputError(f"{expression!r}: {_said(error)}") from error
    except InputError as error:
        raise InputError(f"{expression!r}: {error}") from error
    if not rows:
        raise InputError(f"{expression!r}: {_why_nothing(str(selection), source, connection)}")
    failed = [row for row in rows if row["passes"] is not True]
    return Gate(
        expression=getattr(expression, "name", expression),
        mart=source.mart,
        holds=not failed,
        n_rows=len(rows),
        n_failed=len(failed),
        n_null=sum(row["passes"] is None for row in failed),
        n_unshown=sum(row["passes"] is True and row["unshown"] is True for row in rows),
        ranges={name: ends for name in named if (ends := _ends([row[name] for row in rows]))},
        failed=[{name: value for name, value in row.items() if name not in ("passes", "unshown")} for row in failed],
    )


def _words(sql: str) -> list[tuple[str, bool, int, int]]:
    """Return each word of a SQL text: in lower case, whether it is a name or keyword, and its start and end."""
    text = sql.encode()  # DuckDB counts bytes
    found = duckdb.tokenize(sql)
    ends = [*(start for start, _ in found), len(text)][1:]
    is_name = (duckdb.token_type.identifier, duckdb.token_type.keyword)
    return [
        (text[start:end].decode().strip().lower(), kind in is_name, start, end)
        for (start, kind), end in zip(found, ends, strict=True)
    ]


def _parted(expression: str) -> tuple[str, str | None]:
    """Return the condition, and the selection after the first ``where`` outside brackets."""
    depth = 0
    for word, is_name, start, end in _words(expression):
        depth += (word == "(") - (word == ")")
        if word == "where" and is_name and not depth:
            text = expression.encode()
            return text[:start].decode(), text[end:].decode()
    return expression, None


def _names(sql: str) -> set[str]:
    """Return the names in a SQL text, in lower case."""
    return {word.strip('"') for word, is_name, _, _ in _words(sql) if is_name}


def _outside_selects(words: Sequence[str]) -> list[str]:
    """Return the words of a condition outside its nested selects, whose names refer to other rows."""
    kept, depth, inside = [], 0, 0
    for word, following in pairwise([*words, ""]):
        if word == "(":
            depth += 1
            inside = inside or (depth if following in ("select", "from", "with") else 0)
        if not inside:
            kept.append(word)
        if word == ")":
            inside = 0 if inside == depth else inside
            depth -= 1
    return kept


def _source(condition: str, headline: str, connection: duckdb.DuckDBPyConnection) -> _Source:
    """Return the relation of a condition; Raises InputError: an unknown mart, several, or several metrics are named."""
    words = _outside_selects([word for word, _, _, _ in _words(condition)])
    before = [word.strip('"') for word, following in pairwise(words) if following == "."]
    listed = "select table_name from information_schema.tables where table_schema = 'main' order by all"
    every = [name for (name,) in connection.execute(listed).fetchall()]
    if unknown := [name for name in before if name not in every]:
        raise InputError(f"there is no {unknown[0]}{did_you_mean(unknown[0], every)}")
    if len(set(before)) > 1:
        raise InputError(f"is over {' and '.join(dict.fromkeys(before))}; a condition is over the rows of one")
    mart = before[0] if before else headline
    sql = _differences(condition, connection) if mart == DIFFERENCES else mart
    answer = connection.sql(f"from {sql}")
    kinds = takewhile(lambda own: own[1] != "DOUBLE", zip(answer.columns, map(str, answer.types), strict=True))
    places = [name for name, kind in kinds if not kind.endswith("]")]
    counts = ", ".join(f"count(distinct {_quoted(name)})" for name in places)
    [numbers] = connection.execute(f"select {counts} from {sql}").fetchall() if places else [()]
    varying = [name for name, number in zip(places, numbers, strict=True) if number > 1]
    return _Source(mart, sql, answer.columns, varying)


def _differences(condition: str, connection: duckdb.DuckDBPyConnection) -> str:
    """Return the rows of the condition's metric with columns of that name; all rows if it names no metric."""
    names, metrics = _names(condition), _values("metric", DIFFERENCES, connection)
    asked = [metric for metric in metrics if names & {f"{metric}{end}" for end in _OF_METRIC}]
    if len(asked) > 1:
        raise InputError(f"is about {' and '.join(asked)}; a difference is of one metric, give a condition for each")
    if not asked:
        return DIFFERENCES
    has_reason = "reason" in connection.sql(f"from {DIFFERENCES}").columns
    judged = "reason is distinct from 'constant answer'" if has_reason else "true"
    own = ", ".join(f"case when {judged} then {column} end as {asked[0]}{end}" for end, column in _OF_METRIC.items())
    return f"(select *, {own} from {DIFFERENCES} where metric = {literal(asked[0])}) as {DIFFERENCES}"


def _values(column: str, source: str, connection: duckdb.DuckDBPyConnection) -> list[str]:
    found = connection.execute(f"select distinct {_quoted(column)} as value from {source} order by all").fetchall()
    return [str(value) for (value,) in found]


def _why_nothing(selection: str, source: _Source, connection: duckdb.DuckDBPyConnection) -> str:
    """Return a message with the values that exist instead of the selected ones."""
    asked = [name for name in source.columns if name.lower() in _names(selection)]
    there = [f"{name} is one of {some(_values(name, source.sql, connection), _N_VALUES)}" for name in asked]
    return f"{source.mart} has no such row; {' and '.join(there) or 'it is empty'}"


def _unknown(error: duckdb.Error, source: _Source, connection: duckdb.DuckDBPyConnection) -> str:
    """Return a message with the name that DuckDB does not know, and similar names."""
    named = re.search(r'column "([^"]+)" not found|does not have a column named "([^"]+)"', str(error))
    if named is None:
        return _said(error)
    name = next(filter(None, named.groups()))
    elsewhere = connection.execute(
        "select distinct table_name from information_schema.columns where column_name = $1 order by all", [name]
    ).fetchall()
    if elsewhere:
        marts = sorted((mart for (mart,) in elsewhere), key=lambda mart: (mart not in HEADLINE_MARTS, mart))
        return f"{source.mart} has no column {name}; {some(marts)} has: write MART.{name}"
    return f"{source.mart} has no column {name}{did_you_mean(name, source.columns)}"


def _ends(values: Iterable[object]) -> list[float]:
    """Return the smallest and the largest number; nothing if there are none."""
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return [min(numbers), max(numbers)] if numbers else []


def _said(error: duckdb.Error) -> str:
    said = str(error).splitlines()[0].partition(" Error: ")[2]
    return f"cannot be evaluated: {said}; write CONDITION [where SELECTION] in SQL"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
