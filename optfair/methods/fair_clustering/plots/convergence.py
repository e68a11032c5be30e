"""Picture of how an alternation of assignment and centers converged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.plots.axes import COLOURS, FAINT, QUIET, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

__all__ = ["plot_convergence"]

# Where gaps of 0 and below stand on a log scale; double precision knows nothing smaller.
FLOOR = 1e-16


def plot_convergence(
    model: Any, *, title: str = "How the clustering converged", ax: Axes | None = None
) -> Axes:
    r"""Draw the objective of each iteration, and below it its certified gap.

    Above: the cost of each assignment (soft; hard for the printed algorithm, where it may
    rise). Crosses mark where other starts ended. Below: the
    relative gap between the assignment and the best one at the same centers, on a log scale;
    it says nothing about the clustering as a whole, which is a local optimum.

    Parameters
    ----------
    model : FairKMeans or Alternation
        After its fit.
    title : str
        Title.
    ax : Axes, optional
        Where to draw; it is split in two. New axes by default.

    Returns
    -------
    matplotlib.axes.Axes
        The upper panel; the lower one is its neighbour in the same figure.

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    DataError
        A model that is not fitted, or that has no iterations.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import optfair as of
    >>> from optfair.plots import plot_convergence
    >>> X = [[0.0], [1.0], [2.0], [9.0], [10.0], [11.0]]
    >>> p = of.FairAssignment(X, groups=list("abaabb"), centers=[[0.0], [1.0]])
    >>> ax = plot_convergence(of.alternate(p))
    >>> ax.get_ylabel()
    'objective (soft)'
    """
    history, gaps = _iterations(model)
    ax = new_axes(ax, 7.2, 5.0)
    from matplotlib.ticker import MaxNLocator

    status = _of(model, "status_", "status") or ""
    steps = np.arange(1, history.size + 1)
    upper, lower = _split(ax)
    ends = _other_starts(model)
    if ends.size:
        upper.plot(
            ends[:, 0],
            ends[:, 1],
            linestyle="none",
            marker="x",
            markeredgecolor=QUIET,
            markersize=6,
            zorder=4,
        )
    upper.plot(steps, history, "-o", color=COLOURS[0], linewidth=1.8, markersize=4.5, zorder=3)
    printed = getattr(model, "algorithm", "exact") == "paper"
    upper.set_ylabel("cost (hard)" if printed else "objective (soft)")
    _gaps(lower, steps, gaps)
    last = max(int(steps[-1]), int(ends[:, 0].max()) if ends.size else 1)
    for panel in (upper, lower):
        panel.set_xlim(*((1 - 0.03 * last, 1.06 * last) if last > 1 else (0.4, 1.6)))
        panel.grid(axis="y", color=FAINT, linewidth=0.8)
        panel.set_axisbelow(True)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if last == 1:
        lower.set_xticks([1])
    upper.tick_params(labelbottom=False)
    tidy(upper, title, _note(status, history, len(ends)))
    tidy(lower, "")
    return upper


def _of(model: Any, *names: str) -> Any:
    """Return the first attribute that is there, None without one."""
    return next((v for name in names if (v := getattr(model, name, None)) is not None), None)


def _iterations(model: Any) -> tuple[Floats, Floats]:
    history, gaps = _of(model, "history_", "history"), _of(model, "gaps_", "gaps")
    if history is None or gaps is None or np.size(history) == 0:
        raise DataError(
            f"this {type(model).__name__} has no iterations to draw",
            "it has no history and gaps",
            "give a fitted FairKMeans, or the result of optfair.alternate",
        )
    objective, certified = np.asarray(history, dtype=float), np.asarray(gaps, dtype=float)
    if objective.ndim != 1 or objective.shape != certified.shape:
        raise DataError(
            "history and gaps do not belong together",
            f"shapes {objective.shape} and {certified.shape}",
            "give a fitted FairKMeans, or the result of optfair.alternate",
        )
    return objective, certified


def _other_starts(model: Any) -> Floats:
    """Return (iterations, end) of every start but the one that is drawn."""
    records = list(_of(model, "restarts_") or ())
    printed = getattr(model, "algorithm", "exact") == "paper"
    ends = [(r.n_iter, r.cost if printed else r.objective) for r in records]
    if len(ends) < 2:
        return np.empty((0, 2))
    ends.remove(min(ends, key=lambda end: end[1]))
    return np.array(ends, dtype=float)


def _split(ax: Axes) -> tuple[Axes, Axes]:
    """Return the axes, now the upper part of their place, and new ones below."""
    from matplotlib.gridspec import GridSpec, GridSpecFromSubplotSpec

    figure, place = ax.figure, ax.get_subplotspec()
    ratios = (3, 2)
    grid: GridSpec | GridSpecFromSubplotSpec
    if place is None:
        box = ax.get_position()
        grid = GridSpec(
            *(2, 1),
            figure,  # type: ignore[arg-type]
            left=box.x0,
            right=box.x1,
            bottom=box.y0,
            top=box.y1,
            height_ratios=ratios,
        )
    else:
        grid = place.subgridspec(2, 1, height_ratios=ratios)
    ax.set_subplotspec(grid[0])
    return ax, figure.add_subplot(grid[1], sharex=ax)


def _gaps(ax: Axes, steps: NDArray[Any], gaps: Floats) -> None:
    known = ~np.isnan(gaps)
    steps, gaps = steps[known], gaps[known]
    drawn = np.maximum(gaps, FLOOR)
    zero = gaps <= FLOOR
    ax.plot(steps, drawn, "-", color=COLOURS[5], linewidth=1.4, zorder=3)
    for of, face in ((~zero, COLOURS[5]), (zero, "none")):
        ax.plot(
            steps[of],
            drawn[of],
            linestyle="none",
            marker="o",
            markerfacecolor=face,
            markeredgecolor=COLOURS[5],
            markersize=4.5,
            zorder=3,
        )
    ax.set_yscale("log")
    ax.set_ylim(FLOOR / 10, 10 * float(drawn.max(initial=1e-9)))
    ax.set_yticks([t for t in (1e-16, 1e-12, 1e-8, 1e-4, 1.0) if t <= ax.get_ylim()[1]])
    ax.minorticks_off()
    ax.set_xlabel("iteration")
    ax.set_ylabel("certified gap")
    if zero.any():
        ax.annotate(
            "rings: 1e-16 or less, or 0",
            (1, 1),
            xytext=(-4, -4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=9.5,
            color=QUIET,
        )


def _note(status: str, history: Floats, others: int) -> str:
    words = {
        "converged": "converged",
        "max_iter": "stopped at max_iter",
        "time_limit": "stopped at the time limit",
        "interrupted": "interrupted",
    }
    plural = "iteration" if history.size == 1 else "iterations"
    line = (
        f"{words.get(status, status) or 'ended'} after {history.size} {plural} at {history[-1]:.6g}"
    )
    if others:
        line += f"\ncrosses: where {others} other start{'s' if others > 1 else ''} ended"
    return line
