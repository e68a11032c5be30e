"""The look all pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optfair.errors import NotInstalled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "FAINT",
    "INK",
    "MANY_COLOURS",
    "ON_LIGHT",
    "QUIET",
    "legend_below",
    "new_axes",
    "plain",
    "tidy",
]

# Okabe and Ito's palette: told apart with every kind of colour vision, and by lightness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
# Petroff's ten (arXiv 2107.02270), chosen by a survey for scattered points of many kinds.
MANY_COLOURS = (
    "#3F90DA",
    "#FFA90E",
    "#BD1F01",
    "#94A4A2",
    "#832DB6",
    "#A96B59",
    "#E76300",
    "#B9AC70",
    "#717581",
    "#92DADD",
)
# Text and lines on the page; a page of another colour may replace them.
INK, QUIET, FAINT = "#222222", "#6B6B6B", "#E3E3E3"
# Text on a light colour of the picture itself, which no page replaces.
ON_LIGHT = "#1B1B1B"

# Mean width of a character of 9.5 pt, in inches, and what a legend's handle and gaps take.
CHARACTER, HANDLE = 0.082, 0.55
LONGEST = 40


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or new ones of a size in inches.

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise NotInstalled(
            "matplotlib is not installed", str(e), 'pip install "optfair[plot]"'
        ) from None
    _, made = plt.subplots(figsize=(width, height), layout="constrained")
    return made


def tidy(ax: Axes, title: str, note: str = "", **hidden: Any) -> None:
    """Set a left-aligned title with a quiet line below it, and drop needless spines.

    Parameters
    ----------
    ax : Axes
        Where.
    title, note : str
        What is seen; how to read it.
    **hidden
        Further spines to hide, ``left=True`` and so on.
    """
    lines = 1.5 * (note.count("\n") + 1) if note else 0.0
    ax.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=8 + 9.5 * lines)
    if note:
        ax.annotate(
            note,
            (0, 1),
            xytext=(0, 6),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=9.5,
            color=QUIET,
            va="bottom",
        )
    for side in ("top", "right", *hidden):
        ax.spines[side].set_visible(False)
    ax.tick_params(labelsize=9.5, colors=INK)


def plain(text: object, longest: int = LONGEST) -> str:
    """Return somebody's text as one line that is drawn as it stands, without mathematics."""
    line = " ".join(str(text).split())
    if len(line) > longest:
        line = line[: longest - 1] + "…"
    return line.replace("$", r"\$")


def legend_below(ax: Axes, handles: Sequence[Artist], *, inches: float = 0.62) -> None:
    """Put a legend under the axis label, in as many columns as its texts leave room for.

    Parameters
    ----------
    ax : Axes
        Whose legend.
    handles : sequence of Artist
        With their labels.
    inches : float
        Distance from the axis.
    """
    from matplotlib.transforms import ScaledTranslation

    figure = ax.figure
    # half of what the layout may still take away for labels at the sides is a fair guess
    width = 0.85 * figure.bbox.width / figure.dpi * ax.get_position().width / 0.8
    longest = max((len(str(h.get_label())) for h in handles), default=1)
    columns = int(width / (CHARACTER * longest + HANDLE))
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -inches, figure.dpi_scale_trans),
        ncols=max(1, min(4, len(handles), columns)),
        frameon=False,
        fontsize=9.5,
        handlelength=1.2,
        borderaxespad=0,
    )
