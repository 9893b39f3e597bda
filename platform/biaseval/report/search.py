"""The page of a search, as a list of blocks over its marts: the chosen point and its effect."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from biaseval.environment import raw_spec, read_environment
from biaseval.errors import BiasevalError
from biaseval.parsing import json_value
from biaseval.prompting.calibration import Variant
from biaseval.report.blocks import Ask, Definitions, Figures, Fold, Keys, Layout, Row, Section, Table, Text
from biaseval.report.charts import Chart, trials_chart
from biaseval.report.settings import first_blocks
from biaseval.store import Run

N_DRAWN = 24
"""The most choices with charts."""

_FAR = 100
"""The ratio of a grid's largest to its smallest value from which its axis is logarithmic."""

_SAMPLES = {
    "half": ("tuning half", "evaluation half"),
    "held_out": ("held-out rows", "main rows"),
    "published": ("all data", None),
}
"""The data that chose the point, and the data that the choice did not see."""


def search_charts(run: Run, ask: Ask) -> list[Chart]:
    """Return charts of the objective by each key, and by the two most important numeric keys, for each choice.

    Raises:
        BiasevalError: the marts have several objectives, which only an older version computed.
    """
    search, [settings] = raw_spec(run)["search"], ask("from search_settings")
    if len(settings["objectives"]) > 1:
        raise BiasevalError(
            f"{run.uri}: its marts are those of several objectives; biaseval report {run.uri} computes them for the "
            "first alone"
        )
    names = short_keys(list(search))
    given: set[str] = set()

    def named(*parts: str) -> str:
        plain = "_".join(re.sub(r"[^A-Za-z0-9._-]", "-", part) for part in parts)
        name = next(one for n in range(len(given) + 1) if (one := f"{plain}-{n + 1}" if n else plain) not in given)
        given.add(name)
        return name

    charts: list[Chart] = []
    rows = ask("from search_trials where value is not null order by scope, trial")
    order = [row["key"] for row in ask("from search_importance order by share desc nulls last, key")]
    for scope, found in [(one, list(own)) for one, own in groupby(rows, key=lambda row: str(row["scope"]))][:N_DRAWN]:
        own = [{**row, "point": json_value(row["parameters"])} for row in found]
        parts = [scope] if settings["per"] else []
        objective = own[0]["objective"]
        where = f", {scope}" if settings["per"] else ""
        for key, domain in search.items():
            name = named("response", *parts, objective, names[key])
            charts.append(_response(name, f"{objective} by {names[key]}{where}", own, key, names, domain, settings))
        two = sorted((key for key in search if "choice" not in search[key]), key=order.index)[:2]
        if len(two) == 2:
            charts.append(
                _slice(named("slice", *parts, objective), own, [key for key in search if key in two], names, search)
            )
    return charts


def _response(
    name: str,
    title: str,
    rows: Sequence[Row],
    key: str,
    names: Mapping[str, str],
    domain: Mapping[str, Any],
    settings: Row,
) -> Chart:
    chose, unseen = _SAMPLES[settings["choose_on"]]
    samples = [("value", chose), *([("evaluation", unseen)] if unseen else [])]
    points = [
        {"x": _shown(row["point"][key]), "y": row[column], "low": row[f"{column}_low"], "high": row[f"{column}_high"]}
        | {"series": shown, "trial": row["trial"], "is_chosen": row["is_chosen"]}
        for column, shown in samples
        for row in rows
        if row[column] is not None
    ]
    axes = (names[key], rows[0]["objective"])
    return trials_chart(name, points, title=title, axes=axes, are_log=(_is_log(points, "x", domain), False))


def _slice(name: str, rows: Sequence[Row], keys: Sequence[str], names: Mapping[str, str], search: Row) -> Chart:
    first, second = keys
    points = [
        {"x": row["point"][first], "y": row["point"][second], "value": row["value"], "trial": row["trial"]}
        | {"is_chosen": row["is_chosen"]}
        for row in rows
    ]
    objective = rows[0]["objective"]
    return trials_chart(
        name,
        points,
        title=f"{objective} by two keys",
        axes=(names[first], names[second]),
        are_log=(_is_log(points, "x", search[first]), _is_log(points, "y", search[second])),
        color=objective,
    )


def _shown(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else str(value).lower() if isinstance(value, bool) else str(value)


def _is_log(points: Sequence[Row], axis: str, domain: Mapping[str, Any]) -> bool:
    values = [point[axis] for point in points]
    if not all(isinstance(value, int | float) and value > 0 for value in values):
        return False
    return "loguniform" in domain or ("grid" in domain and max(values) / min(values) >= _FAR)


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Return each key's last name, with as many earlier names as distinguish the keys; ``thresholds.*`` stays whole."""
    shown = {}
    for key in keys:
        parts = key.split(".")
        others = [other.split(".") for other in keys if other != key]
        n_parts = next((n for n in range(1, len(parts)) if all(own[-n:] != parts[-n:] for own in others)), len(parts))
        shown[key] = key if parts[-1] == "*" else ".".join(parts[-n_parts:])
    return shown


def reference_trial(spec: Mapping[str, Any], ask: Ask) -> int | None:
    """Return the first trial with the values of the searched spec (a strength of 1 is as published), if any."""
    point = {key: _own_value(spec["spec"], key) for key in spec["search"]}
    done = ask("select trial, parameters from trials where state = 'done' order by trial")
    return next((row["trial"] for row in done if json_value(row["parameters"]) == point), None)


def _own_value(spec: Mapping[str, Any], key: str) -> Any:
    if key.startswith("calibration."):
        _, method, what = key.split(".")
        named = next(own for own in map(Variant.of, spec["calibration"]) if own.method == method)
        return 1 if what == "strength" else named.inputs
    value: Any = spec
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def search_notes(run: Run) -> list[str]:
    """Return a note if an older version searched for several objectives."""
    objectives = raw_spec(run)["objective"]
    if not isinstance(objectives, list) or len(objectives) < 2:
        return []
    first = objectives[0].get("name") or re.findall(r" as (\w+)", objectives[0]["sql"])[0]
    return [
        f"An older version searched for several objectives. This page shows the first, {first}, and chooses by it "
        "alone; the table trials has the values of the others."
    ]


def search_layout(run: Run, ask: Ask, charts: Sequence[Chart]) -> Layout:
    """Return the page of a finished search; ``charts`` are those of `search_charts`."""
    spec, environment, [settings] = raw_spec(run), read_environment(run), ask("from search_settings")
    chose, unseen = _SAMPLES[settings["choose_on"]]
    responses = [chart for chart in charts if chart.name.startswith("response")]
    first = responses[: len(spec["search"])] if not settings["per"] else responses[:1]
    objectives = spec["objective"] if isinstance(spec["objective"], list) else [spec["objective"]]
    return Layout(
        f"Search: {spec['name']}",
        [settings["searched"], ", ".join(settings["keys"]), environment.get("date")],
        [
            Section("summary", "Which value is best?", *first_blocks(
                "search", Figures(first, _SEEN), Table(
                    _CHOSEN, "select *, as_point(parameters) as point from search_best order by scope",
                    _best_columns(chose, unseen),
                ), search_notes(run),
            )),
            Section("response", "Response", Figures([one for one in charts if one not in first], _SEEN)),
            Section("importance", "Importance", _IMPORTANCE),
            Section("flatness", "How flat the optimum is", _FLAT, link="Flatness"),
            Section("optimism", "What choosing adds", _ADDED, *_reference(spec, ask), link="Optimism"),
            Section("thresholds", "Thresholds by the rules of the paper", _RULES, link="Thresholds"),
            Section("cost", "Cost", Table(
                "Trials by how they ended, and the optimizer steps that each made itself.",
                "from search_costs order by state",
                "state|State; n_trials|Trials|count; fewest_steps|Fewest steps|count; "
                "most_steps|Most steps|count; steps|All steps|count",
            ), Table(
                "Why trials were not done, with the first five of each.", _PROBLEMS,
                "problem|Problem|name; state|State; n_trials|Trials|count; first_trials|First trials|list",
            )),
            Section("trials", "Every trial", Fold("All trials", Table(
                _TRIED, _TRIALS, _trials_columns(chose, unseen),
            )), link="Trials"),
            Section("terms", "What the terms mean", Fold("Terms", Definitions(_TERMS)), link="Terms"),
            Section(
                "settings", "Settings", Text("The objective is the number that this query returns for each trial."),
                Keys("Objectives", {one.get("name") or "query": one["sql"] for one in objectives}),
                Text("" if settings["per"] or not ask("from search_best limit 1")
                    else "The chosen point is a spec, ready to be run alone: biaseval run RUN/best.yaml."),
                Fold("Spec and environment", Keys("The spec, with every default", spec),
                    Keys("Environment", environment)),
            ),
        ],
    )  # fmt: skip


def _reference(spec: Mapping[str, Any], ask: Ask) -> list[Table]:
    """Return the table of the trial with the searched spec's values, if any."""
    trial = reference_trial(spec, ask)
    if trial is None:
        return []
    is_strength = all(key.endswith(".strength") for key in spec["search"])
    name = "strength 1, as published" if is_strength else "the spec's own values"
    return [Table(
        f"The trial at {name}, and its difference from the chosen trial with 95 % intervals: on the data that "
        "chose, which favour the chosen one, and on data that did not choose.",
        f"select *, as_point(parameters) as point from search_trials where trial = {trial} order by scope",
        _REFERENCE_COLUMNS,
    )]  # fmt: skip


def _best_columns(chose: str, unseen: str | None) -> str:
    return f"""
point|Chosen; scope|For; trial|Trial|count; value|{chose}|any; evaluation|{unseen}|any;
evaluation_gain|Gain over the mean of all trials|signed|evaluation_gain_verdict;
is_above_constant|Better than one label|shown;
n_within_noise|Intervals with 0|count; n_told_worse|Found worse|count; n_told_better|Found better|count;
n_tested|Tested|count"""


def _trials_columns(chose: str, unseen: str | None) -> str:
    return f"""
point|Point|name; trial|Trial|count; scope|For; state|State; value|{chose}|any; difference|From the chosen|signed;
evaluation|{unseen}|any; evaluation_difference|From the chosen|signed|word; is_chosen|Chosen|yes; steps|Steps|count"""


_SEEN = (
    "Each trial at its value of a key, or, where colour shows the objective, at its values of two keys. Bars: 95 % "
    "intervals. Ringed: the chosen trial. With several keys the others vary along."
)
_CHOSEN = (
    "The chosen point. In brackets: 95 % intervals. Intervals with 0: other trials whose difference from it includes 0 "
    "on the data that chose, each alone. Found worse or better: by tests of all together on data that did not choose."
)
_IMPORTANCE = Table(
    "The share of the objective's variance over trials that goes with one key alone: 0 where it is no more than "
    "chance. Shares from few trials are rough.",
    "from search_importance where share is not null order by scope, share desc, key",
    "key|Key|name; scope|For; share|Share|percent; n_bins|Values or parts|count; n_trials|Trials|count",
)
_FLAT = Table(
    "Other trials by their difference from the chosen one. Between: the values of the only key at which the interval "
    "of the difference includes 0.",
    "from search_best order by scope",
    """
scope; n_within_noise|Intervals with 0|count; flat_low|Between|any; flat_high|and|any; n_worse|Behind|count;
n_compared; n_told_worse|Found worse|count; n_told_better|Found better|count; n_tested""",
)
_ADDED = Table(
    "Optimism: by how much the chosen trial looks better on the data that chose. Gain: by how much it is better than "
    "the mean of all trials that are done. Positive is better, whichever way the objective goes.",
    "from search_best order by scope",
    """
scope; value|Where it was chosen|any; evaluation|Where not|any; optimism|Optimism|signed; gain|Gain there|signed;
evaluation_gain|Gain where not|signed|evaluation_gain_verdict""",
)
_REFERENCE_COLUMNS = """
point; scope; value|Value where chosen|any; difference|Difference|signed; evaluation|Value where not|any;
evaluation_difference|Difference|signed|verdict; is_chosen|Chosen|yes"""
_RULES = Table(
    "The threshold that the rule of the paper's text and that of its code choose, and the bias significance there, in "
    "points (0 to 100), on the tuning half (choice), on the evaluation half, or on all data (all).",
    "from search_thresholds order by scope, rule, sample desc",
    """
scope|For|name; rule; sample|Data; threshold|Threshold|any; bias_significance|Significance|any;
evaluation|On the evaluation half|any""",
)
_PROBLEMS = """
select state, problem, count(*) as n_trials, list(trial order by trial)[:5] as first_trials
from trials
where problem is not null
group by all
order by state, n_trials desc, problem"""
_TRIED = "The best first. In brackets: 95 % intervals. Words: tests of all together, on data that did not choose."
_TRIALS = """
select
    * exclude (verdict), as_point(parameters) as point,
    case
        when verdict = 'unclear' then 'no clear difference'
        when (verdict = 'lower') = is_maximized then 'worse'
        when verdict is not null then 'better'
    end as word
from search_trials
cross join (select any_value(is_maximized) as is_maximized from search_objectives)
order by scope, if(is_maximized, -value, value) nulls last, trial"""
_TERMS = (
    ("What chooses", "half: the articles or rows are split once by the seed; one half chooses, the other is measured "
        "and decides nothing. held_out: held-out rows choose and the main rows decide nothing. published: all data "
        "choose, as in the papers."),
    ("Interval", "95 %: the objective is computed again without each of up to ten groups of articles or rows (a "
        "jackknife). It is over data: another seed of a training gives another reader, which the interval does not "
        "contain."),
    ("Difference from the chosen trial", "On the same articles or rows, so much narrower than the trials' own "
        "intervals."),
    ("Optimism, gain", "A choice that found nothing has a gain on the data that chose and none elsewhere."),
    ("Importance", "Epsilon squared: the variance between the values of a key, less what chance would put there, as a "
        "share of the whole (Kelley 1935). Keys that matter only together have little of it."),
)  # fmt: skip
