"""Compare several runs of one kind with the first of them, by the relations of ``comparisons``."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

import duckdb

from biaseval.analysis.compared_kinds import KINDS, Row
from biaseval.analysis.queries import Ask, open_runs, run_names, stored_kind
from biaseval.analysis.sql_files import literal
from biaseval.environment import raw_spec, read_environment
from biaseval.errors import BiasevalError, InputError
from biaseval.store import Run
from biaseval.tables import SIGN_FLIPS

N_LISTED = 50
"""The most rows listed per pair of runs that only one of the two has right."""

_WAYS = ("likelihood", "constrained", "generate")
"""Ways of predicting; the rows of the first one that both runs have are listed."""

_ASKED = (
    "shared", "comparison", "wins", "disagreements", "agreement", "compared", "compare_conclusions", "compare_cautions"
)  # fmt: skip
"""The comparisons of each kind, named by the part after the kind."""

LACKING = 16
"""The line of the caution that says what only one run has (`compare_cautions`)."""
LINES, PLACES = "who, against, line", "who, against, place_number, number, shown"
"""The order of sentences, and of differences, of two runs."""

_FACTS = ("versions", "python", "platform", "git_commit", "hardware", "inputs", "data", "text")
"""Keys of ``environment.json`` about the software, hardware and data of a run; its models are compared separately."""

_ORIGINS = ("spec.model.path", "spec.seed")
"""Facts about the origins of a run, beside the fingerprints of models."""


@dataclass(frozen=True)
class Compared:
    """Runs of one kind in comparison; the comments name the relations of the rows."""

    kind: str
    runs: list[str]
    """The names in the column ``run``; the other runs are compared with the first."""
    shared: list[Row]
    """``label_bias_shared``, ``majority_bias_shared`` or ``qa_bias_shared``: every ordered pair."""
    tests: list[Row]
    """``*_comparison``: every ordered pair that can be compared."""
    wins: list[Row]
    """``*_wins`` of the first run with each other run, in the listed setting."""
    disagreements: list[Row]
    """``*_disagreements`` of the same pairs, at most `N_LISTED` rows of each pair."""
    agreement: list[Row]
    """``*_agreement`` of the first run with each other run without a difference in any metric of predictions."""
    origins: list[Row]
    """The origins of each run, in the form of ``facts``: the models' paths and fingerprints, and the seed."""
    facts: list[Row]
    """Facts with different values in the runs: ``fact``, and its ``values`` by run."""
    conclusions: list[Row]
    """``*_compare_conclusions`` of the first run with each other run, in the order of the runs."""
    cautions: list[Row]
    """``*_compare_cautions`` of the same pairs: ``lead`` and ``text``; runs with the same caution share a line."""
    told: list[Row]
    """``*_compared`` of the same pairs."""
    queries: dict[str, list[str]]
    """The queries that show ``shared``, ``tests`` (those of the first run) and the listed rows (``rows``)."""

    @property
    def reference(self) -> str:
        """The first run, with which the others are compared."""
        return self.runs[0]

    def asks(self, relation: str, by: str = "run", condition: str = "true") -> str:
        """Return a query of the first run's rows against the other runs, in their order.

        The relation is named without the kind, as in ``compared``; ``by`` orders the rows of one other run.
        """
        return _asks(self.kind, self.runs, relation, by, condition)

    @property
    def others(self) -> list[str]:
        """The runs that can be compared with the first."""
        return [pair["other_run"] for pair in _of_first(self.shared, self.runs) if pair["is_comparable"]]


def compare_runs(run_dirs: Sequence[str]) -> Compared:
    """Return how runs differ from the first one, on exactly the data that each shares with it.

    There are at least two finished runs of one kind; their directories are local paths or ``s3://`` URIs.

    Raises:
        InputError: there are fewer than two runs, or one is named twice, is no run, or has another kind. Also if the
            first run shares nothing with any other; the message names the difference.
        BiasevalError: a run is not finished, or an older version analysed it.
    """
    with comparing(run_dirs) as (compared, _):
        return compared


@contextmanager
def comparing(run_dirs: Sequence[str], further: str = "") -> Iterator[tuple[Compared, Ask]]:
    """Yield the result of `compare_runs`, and a function for further queries that reuses its tables.

    ``further`` names the relations in those queries, except the kind's comparisons.
    """
    if len(run_dirs) < 2:
        raise InputError("compare: needs at least two runs; name the one to compare with, then the others")
    runs = [Run.open(run_dir) for run_dir in run_dirs]
    names = run_names(run_dirs)
    kind = _one_kind(runs)
    asked = f"{' '.join(f'{kind}_{name}' for name in _ASKED)} {further}"
    with closing(open_runs(run_dirs, asked)) as connection:
        _refuse_without_signs(runs)
        yield _compared(connection, kind, names, _facts(runs, names)), partial(_rows, connection)


def _compared(connection: duckdb.DuckDBPyConnection, kind: str, names: Sequence[str], facts: Sequence[Row]) -> Compared:
    shared = _rows(connection, f"from {kind}_shared order by all")
    _refuse_without_common(kind, names, shared)
    tests = _rows(connection, f"from {kind}_comparison order by all")
    of_first = f"where run = {literal(names[0])}"
    agreement: list[Row] = []
    for name in _without_difference(tests, names):
        select = f"from {kind}_agreement {of_first} and other_run = {literal(name)} order by all"
        agreement += _rows(connection, select)
    listed = _listed(kind, [pair for pair in _of_first(shared, names) if pair["is_comparable"]])
    wins = [f"from {kind}_wins where {where} order by all" for where in listed]
    rows = [
        f"from {kind}_disagreements where {where} qualify row_number() over (partition by other_run order by shuffled) "
        f"<= {N_LISTED} order by other_run, shuffled"
        for where in listed
    ]
    return Compared(
        kind,
        list(names),
        shared,
        tests,
        wins=[row for query in wins for row in _rows(connection, query)],
        disagreements=[row for query in rows for row in _rows(connection, query)],
        agreement=agreement,
        origins=[row for row in facts if row["fact"] in _ORIGINS or row["fact"].startswith("fingerprint.")],
        facts=[row for row in facts if len(set(row["values"].values())) > 1],
        conclusions=_rows(connection, _asks(kind, names, "compare_conclusions", LINES)),
        cautions=_rows(connection, cautions_of(kind, names)),
        told=_rows(connection, _asks(kind, names, "compared", PLACES)),
        queries={
            "shared": [f"from {kind}_shared {of_first}"],
            "tests": [f"from {kind}_comparison {of_first}"],
            "rows": [*wins, *rows],
        },
    )


def _asks(kind: str, names: Sequence[str], relation: str, by: str, condition: str = "true") -> str:
    also = "" if condition == "true" else f" and {condition}"
    return f"from {kind}_{relation} where run = {literal(names[0])}{also} order by {_order(names)}, {by}"


def _order(names: Sequence[str]) -> str:
    """Return the SQL for the position of the other run among the runs compared with the first."""
    return f"list_position([{', '.join(map(literal, names[1:]))}], other_run)" if len(names) > 2 else "other_run"


def cautions_of(kind: str, names: Sequence[str]) -> str:
    """Return the query of the cautions about the first run and the others."""
    return (
        f"select min(line) as line, '' as lead, listed(list(other_run order by {_order(names)})) || ' against ' || run "
        f"|| ': ' || text as text from {kind}_compare_cautions where run = {literal(names[0])} group by run, text "
        "order by line, text"
    )


def _one_kind(runs: Sequence[Run]) -> str:
    """Return the kind of the runs; Raises InputError: there are several kinds, or one whose runs cannot be compared."""
    kinds = {run.uri: stored_kind(run) for run in runs}
    *known, last = KINDS
    if problems := [
        f"{uri}: is of the kind {kind!r}, which has no metrics to compare; name runs of {', '.join(known)} or {last}"
        for uri, kind in kinds.items()
        if kind not in KINDS
    ]:
        raise InputError.of(problems)
    if len(set(kinds.values())) > 1:
        found = ", ".join(f"{uri} is of the kind {kind}" for uri, kind in kinds.items())
        raise InputError(f"compare: {found}; name runs of one kind")
    return kinds[runs[0].uri]


def _refuse_without_signs(runs: Sequence[Run]) -> None:
    """Make sure that the runs have the inputs of the tests; Raises BiasevalError: an older version analysed them."""
    if lacking := [run.uri for run in runs if not run.parts(SIGN_FLIPS.name)]:
        raise BiasevalError(
            f"{', '.join(lacking)}: analysed by a version that stored no {SIGN_FLIPS.name}; "
            f"biaseval report {' '.join(lacking)} adds them"
        )


def _refuse_without_common(kind: str, names: Sequence[str], shared: Sequence[Row]) -> None:
    """Make sure that the first run has something in common with another; Raises InputError: it has nothing."""
    pairs = _of_first(shared, names)
    if not any(pair["is_comparable"] for pair in pairs):
        problems = [
            f"{pair['run']} and {pair['other_run']}: nothing can be compared: {KINDS[kind].why_not(pair)}"
            for pair in pairs
        ]
        if len(names) > 2:
            problems.append("the first run named is what the others are compared with; name another one first")
        raise InputError.of(problems)


def _of_first(shared: Sequence[Row], names: Sequence[str]) -> list[Row]:
    """Return the pairs of the first run with the others, in their order."""
    pairs = {pair["other_run"]: pair for pair in shared if pair["run"] == names[0]}
    return [pairs[name] for name in names[1:] if name in pairs]


def _listed(kind: str, pairs: Sequence[Row]) -> list[str]:
    """Return conditions on the listed pairs and settings; pairs with the same setting share a condition."""
    others: dict[str, list[str]] = {}
    for pair in pairs:
        n_demos, predicts = max(pair.get("n_demos") or [0]), pair.get("predicts") or []
        predict = literal(next((way for way in _WAYS if way in predicts), ""))
        others.setdefault(KINDS[kind].listed.format(n_demos=n_demos, predict=predict), []).append(pair["other_run"])
    return [
        f"run = {literal(pairs[0]['run'])} and other_run in ({', '.join(map(literal, names))}) and {setting}"
        for setting, names in others.items()
    ]


def _without_difference(tests: Sequence[Row], names: Sequence[str]) -> list[str]:
    """Return the other runs without a difference in any metric of predictions; BiasScore uses probabilities."""
    estimates: dict[str, list[float | None]] = {}
    for row in tests:
        if row["run"] == names[0] and row["metric"] != "bias_score":
            estimates.setdefault(row["other_run"], []).append(row["estimate"])
    return [name for name in names[1:] if name in estimates and not any(estimates[name])]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    try:
        found: list[Row] = connection.sql(sql).to_arrow_table().to_pylist()
        return found
    except duckdb.Error as error:
        raise BiasevalError(
            f"the runs cannot be compared: {error}; mend this and run the same command again"
        ) from error


def _facts(runs: Sequence[Run], names: Sequence[str]) -> list[Row]:
    """Return the facts in the runs' specs and environments, one row each: ``fact``, and its ``values`` by run."""
    found: dict[str, dict[str, str | None]] = {}
    for run, name in zip(runs, names, strict=True):
        spec = {key: value for key, value in raw_spec(run).items() if key != "execution"}
        environment = read_environment(run)
        made = {key: environment[key] for key in _FACTS if key in environment}
        models = {"model": environment["model"]} if "model" in environment else environment.get("models", {})
        digests = {model: facts.get("digest") for model, facts in models.items() if isinstance(facts, dict)}
        for fact, value in _leaves({"spec": spec, **made, "fingerprint": digests}):
            found.setdefault(fact, dict.fromkeys(names))[name] = value
    return [{"fact": fact, "values": values} for fact, values in found.items()]


def _leaves(content: Row, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, text) for nested mappings, including the entries of lists; named entries appear by name."""
    for key, value in content.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            yield from _leaves(value, name)
        elif isinstance(value, list) and value and all(isinstance(each, dict) and each.get("name") for each in value):
            yield name, ", ".join(str(each["name"]) for each in value)
            for each in value:
                own = {fact: part for fact, part in each.items() if fact != "name"}
                yield from _leaves(own, f"{name}.{each['name']}")
        elif isinstance(value, list):
            yield name, ", ".join(map(str, value)) or "none"
        elif value is not None:
            yield name, str(value)
