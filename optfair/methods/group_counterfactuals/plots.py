"""Pictures of a group, its counterfactuals, and the map between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, kind_of
from optfair.features.feature_problem import checked_names, column_index
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.metrics import moved_members
from optfair.numbers import Floats, check_mapping
from optfair.plots import (
    COLOURS,
    INK,
    ORDER,
    QUIET,
    SHAPES,
    colour_bar,
    in_cell,
    legend_below,
    new_axes,
    new_figure,
    plain,
    tidy,
)
from optfair.rows.frames import in_one_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Pictures of a group and its counterfactuals, member by member.

BEFORE, AFTER = COLOURS[0], COLOURS[5]
# Arrows of more members hide each other.
MOST_ARROWS = 150


@in_one_order("X", "Z")
def plot_arrows(
    X: Any,
    Z: Any,
    *,
    score: Any = None,
    probability: float | None = None,
    threshold: float | None = None,
    target_class: Any = None,
    features: Sequence[Any] = (0, 1),
    names: Sequence[str] | None = None,
    title: str = "Where each member goes",
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Draw an arrow from every member to its counterfactual, in two of the features.

    Both axes have one scale, so that lengths and angles are those of the data. Of more than
    150 members, every second, third, ... has an arrow; all have their points.

    Parameters
    ----------
    X, Z : array-like or DataFrame (n, d)
        Members and their counterfactuals.
    score : linear score, optional
        As `LinearScore.of` takes it. With two features its lines are drawn: the target, and
        the decision where the target is another one.
    probability, threshold, target_class
        The target, as for the models.
    features : pair of int or str
        Which features.
    names : sequence of str, optional
        Names of all features; those of a DataFrame, else x0, x1, ...
    title : str
        Title.
    legend : bool
        Whether to say what is what.
    ax : Axes, optional
        Where to draw; new axes by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    DataError, DeclarationError
        Rows that do not fit, unknown features, a score that is not linear.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.plots import plot_arrows
    >>> ax = plot_arrows([[0.0, 0.0], [1.0, 0.0]], [[1.0, 2.0], [2.0, 2.0]], score=([0, 1], -2))
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x0', 'x1')
    """
    members, images, known = _rows(X, Z, names)
    i, j = _chosen(features, known)
    own, ax = ax is None, new_axes(ax, 6.4, 5.2)
    before, after = members[:, [i, j]], images[:, [i, j]]
    step = -(-len(before) // MOST_ARROWS)
    for a, b in zip(before[::step], after[::step], strict=True):
        ax.annotate(
            "",
            b,
            a,
            arrowprops={"arrowstyle": "-|>", "color": QUIET, "lw": 0.7, "alpha": 0.55,
                        "mutation_scale": 7, "shrinkA": 2, "shrinkB": 2},
        )  # fmt: skip
    handles = [
        ax.scatter(before[:, 0], before[:, 1], s=22, color=BEFORE, edgecolor="white", lw=0.5, label="members"),
        ax.scatter(
            after[:, 0], after[:, 1], s=24, marker="D", color=AFTER, edgecolor="white", lw=0.5,
            label="counterfactuals",
        ),
    ]  # fmt: skip
    if own:
        ax.set_aspect("equal", adjustable="datalim")
        ax.margins(0.06)
    else:  # axes that share their limits with others cannot widen them
        _limits(ax, np.vstack([before, after]))
    if score is not None and members.shape[1] == 2:
        handles += _lines(ax, LinearScore.of(score), (i, j), target_class, probability, threshold)
    ax.set_xlabel(plain(known[i]))
    ax.set_ylabel(plain(known[j]))
    cost = float(np.square(images - members).sum(axis=1).mean())
    tidy(ax, title, f"mean squared distance {cost:.3g}" + _hidden(known, (i, j)))
    if legend:
        legend_below(ax, handles)
    return ax


def plot_groups(X: Any, counterfactuals: Mapping[str, Any], **options: Any) -> Figure:
    """Draw the counterfactuals of one group side by side, as for a small and a large K.

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Members.
    counterfactuals : mapping of str to array (n, d)
        What each panel shows, by its title; at most four.
    score, probability, threshold, target_class, features, names
        As in `plot_arrows`.

    Returns
    -------
    matplotlib.figure.Figure
        All panels have the same limits.

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    DataError
        No mapping, no panel or more than four; otherwise as `plot_arrows`.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.plots import plot_groups
    >>> X = [[0.0, 0.0], [1.0, 0.0]]
    >>> both = {"moved": [[1.0, 2.0], [2.0, 2.0]], "pressed": [[0.5, 2.0], [0.5, 2.0]]}
    >>> len(plot_groups(X, both, score=([0.0, 1.0], -2.0)).axes)
    2
    """
    check_mapping(counterfactuals, "counterfactuals")
    if not 1 <= len(counterfactuals) <= 4:
        raise DataError(
            f"{len(counterfactuals)} panels", remedy="give between one and four by title"
        )
    figure = new_figure(4.9 * len(counterfactuals), 4.9)
    figure.set_layout_engine("constrained", h_pad=0.1)  # room above the titles
    panels = figure.subplots(1, len(counterfactuals), sharex=True, sharey=True, squeeze=False)[0]
    points = []
    for ax, (title, Z) in zip(panels, counterfactuals.items(), strict=True):
        plot_arrows(X, Z, **options, title=plain(title, 36), legend=False, ax=ax)
        members, images, known = _rows(X, Z, options.get("names"))
        at = list(_chosen(options.get("features", (0, 1)), known))
        points += [members[:, at], images[:, at]]
    for ax in panels:
        _limits(ax, np.vstack(points))
        if ax is not panels[0]:
            ax.set_ylabel("")
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9.5
        )
    return figure


def _rows(X: Any, Z: Any, names: Sequence[str] | None) -> tuple[Floats, Floats, tuple[str, ...]]:
    members, images = moved_members(X, Z)
    given = names if names is not None else getattr(X, "columns", None)
    return members, images, checked_names(given, members.shape[1])


def _chosen(features: Sequence[Any], known: tuple[str, ...]) -> tuple[int, int]:
    if isinstance(features, str) or len(features) != 2:
        raise DeclarationError(f"features is {features!r}", remedy="give two of them")
    return column_index(known, features[0]), column_index(known, features[1])


def _hidden(known: tuple[str, ...], shown: tuple[int, int]) -> str:
    rest = len(known) - len(set(shown))
    return f"; {rest} more feature{'s' * (rest > 1)} not shown" if rest else ""


def _limits(ax: Axes, points: Floats) -> None:
    """Show all points with room around them, and one scale for both axes."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = 0.06 * max(float((high - low).max()), 1e-12)
    ax.set_aspect("equal", adjustable="box")
    ax.set_xlim(float(low[0]) - room, float(high[0]) + room)
    ax.set_ylim(float(low[1]) - room, float(high[1]) + room)


def _lines(
    ax: Axes,
    score: LinearScore,
    shown: tuple[int, int],
    target_class: Any,
    probability: float | None,
    threshold: float | None,
) -> list[Any]:
    """Draw the edge of the target, and the decision line where it is another one."""
    v, t = score.halfspace(target_class, probability=probability, threshold=threshold)
    _, decision = score.halfspace(target_class, threshold=0.0)
    goal = f"target: probability {probability:g}" if probability is not None else "target"
    lines = [_line(ax, v[list(shown)], t, INK, "-", goal)]
    if abs(t - decision) > 1e-9 * (1.0 + abs(t)):
        lines.append(_line(ax, v[list(shown)], decision, QUIET, (0, (4, 2)), "decision line"))
    return lines


def _line(ax: Axes, v: Floats, t: float, colour: str, style: Any, label: str) -> Any:
    if abs(v[1]) < 1e-12:
        return ax.axvline(t / v[0], color=colour, linestyle=style, lw=1.3, label=label, zorder=1)
    at, slope = (0.0, float(t / v[1])), float(-v[0] / v[1])
    return ax.axline(at, slope=slope, color=colour, linestyle=style, lw=1.3, label=label, zorder=1)


# Picture of transport cost against distortion.

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
    >>> from optfair.methods.group_counterfactuals.front import counterfactual_front
    >>> X = np.random.default_rng(0).normal(size=(30, 2)) - 2.0
    >>> front = counterfactual_front(X, ([1.0, 1.0], 0.0), K=[1.01, 2.0, 5.0])
    >>> of.plots.plot_counterfactual_front(front).get_xlabel()
    'distortion of the members, 1 − 1 / max(K, k)'
    """
    several: Sequence[Any] = [fronts]
    if not hasattr(fronts, "transport_cost") and isinstance(fronts, Iterable):
        several = list(fronts)
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
    kinds = {f.method for f in several}
    note = {
        frozenset({"sweep"}): "each point: the optimum of its family for one K",
        frozenset({"nsga2"}): "found by a search; nothing is proven of it",
    }.get(frozenset(kinds), "filled: optimum of its family for one K; hollow: found by a search")
    tidy(ax, title, note, grid="y")
    legend_below(ax, handles)
    return ax


def _references(ax: Axes, references: Mapping[str, tuple[float, float]]) -> None:
    from optfair.plots import INK, label_points

    if not references:
        return
    points = [(float(bent), float(cost)) for cost, bent in references.values()]
    for x, y in points:
        ax.plot(x, y, "X", color=INK, markeredgecolor="white", markersize=9, zorder=5)
    lines = [np.asarray(line.get_xydata(), dtype=float) for line in ax.lines]
    avoid: NDArray[np.float64] = np.vstack(lines)
    label_points(ax, points, [plain(name) for name in references], avoid)


# Picture of what a map does to each feature.

# Numbers are written into the cells of up to so many features.
MOST_NUMBERS = 16
# Changes below this are what a solver leaves of zero.
STILL = 5e-4
# Standard deviations from which on colours do not grow: one odd feature would pale the others.
STRONGEST = 1.0


def plot_map(
    fitted: Any,
    *,
    standardized: bool = True,
    title: str = "What the map does to each feature",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw a map as a table of colours: how the new value of a row depends on each column.

    .. math:: \frac{g(x)_i - \mu_i}{s_i} = \frac{(g(\mu) - \mu)_i}{s_i}
        + \sum_j \frac{s_j}{s_i} A_{ij}\,\frac{x_j - \mu_j}{s_j}

    The first column is how far the mean of the group moves, the others are A. Colours show
    the difference to the identity, which is white; a feature that stays is a white row with a
    1 in its own column.

    Parameters
    ----------
    fitted : TransportMap
        The map; its mean μ and covariance belong to the group.
    standardized : bool
        Whether numbers are in standard deviations s of the group; else in the units of the
        features.
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
        Not an affine map.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.methods.group_counterfactuals.transport_map import TransportMap
    >>> from optfair.plots import plot_map
    >>> ax = plot_map(TransportMap([[0.5, 0.0], [0.0, 1.0]], [2.0, 0.0], features=("a", "b")))
    >>> [t.get_text() for t in ax.get_xticklabels()]
    ['mean', 'a', 'b']
    """
    if not hasattr(fitted, "matrix") or not hasattr(fitted, "offset"):
        raise DataError(
            f"{kind_of(fitted)} is not an affine map",
            remedy="give what problem.map(solution) returns",
        )
    A, mean = np.asarray(fitted.matrix), np.asarray(fitted.mean)
    shift = fitted.transform(mean[None])[0] - mean
    s = np.sqrt(np.diag(fitted.covariance)) if standardized else np.ones(mean.size)
    s = np.where(s > 0, s, 1.0)
    table = np.column_stack([shift / s, A * (s[None, :] / s[:, None])])
    change = table.copy()
    change[:, 1:] -= np.eye(mean.size)
    d = mean.size
    ax = new_axes(ax, 2.6 + 0.62 * (d + 1), 1.9 + 0.42 * d)
    largest = max(float(np.abs(change).max()), STILL)
    limit = min(largest, STRONGEST) if standardized else largest
    image = ax.imshow(change, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    ax.axvline(0.5, color=INK, lw=1.2)
    if d <= MOST_NUMBERS:
        for (i, j), value in np.ndenumerate(table):
            strong = bool(abs(change[i, j]) > 0.6 * limit)
            if abs(change[i, j]) >= STILL or j == i + 1:
                text = f"{value:+.2f}" if j == 0 else f"{value:.2f}"
                in_cell(ax, i, j, text, strong=strong, fontsize=9)
    names = [plain(name, 18) for name in fitted.features]
    turned = max(map(len, names)) > 6
    ax.set_xticks(
        range(d + 1),
        ["mean", *names],
        rotation=40 if turned else 0,
        ha="right" if turned else "center",
        rotation_mode="anchor",
    )
    ax.set_yticks(range(d), names)
    units = "standard deviations of the group" if standardized else "units of the features"
    note = (
        f"first column: the mean moves, in {units}\nthen: new value of a row per value of a column"
    )
    tidy(ax, title, note, left=True, bottom=True)
    ax.tick_params(length=0)
    ends = "both" if largest > limit else "neither"
    colour_bar(image, "difference to staying", ax=ax, shrink=0.85, pad=0.02, extend=ends)
    return ax
