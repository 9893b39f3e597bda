"""One panel as a file: SVG for pages, PNG and PDF for papers; the same bytes for the same panel."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (4.2, 3.2)
FONT_SIZE = 10
INK = "#333333"

_METADATA = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
FORMATS = tuple(_METADATA)
"""What a panel can be a file of, by its ending."""

_DOTS_PER_INCH = 300
"""Of a PNG; print asks for so many."""


@dataclass(frozen=True)
class Drawing:
    """A panel that is drawn when a file of it is asked for."""

    name: str
    """The figure's; ids in the SVG come from it."""
    plot: Callable[[Axes], None]
    """Draws into the panel's axes."""
    size: tuple[float, float] = SIZE_INCHES
    """Width and height in inches."""

    def file(self, ending: str) -> bytes:
        """Return the panel as a file of one of `FORMATS`."""
        import matplotlib
        from matplotlib.figure import Figure as Canvas
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(
                {
                    "svg.hashsalt": self.name,  # ids that are the same in every run of the program
                    "svg.fonttype": "path",  # looks the same whatever fonts a machine has
                    "pdf.fonttype": 42,  # letters stay letters, as publishers ask for
                    "font.size": FONT_SIZE,
                    "axes.spines.top": False,
                    "axes.spines.right": False,
                    "axes.edgecolor": INK,
                    "text.color": INK,
                    "axes.labelcolor": INK,
                    "xtick.color": INK,
                    "ytick.color": INK,
                }
            )
            canvas = Canvas(figsize=self.size, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.06))
            self.plot(canvas.add_subplot())
            sink = io.BytesIO()
            # Letters of SVG and PDF are laid out by the figure's own resolution.
            dpi = _DOTS_PER_INCH if ending == "png" else "figure"
            canvas.savefig(sink, format=ending, metadata=_METADATA[ending], dpi=dpi)
        return sink.getvalue()
