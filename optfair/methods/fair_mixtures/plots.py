"""Pictures of fair mixtures: what fairness costs, and the categories in each cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, kind_of, nearest
from optfair.numbers import Floats, check_matrix
from optfair.plots import (
    COLOURS,
    INK,
    ORDER,
    QUIET,
    SHAPES,
    beside,
    colour_bar,
    in_cell,
    label_points,
    legend_below,
    new_axes,
    plain,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Picture of what fairness costs, with bands over seeds.

DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (1, 1)), (0, (5, 1)))
MEASURES = {
    "delta_labels": "Δ of the hard labels (lower is fairer)",
    "delta": "Δ of the responsibilities (lower is fairer)",
    "balance": "balance of the hard labels (higher is fairer)",
}


@dataclass(frozen=True)
class _Method:
    label: str
    seeds: tuple[Floats, ...]  # (points, 2) each: fairness, cost


def plot_mixture_front(
    fronts: Mapping[str, Any],
    *,
    measure: str = "delta_labels",
    references: Mapping[str, tuple[float, float]] | None = None,
    units: str = "mean squared distance",
    title: str = "What fairness costs",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw cost against Δ or balance, for sweeps of a penalty or tolerance over several seeds.

    .. math:: c_s(x) = \min\,\{\text{cost of a fit of seed } s \text{ that is at least as fair as } x\}

    A line is the median of :math:`c_s(x)` over seeds, its band reaches from the least to the
    largest; where some seed has no fit as fair as x, there is neither. Each fit is a small mark.
    A single seed has no band.

    Parameters
    ----------
    fronts : mapping of str to sweeps
        For each method one sweep per seed, or a lone one. A sweep is a pair (fairness, cost) of
        two sequences, or an object with ``cost`` and the measure, such as a
        `MixturePath`; at most six methods.
    measure : {"delta_labels", "delta", "balance"}
        What fairness is: lower Δ, of the labels or of the responsibilities that count, or
        higher balance. The cost is of the labels.
    references : mapping of str to (fairness, cost), optional
        Single points to compare with, labelled.
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
        No method or too many, sequences of different lengths, entries that are not finite.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.methods.fair_mixtures.plots import plot_mixture_front
    >>> seeds = [([0.0, 0.1, 0.3], [4.2, 4.0, 3.9]), ([0.0, 0.12, 0.3], [4.3, 4.0, 3.8])]
    >>> ax = plot_mixture_front({"penalty": seeds}, references={"k-means": (0.4, 3.8)})
    >>> ax.get_ylabel()
    'cost (mean squared distance)'
    """
    if measure not in MEASURES:
        raise DataError(f"unknown measure {measure!r}", remedy=nearest(str(measure), MEASURES))
    methods = _methods(fronts, measure)
    points = {
        str(name): tuple(_table(str(name), pair, measure)[0].tolist())
        for name, pair in (references or {}).items()
    }
    ax = new_axes(ax, 7.2, 4.8)
    lines = []
    for i, method in enumerate(methods):
        lines += _draw(ax, method, i, measure)
    for x, c in points.values():
        ax.plot(x, c, "X", color=INK, markeredgecolor="white", markersize=9, zorder=5)
    if measure != "balance":
        ax.set_xlim(left=min(0.0, ax.get_xlim()[0]))
    ax.margins(0.06, 0.12)
    ax.set_xlabel(MEASURES[measure])
    ax.set_ylabel(f"cost ({units})")
    several = max(len(m.seeds) for m in methods)
    note = "least cost of a fit at least as fair"
    if several > 1:
        note += f"; median and range of up to {several} seeds"
    tidy(ax, title, note, grid="y")
    _legend(ax, methods)
    if points:
        crowd = [p for m in methods for p in m.seeds] + lines
        label_points(ax, list(points.values()), [plain(n) for n in points], np.vstack(crowd))
    return ax


def _methods(fronts: Any, measure: str) -> list[_Method]:
    if not isinstance(fronts, Mapping):
        raise DataError(
            f"{kind_of(fronts)} is not a mapping", remedy="give {'label': one sweep per seed}"
        )
    if not 1 <= len(fronts) <= len(ORDER):
        raise DataError(
            f"{len(fronts)} methods are too {'many for one picture' if fronts else 'few'}",
            remedy=f"give between 1 and {len(ORDER)}",
        )
    return [_Method(str(name), _seeds(str(name), given, measure)) for name, given in fronts.items()]


def _seeds(name: str, given: Any, measure: str) -> tuple[Floats, ...]:
    if _lone(given, measure):
        return (_table(name, given, measure),)
    if not isinstance(given, Iterable):
        raise DataError(
            f"{name!r} is {kind_of(given)}",
            f"it has no cost and {measure}",
            "give one sweep per seed, each a pair (fairness, cost)",
        )
    tables = tuple(_table(name, sweep, measure) for sweep in given)
    if not tables:
        raise DataError(f"{name!r} has no sweeps", remedy="give one per seed")
    return tables


def _lone(given: Any, measure: str) -> bool:
    """Whether this is one sweep rather than one per seed."""
    if hasattr(given, "cost") and hasattr(given, measure):
        return True
    try:
        return (
            len(given) == 2
            and all(np.ndim(part) <= 1 for part in given)
            and not any(hasattr(part, "cost") for part in given)
        )
    except (TypeError, ValueError):
        return False


def _table(name: str, sweep: Any, measure: str) -> Floats:
    if hasattr(sweep, "cost") and hasattr(sweep, measure):
        sweep = getattr(sweep, measure), sweep.cost
    try:
        fairness, cost = (np.atleast_1d(np.asarray(part, dtype=float)) for part in sweep)
    except (TypeError, ValueError):
        raise DataError(
            f"a sweep of {name!r} is not a pair ({measure}, cost)",
            remedy="give two sequences of the same length",
        ) from None
    if fairness.ndim != 1 or fairness.shape != cost.shape or not fairness.size:
        raise DataError(
            f"{measure} and cost of {name!r} are not one sweep",
            f"shapes {fairness.shape} and {cost.shape}",
            "give one cost for each fit",
        )
    table = check_matrix(np.column_stack([fairness, cost]), f"the sweep {name!r}")
    if (table[:, 0] < 0).any() or (measure == "balance" and (table[:, 0] > 1 + 1e-9).any()):
        raise DataError(
            f"a {measure} of {name!r} is out of range",
            f"from {table[:, 0].min():g} to {table[:, 0].max():g}",
            f"give pairs in the order ({measure}, cost)",
        )
    return table


def _least(table: Floats, at: Floats, measure: str) -> Floats:
    """Return the least cost among fits at least as fair, NaN where there is none."""
    x, cost = table.T
    fair = x[None, :] >= at[:, None] if measure == "balance" else x[None, :] <= at[:, None]
    least = np.where(fair, cost[None, :], np.inf).min(axis=1)
    return np.where(np.isfinite(least), least, np.nan)


def _draw(ax: Axes, method: _Method, i: int, measure: str) -> list[Floats]:
    colour, dashes, shape = COLOURS[ORDER[i]], DASHES[i], SHAPES[i]
    every = np.vstack(method.seeds)
    # steps change only where a fit is
    at = np.unique(every[:, 0])
    costs = np.stack([_least(table, at, measure) for table in method.seeds])
    known = np.isfinite(costs).all(axis=0)
    where = "pre" if measure == "balance" else "post"
    middle = np.median(costs[:, known], axis=0)
    ax.plot(
        at[known],
        middle,
        drawstyle=f"steps-{where}",
        color=colour,
        linestyle=dashes,
        linewidth=1.8,
        zorder=3,
    )
    if len(method.seeds) > 1:
        low, high = costs[:, known].min(axis=0), costs[:, known].max(axis=0)
        ax.fill_between(at[known], low, high, step=where, color=colour, alpha=0.16, lw=0, zorder=1)  # type: ignore[arg-type]
    ax.plot(*every.T, shape, color=colour, markersize=3.5, alpha=0.55, linestyle="none", zorder=2)
    return [np.column_stack([at[known], middle])] if known.any() else []


def _legend(ax: Axes, methods: list[_Method]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=COLOURS[ORDER[i]],
            linestyle=DASHES[i],
            marker=SHAPES[i],
            markersize=4,
            linewidth=1.8,
            label=plain(m.label),
        )
        for i, m in enumerate(methods)
    ]
    legend_below(ax, handles)


# Picture of the categories in each cluster of a mixture.

# Rows of one picture, and characters of the name of a category.
MOST_ROWS, LONGEST = 60, 30
# Difference to the population from which on colours do not grow.
STRONGEST = 0.5


def plot_category_profiles(
    model: Any,
    *,
    columns: Sequence[str | int] | None = None,
    title: str = "Categories in each cluster",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the probability of each category in each cluster, against the whole population.

    .. math:: P(c \mid k) \quad\text{and}\quad P(c \mid k) - \sum_l \pi_l P(c \mid l)

    One row per category, in blocks of one column of the data each; one column per cluster, with
    its weight. Numbers are probabilities in per cent, colours their difference to the first
    column, the population's: red where a category is more frequent, blue where it is rarer.

    Parameters
    ----------
    model : FairMixture
        Fitted, with categorical columns.
    columns : sequence of str or int, optional
        Names or positions of categorical columns to draw; all by default.
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
        Not fitted, no categorical columns, no such column, or more categories than fit in.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import numpy as np
    >>> import optfair as of
    >>> from optfair.methods.fair_mixtures.plots import plot_category_profiles
    >>> rng = np.random.default_rng(0)
    >>> X = rng.integers(0, 3, size=(60, 2)).astype(float)
    >>> model = of.FairMixture(2, categorical=[0, 1], max_iter=500, random_state=0)
    >>> ax = plot_category_profiles(model.fit(X, groups=np.arange(60) % 2))
    >>> [t.get_text() for t in ax.get_yticklabels()]
    ['0', '1', '2', '0', '1', '2']
    """
    for needed in ("probabilities_", "categories_", "columns_", "weights_"):
        if not hasattr(model, needed):
            raise DataError(
                f"{kind_of(model)} has no categories to draw",
                f"it has no {needed}",
                "give a fitted FairMixture",
            )
    blocks = _blocks(model, columns)
    labels = [_label(value) for _, values, _ in blocks for value in values.tolist()]
    inside = np.concatenate([p.T for _, _, p in blocks])
    if len(labels) > MOST_ROWS:
        raise DataError(
            f"{len(labels)} categories are too many for one picture",
            f"{MOST_ROWS} can be read",
            "name some columns in columns=",
        )
    weights = np.asarray(model.weights_)
    population = inside @ weights
    table = np.column_stack([population, inside])
    change = table - population[:, None]
    rows, shown = table.shape
    ax = new_axes(ax, 4.2 + 0.6 * shown, 1.6 + 0.27 * rows)
    image = ax.imshow(change, cmap="RdBu_r", vmin=-STRONGEST, vmax=STRONGEST, aspect="auto")
    for (i, j), value in np.ndenumerate(table):
        strong = bool(abs(change[i, j]) > 0.6 * STRONGEST)
        weight = "bold" if j == 0 else "normal"
        in_cell(ax, i, j, f"{100 * value:.0f}", strong=strong, fontsize=8.5, fontweight=weight)
    _frame(ax, blocks, labels, weights)
    note = "per cent of the rows\ncolours: difference to all rows"  # the picture may be narrow
    tidy(ax, title, note, left=True, bottom=True)
    place = {"ax": ax, "shrink": 0.6, "pad": 0.02, "extend": _ends(change)}
    bar = colour_bar(image, "difference to all rows", **place)
    bar.set_ticks([-STRONGEST, 0.0, STRONGEST], labels=["-50", "0", "+50"])
    return ax


def _blocks(model: Any, columns: Any) -> list[tuple[str, NDArray[Any], Floats]]:
    """Return (name, categories, probabilities (K, categories)) of the columns to draw."""
    c = model.columns_
    places = list(c.categorical)
    if not places:
        raise DataError(
            "the mixture has no categorical columns", remedy="name them in categorical= of the fit"
        )
    named = [str(j) if c.names is None else c.names[j] for j in places]
    chosen = list(range(len(places)))
    if columns is not None:
        chosen = []
        for given in columns:
            name = given if isinstance(given, str) else None
            if name is None and given in places:
                chosen.append(places.index(given))
            elif name in named:
                chosen.append(named.index(name))
            else:
                raise DataError(
                    f"the fit has no categorical column {given!r}",
                    remedy=nearest(str(given), named),
                )
    if not chosen:
        raise DataError("columns is empty", remedy="name one at least")
    return [(named[j], model.categories_[j], np.asarray(model.probabilities_[j])) for j in chosen]


def _label(value: Any) -> str:
    return plain(f"{value:g}" if isinstance(value, float) else value, LONGEST)


def _ends(change: Floats) -> str:
    low, high = change.min() < -STRONGEST, change.max() > STRONGEST
    return {(True, True): "both", (True, False): "min", (False, True): "max"}.get(
        (bool(low), bool(high)), "neither"
    )


def _frame(
    ax: Axes, blocks: list[tuple[str, NDArray[Any], Floats]], labels: list[str], weights: Floats
) -> None:
    """Label rows and columns, and part the blocks of rows."""
    ax.set_xticks(
        range(weights.size + 1), ["all\nrows", *(f"{k}\n{w:.0%}" for k, w in enumerate(weights))]
    )
    ax.tick_params(length=0)
    ax.set_xlabel("cluster, with its weight", color=QUIET)
    ax.set_yticks(range(len(labels)), labels)
    ax.axvline(0.5, color=INK, lw=1.2)
    start = 0
    look: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "ha": "right", "va": "center"}
    look |= {"fontweight": "bold", "color": INK}
    longest = max(map(len, labels))
    for name, values, _ in blocks:
        if start:
            ax.axhline(start - 0.5, color=INK, lw=0.8)
        beside(ax, plain(name, LONGEST), (0.0, start), (-14 - 5.4 * longest, 0), **look)
        start += values.size
