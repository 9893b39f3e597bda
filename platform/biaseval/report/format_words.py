"""What the section on several formats of a prompt says of its tables, in sentences."""

from __future__ import annotations

from biaseval.report.formats import Formats, Row
from biaseval.report.summary import BESIDE_CONSTANT, counted, demos


def formats_words(formats: Formats) -> list[str]:
    """Return what the tables show, a sentence each."""
    sentences = [
        f"{counted(len(formats.names), 'format')} of one prompt, over the same rows and demonstrations; what "
        "stands elsewhere on this page is of the base, but for a line of the verdict."
    ]
    for row in formats.spread:
        if row["metric"] == "rsd":
            rows_leave = row["deviation_of_rows"]
            alone = "" if rows_leave is None else f", where other rows alone leave {rows_leave:.3f}"
            sentences.append(
                f"With {demos(row['n_demos'])} and without calibration RSD is {range_of_formats(row, formats)}: a "
                f"standard deviation of {row['deviation']:.3f} over formats{alone}."
            )
    if formats.n_tested:
        sentences.append(
            f"Of {counted(formats.n_tested, 'difference')} from the base without calibration, {formats.n_found:,} "
            f"{'is' if formats.n_found == 1 else 'are'} higher or lower for other rows of these tasks, behind the same "
            "demonstrations (5 % in all)."
        )
    return sentences


def range_of_formats(row: Row, formats: Formats) -> str:
    """Return from where to where a metric goes over formats, with their names, and which is no better than one label.

    Args:
        row: of ``label_bias_format_spread``.
        formats: of the run.
    """
    if not row["range"]:
        return f"{row['minimum']:.3f} in each"
    is_above = {
        mean["format"]: mean["is_above_constant"]
        for mean in formats.means
        if (mean["n_demos"], mean["method"]) == (row["n_demos"], row["method"])
    }
    least, most = (
        f"{row[end]:.3f} ({row[f'{end}_format']}{_beside(is_above[row[f'{end}_format']])})"
        for end in ("minimum", "maximum")
    )
    return f"{least} to {most}"


def _beside(is_above: bool | None) -> str:
    """Return behind a comma that a format is not shown to be better than one label for all; nothing where it is."""
    return "" if is_above else f", {BESIDE_CONSTANT[is_above]}"
