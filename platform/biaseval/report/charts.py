"""Charts as Vega-Lite specifications, drawn without a network by vl-convert: SVG for pages, PNG and PDF for papers.

Every chart has the name of its file, a title, and titles of its axes; ``subtitle`` is the text below the title.
"""

import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

FORMATS = ("svg", "png", "pdf")
"""File endings of charts."""

_DOTS_PER_INCH = 300
"""The resolution of a PNG, as print requires."""

SOFT, INK = "#777777", "#333333"
# After Okabe & Ito (colour-blind safe), darkened so that lines are clear on white. Shapes and dashes distinguish lines
# in print.
COLORS = (INK, "#b84a00", "#0063a3", "#007a57", "#9c4380", "#806600", "#555599", "#a33a3a")
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
_JUDGED = {"better": COLORS[2], "worse": COLORS[1]}
_DASHES = ([1, 0], [6, 2], [6, 2, 1, 2], [10, 2], [2, 2], [8, 2, 2, 2], [4, 1], [1, 1])

_CONFIG: Mapping[str, Any] = {
    "background": "#ffffff", "font": "sans-serif", "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "titleFontWeight": "normal", "gridColor": "#dddddd", "labelLimit": 260,
        "labelFlush": False,
    },
    "axisX": {"grid": False},
    "legend": {
        "titleFontWeight": "normal", "orient": "bottom", "labelLimit": 260, "symbolStrokeWidth": 2,
        "symbolOpacity": 1, "columns": 2, "columnPadding": 24,
    },
    "title": {
        "anchor": "start", "fontSize": 13, "fontWeight": "normal", "subtitleFontSize": 11, "subtitleColor": "#555555",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """One chart."""

    name: str
    """The file's name without its ending."""
    text: str
    """The alternative text of the chart."""
    spec: Mapping[str, Any]
    """The Vega-Lite specification with its data, without the size, fonts and colours that all charts share."""
    is_wide: bool = False
    """Whether the chart has several panels and takes the page's width."""

    @property
    def json(self) -> str:
        """The specification for a browser."""
        return json.dumps({"config": _CONFIG, **self.spec}, ensure_ascii=False)

    @cached_property
    def svg(self) -> bytes:
        """The chart of a page without JavaScript."""
        return self.file("svg")

    def file(self, ending: str) -> bytes:
        """Return the chart as a file of one of `FORMATS`; the same chart gives the same bytes."""
        import vl_convert  # the import takes part of a second, so commands without charts skip it

        if ending == "svg":
            svg: str = vl_convert.vegalite_to_svg(self.json)
            # Numbers of gradients continue through all charts of a process.
            numbers = {name: str(n) for n, name in enumerate(dict.fromkeys(re.findall(r"gradient_(\d+)", svg)))}
            return re.sub(r"gradient_(\d+)", lambda found: f"gradient_{numbers[found[1]]}", svg).encode()
        if ending == "png":
            png: bytes = vl_convert.vegalite_to_png(self.json, ppi=_DOTS_PER_INCH)
            return png
        # The order of a page's resource names comes from a hash that changes from run to run.
        pdf: bytes = vl_convert.vegalite_to_pdf(self.json)
        return re.sub(rb"(?: +/\w+ \d+ 0 R\n)+", lambda found: b"".join(sorted(found[0].splitlines(True))), pdf)


@cache
def browser_script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, about 0.9 MB."""
    return gzip.decompress((Path(__file__).parent / "vega.js.gz").read_bytes()).decode()


@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    color: str
    shape: int = 0
    """The place of its mark among the shapes."""
    dash: int = 0
    """The place of its dash; 0 is a full line."""

    @property
    def channels(self) -> dict[str, Any]:
        """The values by channel of Vega-Lite."""
        n = len(_SHAPES)
        fill = "#ffffff" if self.dash else self.color
        dash = _DASHES[self.dash % n]
        return {"color": self.color, "fill": fill, "shape": _SHAPES[self.shape % n], "strokeDash": dash}


def lighter(color: str, share: float) -> str:
    """Return a colour ``#rrggbb`` mixed with a share (0 to 1) of white."""
    parts = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def series(names: Sequence[str], looks: Mapping[str, Look] | None = None) -> dict[str, Any]:
    """Return the encodings that distinguish lines: colour, shape and dash, by default in the order of their names."""
    # Where marks have shapes of their own, dashes would cut them up.
    legend = {"title": None} | ({} if looks else {"symbolStrokeWidth": 0})
    looks = looks or {name: Look(COLORS[at % len(COLORS)], at, at) for at, name in enumerate(names)}
    return {
        channel: {
            "field": "series",
            "type": "nominal",
            "scale": {"domain": list(names), "range": [looks[name].channels[channel] for name in names]},
            "legend": legend,
        }
        for channel in ("color", "fill", "shape", "strokeDash")
    }


def line_chart(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str,
    axes: tuple[str, str],
    subtitle: str = "",
    reference: Sequence[Mapping[str, Any]] = (),
    reference_name: str = "",
    domain: Sequence[float | None] = (0, None),
    is_ordinal: bool = True,
    looks: Mapping[str, Look] | None = None,
) -> Chart:
    """Return lines with bands of a value against x.

    ``rows`` have ``x``, ``y``, ``low``, ``high`` (or null) and ``series``, in the order of the legend. ``reference``
    has ``x`` and ``y`` of a dashed line named ``reference_name``. ``domain`` has the ends of y; None: the range of the
    data. ``is_ordinal``: x has few values, drawn at equal distances. ``looks`` are those of the lines in the legend, in
    its order, also of lines without rows; None: in the order of their names.
    """
    names = list(looks or dict.fromkeys(str(row["series"]) for row in rows))
    x = {"field": "x", "type": "ordinal" if is_ordinal else "quantitative", "title": axes[0], "axis": {"labelAngle": 0}}
    ends = {key: value for key, value in zip(("domainMin", "domainMax"), domain, strict=True) if value is not None}
    y = {"field": "y", "type": "quantitative", "title": axes[1], "scale": ends}
    several = len({row["x"] for row in rows}) > 1
    told = series(names, looks=looks)
    # With one value of x, the intervals of several lines would overlap.
    aside = {} if several else {"xOffset": {"field": "series", "sort": names}}
    low = {**y, "field": "low"}
    tips = [{"field": "series", "title": "line"}, {"field": "x", "title": axes[0]}]
    tips += [
        {"field": "y", "title": axes[1], "format": ".4f"},
        *({"field": one, "format": ".4f"} for one in ("low", "high")),
    ]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "area"} if several else {"type": "rule", "strokeWidth": 1.5},
            "encoding": {"x": x, "y": low, "y2": {"field": "high"}, "color": told["color"], **aside}
            | {"opacity": _shown(0.13 if several else 1)},
            "transform": [{"filter": "datum.low !== null && datum.high !== null"}],
        },
        {
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {"x": x, "y": y, "color": told["color"], "strokeDash": told["strokeDash"]}
            | {"opacity": _shown(1)},
        },
        {
            "mark": {"type": "point", "filled": looks is None, "size": 45},
            "params": [{"name": "legend", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}],
            "encoding": {"x": x, "y": y, "color": told["color"], "shape": told["shape"]}
            | ({} if looks is None else {"fill": told["fill"]})
            | {**aside, "opacity": _shown(1), "tooltip": tips},
        },
    ]
    if not several:
        layers.pop(1)
    if all(row["low"] is None for row in rows):
        layers.pop(0)  # its legend would fill every mark
    if reference:
        marks = {"type": "line" if several else "rule", "strokeDash": [3, 3], "color": SOFT, "strokeWidth": 1.5}
        place = {"x": x, "y": y} if several else {"y": y}
        layers.append({"data": {"values": list(reference)}, "mark": marks, "encoding": place})
    drawn = [one for one in names if any(row["series"] == one for row in rows)]
    words = "; ".join(f"{one} {_points(row for row in rows if row['series'] == one)}" for one in drawn)
    told_reference = f"; {reference_name} {_points(reference)}" if reference else ""
    heading = {"text": title, "subtitle": subtitle} if subtitle else title
    spec = {"width": 300, "height": 200, "title": heading, "data": {"values": list(rows)}, "layer": layers}
    return Chart(name, f"{title} by {axes[0]}: {words}{told_reference}.", spec)


def panels_chart(
    name: str, charts: Sequence[Chart], *, title: str, columns: int, size: tuple[int, int | None] = (190, 150)
) -> Chart:
    """Return charts beside each other as one figure, with one legend.

    ``charts`` go row by row, with ``columns`` in a row; their lines have the same names and looks. ``size`` is the
    width and height of a chart in pixels; None: each has its own height.
    """
    width, height = size
    own = {"width": width} | ({} if height is None else {"height": height})
    views = [{**_without_selection(chart.spec), **own} for chart in charts]
    shared = dict.fromkeys(("color", "fill", "shape", "strokeDash"), "shared")
    heading = {"text": title, "offset": 14}
    spec = {"title": heading, "concat": views, "columns": columns, "resolve": {"scale": shared}, "spacing": 20}
    return Chart(name, f"{title}. {' '.join(chart.text for chart in charts)}", spec, is_wide=columns > 1)


def _without_selection(spec: Any) -> Any:
    """Return a specification whose lines a click in the legend does not hide: one name can select in one view only."""
    if isinstance(spec, Mapping):
        if isinstance(found := spec.get("condition"), Mapping) and "param" in found:
            return {"value": found["value"]}
        return {key: _without_selection(value) for key, value in spec.items() if key != "params"}
    return [_without_selection(value) for value in spec] if isinstance(spec, list) else spec


def triangle_chart(
    name: str, rows: Sequence[Mapping[str, Any]], *, title: str, labels: Sequence[str], domain: tuple[float, float]
) -> Chart:
    """Return a triangle with a mark at each combination of three label shares, coloured by a value.

    ``rows`` have ``setting``, ``shares`` of the three labels (their sum is 1), ``value``, and ``is_marked``, for a
    ring. ``labels`` are those of the corners: left, right, top. ``domain`` has the ends of the colour scale, equal in
    charts that readers compare.
    """
    height = 3**0.5 / 2
    corners: list[dict[str, Any]] = [{"x": 0, "y": 0}, {"x": 1, "y": 0}, {"x": 0.5, "y": height}]
    points = [
        {"x": row["shares"][1] + row["shares"][2] / 2, "y": row["shares"][2] * height, "shown": f"{row['value']:.2f}"}
        | {"setting": row["setting"], "value": row["value"], "ring": bool(row["is_marked"])}
        for row in rows
    ]
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [-0.12, 1.12]}}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [-0.12, 1.0]}}
    named = [{**corner, "label": label} for corner, label in zip(corners, labels, strict=True)]
    size = 720 if len(rows) <= 15 else 220
    color: dict[str, Any] = {"field": "value", "type": "quantitative", "title": "weighted F1"}
    color |= {"scale": {"scheme": "viridis", "domain": list(domain)}, "legend": {"orient": "right"}}
    tips = [{"field": "setting"}, {"field": "value", "format": ".4f"}, {"field": "ring", "title": "inside"}]
    ring = {"condition": {"test": "datum.ring", "value": "#d1490c"}, "value": "#ffffff"}
    ink = {"condition": {"test": f"datum.value > {sum(domain) / 2}", "value": "#000000"}, "value": "#ffffff"}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [{**corner, "order": n} for n, corner in enumerate([*corners, corners[0]])]},
            "mark": {"type": "line", "color": "#999999", "strokeWidth": 1},
            "encoding": {"x": x, "y": y, "order": {"field": "order"}},
        },
        {
            "data": {"values": named},
            "mark": {"type": "text", "dy": {"expr": "datum.y > 0 ? -22 : 24"}, "limit": 140},
            "encoding": {"x": x, "y": y, "text": {"field": "label"}},
        },
        {
            "mark": {"type": "circle", "size": size, "opacity": 1, "strokeWidth": 2.4},
            "encoding": {"x": x, "y": y, "color": color, "stroke": ring, "tooltip": tips},
        },
    ]
    if len(rows) <= 15:
        mark = {"type": "text", "fontSize": 9}
        layers.append({"mark": mark, "encoding": {"x": x, "y": y, "text": {"field": "shown"}, "color": ink}})
    told = ", ".join(f"{row['value']:.3f} at {row['setting']}" for row in rows)
    inside = sum(bool(row["is_marked"]) for row in rows)
    text = f"{title}, by % of {', '.join(labels)}: {told} ({inside} of {len(rows)} inside the boundary)."
    spec = {"width": 300, "height": 260, "title": title, "data": {"values": points}, "layer": layers}
    return Chart(name, text, spec)


def forest_chart(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str,
    axis: str,
    least: float,
    subtitle: str = "",
    step: int = 22,
) -> Chart:
    """Return differences with their intervals around 0, one per line.

    ``rows`` have ``y`` (the name of the line), ``x``, ``low`` and ``high`` (or null), and ``word``; better is a filled
    blue circle, worse a filled orange square, and all others are hollow circles. ``least`` is the smallest effect of
    interest; a grey band shows it on both sides of 0. ``step`` is the number of pixels between lines; one name may have
    several lines.
    """
    names = {"grid": False, "domain": False, "ticks": False, "labelExpr": "split(datum.label, '\\n')"}
    y = {"field": "y", "type": "nominal", "title": None, "sort": None, "axis": names}
    ticks = {"grid": True, "tickCount": 5}
    x = {"field": "x", "type": "quantitative", "title": axis, "scale": {"padding": 8}, "axis": ticks}
    judged = [{"test": f"datum.word == '{word}'", "value": color} for word, color in _JUDGED.items()]
    color, fill = {"condition": judged, "value": SOFT}, {"condition": judged, "value": "#ffffff"}
    shape = {"condition": {"test": "datum.word == 'worse'", "value": "square"}, "value": "circle"}
    tips = [{"field": "y", "title": "of"}, *({"field": one, "format": "+.4f"} for one in ("x", "low", "high"))]
    tips.append({"field": "word", "title": "verdict"})
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [{"x": -least, "high": least}]},
            "mark": {"type": "rect", "color": "#bbbbbb", "opacity": 0.4},
            "encoding": {"x": x, "x2": {"field": "high"}},
        },
        {"data": {"values": [{"x": 0}]}, "mark": {"type": "rule", "color": INK}, "encoding": {"x": x}},
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": color},
        },
        {
            "mark": {"type": "point", "size": 60, "strokeWidth": 1.5, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": color, "fill": fill, "shape": shape, "tooltip": tips},
        },
    ]
    heading = {"text": title, "subtitle": subtitle.split("\n")} if subtitle else title
    spec = {"width": 260, "height": {"step": step}, "title": heading, "data": {"values": list(rows)}, "layer": layers}
    words = "; ".join(f"{row['y']} {row['x']:+.3f}{_band(row)} ({row['word']})" for row in rows)
    return Chart(name, f"{title}, {axis}: {words}.", spec)


def _band(row: Mapping[str, Any]) -> str:
    return "" if row["low"] is None or row["high"] is None else f" [{row['low']:+.3f}, {row['high']:+.3f}]"


def dot_chart(
    name: str, rows: Sequence[Mapping[str, Any]], *, title: str, axis: str, domain: Sequence[float | None] = (0, None)
) -> Chart:
    """Return dots along x, with a line for each category and series.

    ``rows`` have ``y`` (the category), ``series``, ``x`` (null if missing; ``note`` then gives the reason), ``low`` and
    ``high`` (or null), and ``is_filled``. ``start`` is the start of a line to the dot, or null, and ``is_thick`` makes
    that line thick. ``domain`` has the ends of x; None: the range of the data.
    """
    names, categories = ([*dict.fromkeys(str(row[key]) for row in rows)] for key in ("series", "y"))
    told = series(names)
    ends = {key: value for key, value in zip(("domainMin", "domainMax"), domain, strict=True) if value is not None}
    x = {"field": "x", "type": "quantitative", "title": axis, "scale": {"zero": False, **ends}}
    y = {"field": "y", "type": "nominal", "title": None, "sort": categories, "axis": {"grid": False}}
    place = {"y": y} | ({"yOffset": {"field": "series", "sort": names}} if len(names) > 1 else {})
    thick = {"condition": {"test": "datum.is_thick", "value": 3}, "value": 1}
    fill = {"condition": {"test": "datum.is_filled", **told["color"], "legend": None}, "value": "#ffffff"}
    tips = [{"field": "series"}, {"field": "y", "title": "of"}, {"field": "x", "title": axis, "format": ".2f"}]
    tips += [{"field": one, "format": ".2f"} for one in ("low", "high")]
    layers: list[dict[str, Any]] = [
        {
            "mark": "rule",
            "transform": [{"filter": "isValid(datum.start) && isValid(datum.x)"}],
            "encoding": {"x": x, "x2": {"field": "start"}, **place, "color": told["color"], "strokeWidth": thick}
            | {"opacity": _shown(0.6)},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "transform": [{"filter": "isValid(datum.low) && isValid(datum.high)"}],
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, **place, "color": told["color"]}
            | {"opacity": _shown(1)},
        },
        {
            "mark": {"type": "point", "size": 50, "strokeWidth": 1.5},
            "params": [{"name": "legend", "select": {"type": "point", "fields": ["series"]}, "bind": "legend"}],
            "transform": [{"filter": "isValid(datum.x)"}],
            "encoding": {"x": x, **place, "color": told["color"], "shape": told["shape"], "fill": fill, "tooltip": tips}
            | {"opacity": _shown(1)},
        },
        {
            "mark": {"type": "text", "align": "left", "fontSize": 9, "color": SOFT, "x": 3},
            "transform": [{"filter": "!isValid(datum.x)"}],
            "encoding": {**place, "text": {"field": "note"}},
        },
    ]
    words = "; ".join(f"{one}: {', '.join(_dot(row) for row in rows if row['series'] == one)}" for one in names)
    height = {"step": 13, "for": "offset"} if len(names) > 1 else {"step": 22}
    spec = {"width": 300, "height": height, "title": title, "data": {"values": list(rows)}, "layer": layers}
    return Chart(name, f"{title}, {axis}: {words}.", spec)


def scatter_chart(name: str, rows: Sequence[Mapping[str, Any]], *, title: str, axes: tuple[str, str]) -> Chart:
    """Return dots at two values with their intervals, and lines at 0.

    ``rows`` have ``x``, ``y``, ``x_low``, ``x_high``, ``y_low``, ``y_high`` (or null), ``series``, ``what`` and
    ``is_filled``.
    """
    told = series(list(dict.fromkeys(str(row["series"]) for row in rows)))
    x, y = ({"field": one, "type": "quantitative", "title": shown} for one, shown in zip("xy", axes, strict=True))
    fill = {"condition": {"test": "datum.is_filled", **told["color"], "legend": None}, "value": "#ffffff"}
    faint, place = {"mark": {"type": "rule", "opacity": 0.35}}, {"x": x, "y": y, "color": told["color"]}
    layers: list[dict[str, Any]] = [
        {"data": {"values": [{"zero": 0}]}, "mark": {"type": "rule", "color": SOFT}, "encoding": {one: {"datum": 0}}}
        for one in "xy"
    ]
    layers += [
        faint | {"encoding": place | {"x": {**x, "field": "x_low"}, "x2": {"field": "x_high"}}},
        faint | {"encoding": place | {"y": {**y, "field": "y_low"}, "y2": {"field": "y_high"}}},
        {
            "mark": {"type": "point", "size": 50, "strokeWidth": 1.5, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": told["color"], "shape": told["shape"], "fill": fill}
            | {"tooltip": [{"field": "what"}, *({"field": one, "format": ".2f"} for one in "xy")]},
        },
    ]
    words = ", ".join(f"{row['what']} {row['x']:+.2f} and {row['y']:+.2f}" for row in rows)
    spec = {"width": 300, "height": 260, "title": title, "data": {"values": list(rows)}, "layer": layers}
    return Chart(name, f"{title}, {axes[0]} and {axes[1]}: {words}.", spec)


def trials_chart(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str,
    axes: tuple[str, str],
    are_log: tuple[bool, bool] = (False, False),
    color: str = "",
) -> Chart:
    """Return a mark for each trial of a search, with a ring around the chosen trial.

    ``rows`` have ``x``, ``y``, ``trial``, ``is_chosen``; ``low`` and ``high`` of y (or null) and ``series``; or
    ``value``, which colours the marks and has the title ``color``. ``are_log``: whether x and y have logarithmic axes.
    """
    are_numbers = [all(isinstance(row[axis], int | float) for row in rows) for axis in "xy"]
    x, y = (
        {"field": axis, "type": "quantitative" if is_number else "nominal", "title": shown}
        | (
            {"scale": {"padding": 8} | ({"type": "log"} if is_log else {"zero": False})}
            if is_number
            else {"axis": {"labelAngle": 0}}
        )
        for axis, shown, is_number, is_log in zip("xy", axes, are_numbers, are_log, strict=True)
    )
    names = list(dict.fromkeys(str(row.get("series", "")) for row in rows))
    by_value = {"field": "value", "type": "quantitative", "title": color, "scale": {"scheme": "viridis"}}
    told = {"color": by_value} if color else series(names)
    aside = {} if color or are_numbers[0] else {"xOffset": {"field": "series", "sort": names}}
    tips = [{"field": one} for one in ("trial", "x", "y", *(["value"] if color else ["series", "low", "high"]))]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
            "encoding": {"x": x, "y": y, "tooltip": tips, **aside}
            | {channel: told[channel] for channel in ("color", "shape") if channel in told},
        },
        {
            "mark": {"type": "point", "size": 170, "color": INK, "strokeWidth": 1.8, "opacity": 1},
            "transform": [{"filter": "datum.is_chosen"}],
            "encoding": {"x": x, "y": y, **aside},
        },
    ]
    if not color:
        interval = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": told["color"], **aside}
        known = [{"filter": "isValid(datum.low) && isValid(datum.high)"}]
        layers.insert(0, {"mark": {"type": "rule", "opacity": 0.5}, "transform": known, "encoding": interval})
    chosen = "; ".join(f"{row.get('series', '')} {row['x']}, {row['y']}".strip() for row in rows if row["is_chosen"])
    n_trials = len({row["trial"] for row in rows})
    spec = {"width": 300, "height": 220, "title": title, "data": {"values": list(rows)}, "layer": layers}
    return Chart(name, f"{title}, {axes[1]} by {axes[0]}: {n_trials} trials; chosen: {chosen}.", spec)


def _dot(row: Mapping[str, Any]) -> str:
    """Return the text for a dot; the text of a hollow dot says so."""
    if row["x"] is None:
        return f"{row['y']} {row.get('note') or 'not measured'}"
    return f"{row['y']} {row['x']:.2f}{'' if row['is_filled'] else ' (hollow)'}"


def _shown(opacity: float) -> dict[str, Any]:
    """Return the opacity of lines that remain after a click in the legend; others nearly vanish."""
    return {"condition": {"param": "legend", "value": opacity}, "value": 0.05}


def _points(rows: Any) -> str:
    return ", ".join(f"{row['y']:.3f} at {row['x']}" for row in rows if row["y"] is not None)
