"""Pictures of cost: how it falls while a fit runs, and what fairness adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, kind_of
from optfair.numbers import Floats, check_matrix
from optfair.plots import (
    COLOURS,
    INK,
    ORDER,
    QUIET,
    SHAPES,
    beside,
    label_points,
    legend_below,
    new_axes,
    plain,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Picture of how an alternation of assignment and centers converged.


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
    >>> ax = plot_convergence(of.fair_clustering.alternate(p))
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
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if last == 1:
        lower.set_xticks([1])
    upper.tick_params(labelbottom=False)
    tidy(upper, title, _note(status, history, len(ends)), grid="y")
    tidy(lower, "", grid="y")
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
            "give a fitted FairKMeans, or the result of optfair.fair_clustering.alternate",
        )
    objective, certified = np.asarray(history, dtype=float), np.asarray(gaps, dtype=float)
    if objective.ndim != 1 or objective.shape != certified.shape:
        raise DataError(
            "history and gaps do not belong together",
            f"shapes {objective.shape} and {certified.shape}",
            "give a fitted FairKMeans, or the result of optfair.fair_clustering.alternate",
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
        look = {"xycoords": "axes fraction", "ha": "right", "va": "top"}
        beside(ax, "rings: 1e-16 or less, or 0", (1, 1), (-4, -4), **look)


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


# Picture of what fairness costs.

SYMBOLS = {"eps": "ε", "b": "b"}
# Relative difference below which two numbers are the same point.
SAME = 1e-9


@dataclass(frozen=True)
class _Series:
    label: str
    balance: Floats
    cost: Floats
    names: tuple[str, ...]

    @property
    def nondominated(self) -> NDArray[np.bool_]:
        """Whether no other point is both as fair and as cheap, and better in one of them."""
        b, c = self.balance, self.cost
        slack = SAME * max(1.0, float(np.abs(c).max()))
        fairer = b[None, :] > b[:, None] + SAME
        cheaper = c[None, :] < c[:, None] - slack
        worse = (fairer & ~(c[None, :] > c[:, None] + slack)) | (
            cheaper & ~(b[None, :] < b[:, None] - SAME)
        )
        return np.asarray(~worse.any(axis=1))

    @property
    def line(self) -> tuple[Floats, Floats]:
        """Balance and cost of the points that no other beats, in the order of their balance."""
        b, c = self.balance[self.nondominated], self.cost[self.nondominated]
        order = np.argsort(b, kind="stable")
        return b[order], c[order]


def plot_front(
    fronts: Any,
    *,
    references: Mapping[str, tuple[float, float]] | None = None,
    best_balance: float | None = None,
    soft: bool = False,
    units: str = "mean squared distance",
    title: str = "What fairness costs",
    ax: Axes | None = None,
) -> Axes:
    """Draw cost against balance, for one or several sweeps of a rule's tolerance.

    A line joins the points of a sweep that no other point of it dominates; dominated ones
    (another is as fair and as cheap, and better in one) are hollow. Right is fairer, down
    is cheaper.

    Parameters
    ----------
    fronts : Front, sequence of Front, or mapping of str to (balance, cost)
        The sweeps, as `optfair.fair_clustering.fairness_front` returns them or as two sequences each; at
        most six. Any object with ``label``, ``balance`` and ``cost`` will do.
    references : mapping of str to (balance, cost), optional
        Single points to compare with, labelled.
    best_balance : float, optional
        Balance of the population, drawn as a line: no clustering has more.
    soft : bool
        Whether the numbers are of the soft assignment; a `Front` then gives its
        ``soft_balance`` and ``objective`` instead of ``balance`` and ``cost``.
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
        No sweep or too many, sequences of different lengths, non-finite entries, balances
        outside [0, 1].

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.plots import plot_front
    >>> ax = plot_front(
    ...     {"additive gap": ([0.45, 0.3, 0.1], [4.2, 4.0, 3.9])},
    ...     references={"k-means": (0.1, 3.88)},
    ...     best_balance=0.45,
    ... )
    >>> ax.get_ylabel()
    'cost (mean squared distance)'
    """
    series = _series(fronts, soft)
    points = _references(references or {})
    best = None if best_balance is None else _balance(best_balance, "best_balance")
    ax = new_axes(ax, 7.2, 4.8)
    if best is not None:
        ax.axvline(best, color=QUIET, linestyle=(0, (4, 2)), linewidth=1.2)
    for s, colour, shape in zip(series, ORDER, SHAPES, strict=False):
        _draw(ax, s, COLOURS[colour], shape)
    for b, c in points.values():
        ax.plot(b, c, "X", color=INK, markeredgecolor="white", markersize=9, zorder=5)
    _limits(ax, series, list(points.values()), best)
    kind = "soft assignment" if soft else "hard labels"
    ax.set_xlabel(f"balance of the {kind} (higher is fairer)")
    ax.set_ylabel(f"cost ({units})")
    hollow = any(not s.nondominated.all() for s in series)
    note = "each point: one tolerance of the rule"
    tidy(ax, title, note + ("; hollow: another point beats it" if hollow else ""), grid="y")
    if len(series) > 1 or points:
        _legend(ax, series)
    _label(ax, series, points, best)
    return ax


def _series(fronts: Any, soft: bool) -> list[_Series]:
    if isinstance(fronts, Mapping):
        series = [_checked(str(k), pair) for k, pair in fronts.items()]
    else:
        several = [fronts] if hasattr(fronts, "balance") else fronts
        if not isinstance(several, Iterable):
            raise DataError(
                f"{kind_of(fronts)} is not a sweep",
                "it has no balance and cost",
                "give fronts of fairness_front, or {'label': (balance, cost)}",
            )
        series = [_of_front(front, soft) for front in several]
    if not 1 <= len(series) <= len(ORDER):
        raise DataError(
            f"{len(series)} sweeps are too {'many for one picture' if series else 'few'}",
            remedy=f"give between 1 and {len(ORDER)}",
        )
    return series


def _of_front(front: Any, soft: bool) -> _Series:
    if not (hasattr(front, "balance") and hasattr(front, "cost")):
        raise DataError(
            f"{kind_of(front)} is not a sweep",
            "it has no balance and cost",
            "give fronts of fairness_front, or {'label': (balance, cost)}",
        )
    pair = (front.balance, front.cost)
    if soft and hasattr(front, "soft_balance") and hasattr(front, "objective"):
        pair = (front.soft_balance, front.objective)
    values = np.asarray(getattr(front, "values", ()))
    symbol = SYMBOLS.get(str(getattr(front, "parameter", "")))
    names: tuple[str, ...] = ()
    if symbol and values.shape == np.shape(front.cost):
        names = tuple(f"{symbol} = {value:.3g}" for value in values)
    return _checked(str(getattr(front, "label", "")), pair, names)


def _checked(label: str, pair: Any, names: tuple[str, ...] = ()) -> _Series:
    try:
        balance, cost = pair
    except (TypeError, ValueError):
        raise DataError(
            f"the sweep {label!r} is not a pair (balance, cost)",
            remedy="give two sequences of the same length",
        ) from None
    if np.ndim(balance) != 1 or np.shape(balance) != np.shape(cost):
        raise DataError(
            f"balance and cost of {label!r} are not one sweep",
            f"shapes {np.shape(balance)} and {np.shape(cost)}",
            "give one cost for each balance",
        )
    table = check_matrix(np.column_stack([balance, cost]), f"the sweep {label!r}")
    for b in table[:, 0]:
        _balance(b, f"a balance of {label!r}")
    return _Series(label, table[:, 0], table[:, 1], names)


def _balance(value: Any, what: str) -> float:
    if not 0.0 <= float(value) <= 1.0 + SAME:
        raise DataError(
            f"{what} is {value:g}, outside [0, 1]",
            "balance is the smallest ratio of two groups in a cluster",
            "give pairs in the order (balance, cost)",
        )
    return float(value)


def _references(given: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    points = {}
    for name, pair in given.items():
        s = _checked(str(name), tuple(np.atleast_1d(np.asarray(v, dtype=float)) for v in pair))
        points[str(name)] = (float(s.balance[0]), float(s.cost[0]))
    return points


def _draw(ax: Axes, s: _Series, colour: str, shape: str) -> None:
    beaten = ~s.nondominated
    ax.plot(*s.line, "-", marker=shape, color=colour, linewidth=1.8, markersize=5, zorder=3)
    ax.plot(
        *(s.balance[beaten], s.cost[beaten]),
        linestyle="none",
        marker=shape,
        markerfacecolor="none",
        markeredgecolor=colour,
        markersize=5,
        zorder=3,
    )


def _limits(
    ax: Axes, series: list[_Series], points: list[tuple[float, float]], best: float | None
) -> None:
    """Leave room for labels on every side."""
    b = np.concatenate([s.balance for s in series] + [[p[0]] for p in points])
    c = np.concatenate([s.cost for s in series] + [[p[1]] for p in points])
    right = max(float(b.max()), best or 0.0)
    room = (right - float(b.min())) or 0.1
    span = float(np.ptp(c)) or max(abs(float(c[0])), 1.0) * 0.1
    ax.set_xlim(float(b.min()) - 0.08 * room, right + 0.12 * room)
    ax.set_ylim(float(c.min()) - 0.18 * span, float(c.max()) + 0.18 * span)


def _legend(ax: Axes, series: list[_Series]) -> None:
    from matplotlib.lines import Line2D

    legend_below(
        ax,
        [
            Line2D([], [], color=COLOURS[c], marker=m, linewidth=1.8, markersize=5, label=name)
            for s, c, m in zip(series, ORDER, SHAPES, strict=False)
            if (name := plain(s.label))
        ],
    )


def _label(
    ax: Axes, series: list[_Series], points: dict[str, tuple[float, float]], best: float | None
) -> None:
    """Label the references, the ends of a lone sweep, and the population's balance."""
    places, texts = list(points.values()), [plain(name) for name in points]
    if len(series) == 1 and series[0].cost.size > 1:
        ends, words = _ends(series[0])
        places, texts = [*places, *ends], [*texts, *words]
    if best is not None:
        low, high = ax.get_ylim()
        text = f"the population's balance, {best:.3f}"
        beside(ax, text, (best, high), (-5, -4), ha="right", va="top")
    if not places:
        return
    low, high = ax.get_ylim()
    lines = [_along(s) for s in series]
    lines += [np.array([list(p)]) for p in points.values()]
    if best is not None:
        lines.append(np.column_stack([np.full(40, best), np.linspace(low, high, 40)]))
    label_points(ax, places, texts, np.vstack(lines))


def _ends(s: _Series) -> tuple[list[tuple[float, float]], list[str]]:
    """Return the fairest and the cheapest point with their numbers."""
    cheap = int(np.lexsort((-s.balance, s.cost))[0])
    fair = int(np.lexsort((s.cost, -s.balance))[0])
    texts = []
    for i in (fair, cheap):
        more = ""
        if i != cheap and s.cost[cheap] > 0:
            more = f" ({s.cost[i] / s.cost[cheap] - 1:+.1%})"
        numbers = f"cost {s.cost[i]:.4g}{more}, balance {s.balance[i]:.3f}"
        texts.append(f"{s.names[i]}\n{numbers}" if s.names else numbers)
    ends = [(float(s.balance[i]), float(s.cost[i])) for i in (fair, cheap)]
    return (ends, texts) if fair != cheap else (ends[:1], texts[:1])


def _along(s: _Series) -> Floats:
    """Return many points along the line of a sweep, and its points."""
    b, c = s.line
    t = np.linspace(0, b.size - 1, 60 * b.size)
    line = np.column_stack([np.interp(t, np.arange(b.size), v) for v in (b, c)])
    return np.vstack([line, np.column_stack([s.balance, s.cost])])
