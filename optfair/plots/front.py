"""Picture of what fairness costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError
from optfair.models.data import check_matrix
from optfair.plots.axes import COLOURS, INK, QUIET, new_axes, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_front"]


def plot_front(
    eps: Any,
    cost: Any,
    balance: Any,
    *,
    best_balance: float | None = None,
    soft: bool = True,
    units: str = "mean squared distance",
    title: str = "What fairness costs",
    ax: Axes | None = None,
) -> Axes:
    """Draw the least cost against the balance, over a sweep of a rule's tolerance.

    The smallest tolerance is marked and labelled as perfectly fair where it is 0, the
    largest as the plain end.

    Parameters
    ----------
    eps : array-like (m,)
        Tolerances of the rule, at least two different ones.
    cost : array-like (m,)
        Optimal objective at each.
    balance : array-like (m,)
        Balance of the solution at each, in [0, 1].
    best_balance : float, optional
        Balance of the population, drawn as a line: no clustering has more.
    soft : bool
        Whether ``balance`` is of the soft assignment or of argmax labels; for the axis label.
    units : str
        Units of the cost.
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
        Sequences of different lengths, fewer than two tolerances, non-finite entries.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.plots import plot_front
    >>> ax = plot_front([0.0, 0.5], [4.2, 3.9], [0.45, 0.1], best_balance=0.45)
    >>> ax.get_ylabel()
    'cost (mean squared distance)'
    """
    e, c, b = _sorted(eps, cost, balance)
    ax = new_axes(ax, 7.2, 4.6)
    if best_balance is not None:
        ax.axvline(best_balance, color=QUIET, linestyle=(0, (4, 2)), linewidth=1.2)
    ax.plot(b, c, "-o", color=COLOURS[0], linewidth=1.8, markersize=4.5, zorder=3)
    span = float(np.ptp(c)) or 1.0
    ax.set_ylim(c.min() - 0.2 * span, c.max() + 0.2 * span)
    right = max(float(b.max()), best_balance or 0.0)
    room = (right - float(b.min())) or 1.0
    ax.set_xlim(float(b.min()) - 0.06 * room, right + 0.1 * room)
    fair = "perfectly fair" if e[0] == 0 else "fairest"
    extra = f" ({c[0] / c[-1] - 1:+.1%})" if c[-1] > 0 else ""
    _mark(ax, b[0], c[0], f"{fair}, ε = {e[0]:.3g}\ncost {c[0]:.4g}{extra}, balance {b[0]:.3f}", -1)
    _mark(ax, b[-1], c[-1], f"plain, ε = {e[-1]:.3g}\ncost {c[-1]:.4g}, balance {b[-1]:.3f}", 1)
    if best_balance is not None:
        ax.annotate(
            "balance of\nthe population",
            (best_balance, 0.03),
            xycoords=("data", "axes fraction"),
            xytext=(-6, 0),
            textcoords="offset points",
            ha="right",
            fontsize=9.5,
            color=QUIET,
        )
    ax.set_xlabel(
        f"balance of the {'soft assignment' if soft else 'hard labels'} (higher is fairer)"
    )
    ax.set_ylabel(f"cost ({units})")
    ax.grid(axis="y", color="#E3E3E3", linewidth=0.8)
    ax.set_axisbelow(True)
    tidy(ax, title, "each point: the least cost at one tolerance ε of the rule")
    return ax


def _sorted(eps: Any, cost: Any, balance: Any) -> tuple[Any, Any, Any]:
    """Return the three sequences in the order of eps."""
    lengths = {np.size(eps), np.size(cost), np.size(balance)}
    if len(lengths) > 1 or np.unique(np.asarray(eps)).size < 2:
        raise DataError(
            "eps, cost and balance are not one sweep",
            f"lengths {np.size(eps)}, {np.size(cost)}, {np.size(balance)}",
            "give one cost and one balance per tolerance, and at least two tolerances",
        )
    sweep = check_matrix(np.column_stack([eps, cost, balance]), "the sweep")
    return tuple(sweep[np.argsort(sweep[:, 0], kind="stable")].T)


def _mark(ax: Axes, x: float, y: float, text: str, side: int) -> None:
    """Mark an end and label it away from the curve: above left (-1) or below right (1)."""
    ax.plot([x], [y], "o", color=COLOURS[5], markersize=9, zorder=4)
    ax.annotate(
        text,
        (x, y),
        xytext=(10 * side, -4 * side),
        textcoords="offset points",
        ha="right" if side < 0 else "left",
        va="bottom" if side < 0 else "top",
        fontsize=10,
        color=INK,
    )
