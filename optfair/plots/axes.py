"""The look all pictures share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optfair.errors import NotInstalled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "INK", "QUIET", "new_axes", "tidy"]

# Okabe and Ito's palette: told apart with every kind of colour vision, and by lightness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
INK, QUIET = "#222222", "#6B6B6B"


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
