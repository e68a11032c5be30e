"""Picture of transport cost against distortion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.plots.axes import COLOURS, FAINT, legend_below, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_counterfactual_front"]

ORDER, SHAPES = (0, 5, 2, 3, 1, 4), "os^DvP"
# Fronts of more points have no mark at each.
MOST_MARKS = 30


def plot_counterfactual_front(
    fronts: Any,
    *,
    references: Mapping[str, tuple[float, float]] | None = None,
    title: str = "What keeping the shape of a group costs",
    ax: Axes | None = None,
) -> Axes:
    """Draw transport cost against the distortion of the members, for one or several fronts.

    Left is less distorted, down is cheaper. A sweep of K is drawn with the distortion of its
    members, which is at most 1 − 1/K and need not grow with K: a line joins the points that no
    other one of the sweep beats, small ones are beaten. The points of a search are a
    staircase: between two of them nothing was found.

    Parameters
    ----------
    fronts : CounterfactualFront or sequence of them
        At most six.
    references : mapping of str to (cost, distortion), optional
        Single points to compare with, labelled.
    title : str
        Title.
    ax : Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    DataError
        No front or too many.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import numpy as np
    >>> import optfair as of
    >>> from optfair.methods.group_counterfactuals.counterfactual_front import counterfactual_front
    >>> X = np.random.default_rng(0).normal(size=(30, 2)) - 2.0
    >>> front = counterfactual_front(X, ([1.0, 1.0], 0.0), K=[1.01, 2.0, 5.0])
    >>> of.plots.plot_counterfactual_front(front).get_xlabel()
    'distortion of the members, 1 − 1 / max(K, k)'
    """
    several: Sequence[Any] = [fronts] if hasattr(fronts, "transport_cost") else list(fronts)
    if not 1 <= len(several) <= len(ORDER) or not all(hasattr(f, "distortion") for f in several):
        raise DataError(
            f"{len(several)} fronts cannot be drawn together",
            remedy=f"give between 1 and {len(ORDER)} of counterfactual_front",
        )
    ax = new_axes(ax, 7.2, 4.8)
    handles = []
    for front, colour, shape in zip(several, ORDER, SHAPES, strict=False):
        order = np.lexsort((front.transport_cost, front.distortion))
        x, y = np.asarray(front.distortion)[order], np.asarray(front.transport_cost)[order]
        kept = y <= np.minimum.accumulate(y)
        ax.plot(x[~kept], y[~kept], shape, color=COLOURS[colour], markersize=2.5, zorder=2)
        x, y = x[kept], y[kept]
        searched = front.method == "nsga2"
        (line,) = ax.plot(
            x,
            y,
            linestyle="-" if not searched else (0, (1, 1.2)),
            drawstyle="steps-post" if searched else "default",
            marker=shape,
            markevery=max(1, len(x) // MOST_MARKS),
            markersize=5,
            markerfacecolor="white" if searched else COLOURS[colour],
            color=COLOURS[colour],
            linewidth=1.7,
            label=plain(front.label) + ("" if front.complete else " (interrupted)"),
            zorder=3,
        )
        handles.append(line)
    _references(ax, references or {})
    ax.set_xlabel("distortion of the members, 1 − 1 / max(K, k)")
    ax.set_ylabel("transport cost (mean squared distance)")
    ax.set_xlim(left=min(0.0, ax.get_xlim()[0]) if ax.get_xlim()[0] < 0.1 else None)
    ax.set_ylim(bottom=0.0)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    kinds = {f.method for f in several}
    note = {
        frozenset({"sweep"}): "each point: the optimum of its family for one K",
        frozenset({"nsga2"}): "found by a search; nothing is proven of it",
    }.get(frozenset(kinds), "filled: optimum of its family for one K; hollow: found by a search")
    tidy(ax, title, note)
    legend_below(ax, handles)
    return ax


def _references(ax: Axes, references: Mapping[str, tuple[float, float]]) -> None:
    from optfair.plots.annotations import label_points
    from optfair.plots.axes import INK

    if not references:
        return
    points = [(float(bent), float(cost)) for cost, bent in references.values()]
    for x, y in points:
        ax.plot(x, y, "X", color=INK, markeredgecolor="white", markersize=9, zorder=5)
    lines = [np.asarray(line.get_xydata(), dtype=float) for line in ax.lines]
    avoid: NDArray[np.float64] = np.vstack(lines)
    label_points(ax, points, [plain(name) for name in references], avoid)
