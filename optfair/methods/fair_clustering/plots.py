"""Pictures of clusters: what they are made of, and where they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.fair_clustering.metrics import composition
from optfair.numbers import Floats, check_matrix, check_weights, encode_groups
from optfair.plots import (
    COLOURS,
    INK,
    MANY_COLOURS,
    ON_LIGHT,
    beside,
    legend_below,
    new_axes,
    plain,
    tidy,
)
from optfair.rows.frames import in_one_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Picture of what clusters are made of.

# Share of a cluster from which a bar is wide enough for its number.
READABLE = 0.07


def plot_composition(
    groups: Any,
    assignment: Any,
    *,
    soft: bool = False,
    sample_weight: Any = None,
    title: str = "What each cluster is made of",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the share of each group in each cluster, against the population.

    .. math:: M_{gk} \big/ \textstyle\sum_h M_{hk} \quad\text{against}\quad \pi_g

    One stacked bar per cluster, with its size on the right; a dashed line per boundary
    between groups in the population. A fair clustering has all its bars meet the lines.

    Parameters
    ----------
    groups : array-like (n,)
        Group label of each row; at most seven groups.
    assignment : array-like (n,) or (n, K)
        Labels 0 ... K-1, or fractions.
    soft : bool
        Take fractions as they are instead of each row's largest.
    sample_weight : array-like (n,), optional
        Weights; equal by default.
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
        More groups than colours that can be told apart.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.plots import plot_composition
    >>> ax = plot_composition(["a", "b", "a", "b"], [0, 0, 1, 1])
    >>> ax.get_xlabel()
    'share of the cluster (hard labels)'
    """
    shares = composition(groups, assignment, soft=soft, sample_weight=sample_weight)
    G, K = shares.shape
    available = len(COLOURS)
    if available < G:
        raise DataError(
            f"{G} groups are too many for one picture",
            f"{available} colours can be told apart",
            "join small groups",
        )
    weights = check_weights(sample_weight, len(groups))
    _, names, population = encode_groups(groups, len(groups), weights)
    sizes = _sizes(assignment, soft, weights, K)
    ax = new_axes(ax, 7.2, 1.9 + 0.42 * K)
    left = np.zeros(K)
    for g in range(G):
        width = np.nan_to_num(shares[g])
        ax.barh(np.arange(K), width, left=left, height=0.66, color=COLOURS[g], edgecolor="white")
        for k in np.flatnonzero(width >= READABLE).tolist():
            ax.text(
                left[k] + width[k] / 2,
                k,
                f"{width[k]:.0%}",
                ha="center",
                va="center",
                fontsize=9.5,
                color=_ink_on(COLOURS[g]),
                bbox={"facecolor": COLOURS[g], "edgecolor": "none", "pad": 1.5},
            )
        left = left + width
    for boundary in np.cumsum(population)[:-1]:
        ax.axvline(boundary, color=INK, linestyle=(0, (4, 2)), linewidth=1.4)
    _label(ax, names, population, sizes, soft)
    mixed = "the mix of the whole population"
    if G == 2:
        mixed = f"share of “{plain(names[0])}” in the whole population, {population[0]:.0%}"
    tidy(ax, title, f"dashed: {mixed}", left=True)
    return ax


def _sizes(assignment: Any, soft: bool, weights: Any, clusters: int) -> Any:
    given = np.asarray(assignment)
    if given.ndim == 2 and soft:
        return weights @ given
    labels = given.argmax(axis=1) if given.ndim == 2 else given
    return np.bincount(labels, weights, clusters)


def _ink_on(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.42 else ON_LIGHT


def _label(ax: Axes, names: Any, population: Any, sizes: Any, soft: bool) -> None:
    from matplotlib.patches import Patch

    K = sizes.size
    ax.set_xlim(0, 1)
    ax.set_ylim(K - 0.4, -0.6)  # the first cluster on top
    ax.set_xticks(np.linspace(0, 1, 5), [f"{x:.0%}" for x in np.linspace(0, 1, 5)])
    ax.set_xlabel(f"share of the cluster ({'soft fractions' if soft else 'hard labels'})")
    ax.set_yticks(range(K), [f"cluster {k}" for k in range(K)])
    ax.tick_params(axis="y", length=0)
    for k, size in enumerate(sizes):
        text = f"{size:.0%} of rows" if size > 0 else "empty"
        beside(ax, text, (1, k), (6, 0), va="center")
    legend_below(
        ax,
        [
            Patch(color=COLOURS[g], label=f"{plain(name)} ({population[g]:.0%} of all)")
            for g, name in enumerate(names)
        ],
    )


# Picture of a clustering in two dimensions.


# Open and filled shapes in turn: told apart at a few pixels.
SHAPES = ("o", "^", "s", "X", "D", "v", "P")
OPEN = (False, True, False, True, False, True, False)
# Room for a number and its ring, in points.
WIDTH = 23.0


@in_one_order("X", "labels", "groups")
def plot_projection(
    X: Any,
    labels: Any,
    groups: Any,
    *,
    centers: Any = None,
    columns: Any = None,
    max_points: int = 3000,
    random_state: Any = 0,
    title: str = "The clusters in two dimensions",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw rows in the plane of their first two principal components.

    .. math:: z_i = V^\top (x_i - \bar x), \qquad V \in \mathbb{R}^{d \times 2}

    Colour is the cluster, with its number at its center; shape is the group. Two columns are
    drawn as they are. One column is drawn against a random height. What overlaps here may be
    apart in the columns that are not seen: the axes say how much of the variance they show.

    Parameters
    ----------
    X : array-like (n, d)
        Rows.
    labels : array-like (n,) of int
        Cluster of each row, 0 ... K-1.
    groups : array-like (n,)
        Group label of each row; at most seven groups.
    centers : array-like (K, d), optional
        Where the numbers stand, in the coordinates of the rows; by default the mean of each
        cluster's rows.
    columns : sequence of str, optional
        Names of the columns, for the axes when d is 1 or 2.
    max_points : int
        Rows to draw at most; more are sampled.
    random_state : int or numpy Generator
        Seed of the sample.
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
        Shapes that do not fit, non-finite entries, more groups than shapes.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.plots import plot_projection
    >>> X = [[0.0, 0.0], [1.0, 0.0], [9.0, 9.0], [9.0, 8.0]]
    >>> ax = plot_projection(X, [0, 0, 1, 1], list("abab"), columns=["age", "amount"])
    >>> ax.get_xlabel()
    'age'

    References
    ----------
    Petroff: Accessible Color Sequences for Data Visualization, arXiv 2107.02270.
    """
    rows = check_matrix(X, "X")
    n, d = rows.shape
    index, names, _ = encode_groups(groups, n, check_weights(None, n))
    if names.size > len(SHAPES):
        raise DataError(
            f"{names.size} groups are too many for one picture",
            f"{len(SHAPES)} shapes can be told apart",
            "join small groups",
        )
    cluster = _labels(labels, n)
    marks = _marks(centers, rows, cluster)
    rng = np.random.default_rng(random_state)
    points, marks, axis_names, how = _projected(rows, marks, columns, rng)
    drawn = np.arange(n)
    if n > max_points:
        drawn = np.sort(rng.choice(n, max_points, replace=False))
        how += f"; {drawn.size:,} of {n:,} rows, sampled"
    ax = new_axes(ax, 7.2, 5.6)
    _scatter(ax, points[drawn], cluster[drawn], index[drawn], names.size)
    ax.set_xlabel(axis_names[0])
    ax.set_ylabel(axis_names[1])
    bare: dict[str, Any] = {"left": True} if d == 1 else {}
    if bare:
        ax.set_yticks([])
    _legend(ax, names)
    tidy(ax, title, f"{how}\ncolour and number: cluster; shape: group", **bare)
    _numbers(ax, marks)
    return ax


def _labels(labels: Any, n: int) -> NDArray[np.intp]:
    given = np.asarray(labels)
    if given.shape != (n,) or given.dtype.kind not in "iu" or given.min() < 0:
        raise DataError(
            "labels does not fit the rows",
            f"shape {given.shape}, type {given.dtype}, for {n} rows",
            "give one integer label from 0 on per row",
        )
    return given.astype(np.intp)


def _marks(centers: Any, rows: Floats, cluster: NDArray[np.intp]) -> Floats:
    """Return where the number of each cluster stands; NaN for a cluster without rows or center."""
    if centers is not None:
        given = check_matrix(centers, "centers", columns=rows.shape[1])
        if given.shape[0] <= cluster.max():
            raise DataError(
                f"labels go up to {cluster.max()}, but there are {given.shape[0]} centers",
                remedy="give one center per cluster",
            )
        return given
    sizes = np.bincount(cluster).astype(float)
    sums = np.stack([np.bincount(cluster, column) for column in rows.T], axis=1)
    means: Floats = np.full_like(sums, np.nan)
    np.divide(sums, sizes[:, None], out=means, where=sizes[:, None] > 0)
    return means


def _projected(
    rows: Floats, marks: Floats, columns: Any, rng: np.random.Generator
) -> tuple[Floats, Floats, tuple[str, str], str]:
    """Return (points, marks, names of the axes, how they were made)."""
    d = rows.shape[1]
    names = [plain(c) for c in columns] if columns is not None else [f"x{j}" for j in range(d)]
    if len(names) != d:
        raise DataError(f"{len(names)} column names for {d} columns", remedy="give one per column")
    if d == 1:
        heights = rng.uniform(-1.0, 1.0, (rows.shape[0], 1))
        middle = np.where(np.isfinite(marks), 0.0, np.nan)
        return (
            np.hstack([rows, heights]),
            np.hstack([marks, middle]),
            (names[0], ""),
            "height is random",
        )
    if d == 2 or rows.shape[0] < 2:
        return rows[:, :2], marks[:, :2], (names[0], names[1]), "both columns as they are"
    from sklearn.decomposition import PCA

    # the full decomposition is exact and has no seed
    pca = PCA(2, svd_solver="full").fit(rows)
    placed = np.full((marks.shape[0], 2), np.nan)
    known = np.isfinite(marks).all(axis=1)
    placed[known] = pca.transform(marks[known])
    axes = tuple(
        f"principal component {j + 1} ({share:.0%} of the variance)"
        for j, share in enumerate(pca.explained_variance_ratio_)
    )
    return pca.transform(rows), placed, (axes[0], axes[1]), f"PCA of {d} columns"


def _scatter(
    ax: Axes, points: Floats, cluster: NDArray[np.intp], group: NDArray[np.intp], groups: int
) -> None:
    size = float(np.clip(12000 / max(len(points), 1), 9, 34))
    colours = np.array(MANY_COLOURS)[cluster % len(MANY_COLOURS)]
    for g in range(groups):
        of = group == g
        if not of.any():
            continue
        ax.scatter(
            points[of, 0],
            points[of, 1],
            s=size,
            marker=SHAPES[g],
            facecolors="none" if OPEN[g] else colours[of],
            edgecolors=colours[of] if OPEN[g] else "none",
            linewidths=0.9 if OPEN[g] else 0,
            alpha=0.75,
            zorder=2,
        )
    ax.margins(0.04)


def _numbers(ax: Axes, marks: Floats) -> None:
    """Mark the centers, and write numbers at them or, where they are too close, beside them."""
    known = np.flatnonzero(np.isfinite(marks).all(axis=1))
    ax.update_datalim(marks[known])
    ax.autoscale_view()
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    points = 72.0 / ax.figure.dpi
    at = ax.transData.transform(marks[known]) * points
    for k, shift in zip(known, _apart(at) - at, strict=True):
        colour = MANY_COLOURS[k % len(MANY_COLOURS)]
        moved = bool(np.hypot(*shift) > 3.0)
        if moved:
            ax.plot(*marks[k], "o", color=colour, markeredgecolor="white", markersize=6, zorder=4)
        ax.annotate(
            str(k),
            tuple(marks[k]),
            xytext=tuple(shift),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9.5,
            fontweight="bold",
            color=ON_LIGHT,
            zorder=5,
            bbox={
                "boxstyle": "circle,pad=0.28",
                "facecolor": "white",
                "edgecolor": colour,
                "linewidth": 2.2,
            },
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 1.6} if moved else None,
        )


def _apart(at: Floats) -> Floats:
    """Return places, in points, moved until no two are closer than a number is wide."""
    places = at.copy()
    angle = np.arange(len(at)) * 2.4
    # coincident ones need a direction
    places += 0.01 * np.column_stack([np.cos(angle), np.sin(angle)])
    for _ in range(200):
        apart = places[:, None] - places[None, :]
        distance = np.hypot(apart[..., 0], apart[..., 1])
        np.fill_diagonal(distance, np.inf)
        push = np.maximum(0.0, WIDTH - distance) / 2.0
        if not (push > 0.05).any():
            break
        places += 0.7 * (push[..., None] * apart / distance[..., None]).sum(axis=1)
    return places


def _legend(ax: Axes, names: Any) -> None:
    from matplotlib.lines import Line2D

    legend_below(
        ax,
        [
            Line2D(
                [],
                [],
                linestyle="none",
                marker=SHAPES[g],
                markersize=6,
                markeredgecolor=INK,
                markerfacecolor="none" if OPEN[g] else INK,
                label=plain(name),
            )
            for g, name in enumerate(names)
        ],
    )
