"""Pictures of counterfactuals between clusters, points or images, and of the distances between clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError, kind_of
from optfair.numbers import Floats, check_mapping, check_matrix
from optfair.plots import (
    COLOURS,
    MANY_COLOURS,
    QUIET,
    SHAPES,
    colour_bar,
    headline,
    in_cell,
    label_points,
    legend_below,
    new_axes,
    new_figure,
    plain,
    tidy,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Picture of counterfactuals between clusters, in two dimensions.

# Colours and shapes of the paths: they must stand out from the light regions.
ORDER = (2, 1, 0, 3, 5, 4)
RED = "#C2170A"
# Points of the grid per side, and the room around what is drawn.
GRID, ROOM = 480, 0.12


def plot_cluster_counterfactuals(
    model: Any,
    factual: Any,
    counterfactuals: Mapping[str, Any],
    *,
    X: Any = None,
    levels: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str = "Counterfactuals of one point",
    ax: Axes | None = None,
) -> Axes:
    """Draw a factual, its counterfactuals and the regions of the clusters.

    Light areas are the clusters, as ``model.predict`` gives them to the points of a grid, with
    their boundaries. A line leads from the factual, a cross, through the counterfactuals of
    each series in the order given, for example of growing plausibility. Both axes have the
    same scale, so that distances can be compared by eye.

    Parameters
    ----------
    model : ClusterExplainer, or any estimator with ``predict``
        Of two features.
    factual : array-like (2,)
        The point that is explained.
    counterfactuals : mapping of str to array (m, 2)
        Series of points by label, at most six; for example one per mask.
    X : array-like (n, 2), optional
        Rows to draw.
    levels : sequence of str, optional
        What to write next to the points of the longest series.
    columns : sequence of str, optional
        Names of the two features.
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
        Points that do not have two coordinates, no series or more than six.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from sklearn.cluster import KMeans
    >>> from optfair.methods.cluster_counterfactuals.plots import plot_cluster_counterfactuals
    >>> X = [[0.0, 0.0], [1.0, 0.0], [4.0, 3.0], [5.0, 3.0]]
    >>> model = KMeans(2, n_init=1, random_state=0).fit(X)
    >>> ax = plot_cluster_counterfactuals(
    ...     model, [0.0, 0.0], {"all": [[2.0, 1.5]]}, X=X, columns=["age", "income"]
    ... )
    >>> ax.get_ylabel()
    'income'

    References
    ----------
    Vardakas, Karra, Pitoura, Likas: Counterfactual Explanations for k-Means and Gaussian
    Clustering, figures 1 to 3.
    """
    start = _points([factual], "factual")
    paths = _paths(counterfactuals)
    rows = None if X is None else _points(X, "X")
    texts = _texts(levels, paths)
    names = ("x0", "x1") if columns is None else tuple(plain(c) for c in columns)
    if len(names) != 2:
        raise DataError(f"{len(names)} column names for 2 columns", remedy="give one per column")
    ax = new_axes(ax, 7.2, 5.6)
    everything = [start, *paths.values()] + ([] if rows is None else [rows])
    count = _regions(ax, model, *_frame(np.vstack(everything)))
    if rows is not None:
        _rows(ax, model, rows)
    handles = _series(ax, start, paths)
    ax.set_aspect("equal", adjustable="box")
    ax.set_xlabel(names[0])
    ax.set_ylabel(names[1])
    tidy(
        ax,
        title,
        f"cross: the factual; areas: the {count} clusters in this window",
        left=True,
        bottom=True,
    )
    ax.tick_params(length=0)
    legend_below(ax, handles)
    if texts:
        longest = max(paths.values(), key=len)
        others = [p for p in paths.values() if p is not longest]
        avoid = np.vstack([*_lines(start, paths.values()), start, *others])
        from matplotlib.patheffects import withStroke

        label_points(ax, [(float(x), float(y)) for x, y in longest], texts, avoid)
        for note in ax.texts:
            note.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    return ax


def _points(values: Any, what: str) -> Floats:
    points = check_matrix(values, what)
    if points.shape[1] != 2:
        raise DataError(
            f"{what} has {points.shape[1]} features, the picture has two axes",
            remedy="take two features, or project all rows and the centers first",
        )
    return points


def _paths(counterfactuals: Any) -> dict[str, Floats]:
    if not isinstance(counterfactuals, Mapping):
        raise DataError(
            f"counterfactuals is {kind_of(counterfactuals)}",
            remedy="give a mapping: {'all features': points}",
        )
    if not 1 <= len(counterfactuals) <= len(SHAPES):
        raise DataError(
            f"{len(counterfactuals)} series of counterfactuals",
            remedy=f"give between 1 and {len(SHAPES)}",
        )
    return {str(k): _points(v, f"series {k!r}") for k, v in counterfactuals.items()}


def _texts(levels: Sequence[str] | None, paths: Mapping[str, Floats]) -> list[str]:
    longest = max(len(p) for p in paths.values())
    texts = [] if levels is None else [plain(t) for t in levels]
    if texts and len(texts) != longest:
        raise DataError(
            f"{len(texts)} levels for {longest} points", remedy="give one per point of a series"
        )
    return texts


def _frame(points: Floats) -> tuple[Floats, Floats]:
    """Return the lower left and the upper right corner, with room on all sides."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = ROOM * float(max((high - low).max(), 1e-9))
    return low - room, high + room


def _regions(ax: Axes, model: Any, low: Floats, high: Floats) -> int:
    """Fill the clusters and draw their boundaries; return how many are seen."""
    from matplotlib.colors import ListedColormap, to_rgb

    x, y = (np.linspace(low[j], high[j], GRID) for j in (0, 1))
    grid = np.column_stack([axis.ravel() for axis in np.meshgrid(x, y)])
    labels = np.asarray(model.predict(grid)).reshape(GRID, GRID)
    seen, index = np.unique(labels, return_inverse=True)
    index = index.reshape(GRID, GRID)
    light = [
        tuple(1.0 - 0.2 * (1.0 - c) for c in to_rgb(MANY_COLOURS[int(k) % len(MANY_COLOURS)]))
        for k in seen
    ]
    ax.pcolormesh(
        *(x, y, index),
        cmap=ListedColormap(light),
        vmin=-0.5,
        vmax=seen.size - 0.5,
        shading="nearest",
        rasterized=True,
        zorder=0,
    )
    # one line per cluster but the last: every boundary has two sides
    for k in range(seen.size - 1):
        ax.contour(x, y, index == k, levels=[0.5], colors=[QUIET], linewidths=1.1, zorder=1)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])
    return int(seen.size)


def _rows(ax: Axes, model: Any, rows: Floats) -> None:
    labels = np.asarray(model.predict(rows))
    colours = np.array(MANY_COLOURS)[labels % len(MANY_COLOURS)]
    size = float(np.clip(4000 / len(rows), 5, 20))
    ax.scatter(rows[:, 0], rows[:, 1], s=size, c=colours, alpha=0.55, linewidths=0, zorder=2)


def _series(ax: Axes, start: Floats, paths: Mapping[str, Floats]) -> list[Any]:
    handles = []
    for (label, points), colour, shape in zip(paths.items(), ORDER, SHAPES, strict=False):
        line = np.vstack([start, points])
        ax.plot(*line.T, color=COLOURS[colour], linewidth=1.6, zorder=3)
        (marks,) = ax.plot(
            *points.T,
            linestyle="none",
            marker=shape,
            color=COLOURS[colour],
            markeredgecolor="white",
            markersize=8.5,
            label=plain(label),
            zorder=4,
        )
        handles.append(marks)
    ax.plot(*start.T, marker="X", color=RED, markeredgecolor="white", markersize=12, zorder=5)
    return handles


def _lines(start: Floats, paths: Any) -> list[Floats]:
    """Return points along the lines of all series: labels should not cover them."""
    steps = np.linspace(0.0, 1.0, 24)[:, None]
    drawn = []
    for points in paths:
        line = np.vstack([start, points])
        drawn += [a + steps * (b - a) for a, b in pairwise(line)]
    return drawn


# Picture of counterfactuals of images.

# Side of one image, in inches.
SIDE = 1.35


def plot_image_counterfactuals(
    factual: Any,
    counterfactuals: Mapping[str, Any],
    *,
    centers: Mapping[str, Any] | None = None,
    shape: tuple[int, int] | None = None,
    title: str = "What would have to change",
    figure: Figure | None = None,
) -> Figure:
    r"""Draw images of centers, factual and counterfactuals, and what was changed.

    .. math:: \text{third row:}\quad z_j - y_j

    First row: the given centers, then the factual. Second row: counterfactuals, for example
    of growing plausibility, in the range of the first row. Third row: their difference to the
    factual, red where a pixel has to gain intensity and blue where it has to lose it; all
    differences share one scale.

    Parameters
    ----------
    factual : array-like (h * w,)
        The image that is explained, row by row.
    counterfactuals : mapping of str to array (h * w,)
        Images by label.
    centers : mapping of str to array (h * w,), optional
        Centers of the clusters, by label.
    shape : (int, int), optional
        Height and width in pixels; square by default.
    title : str
        Title.
    figure : Figure, optional
        Where to draw; a new one by default.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    DataError
        Images whose sizes do not fit, no counterfactual.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import numpy as np
    >>> from optfair.methods.cluster_counterfactuals.plots import plot_image_counterfactuals
    >>> figure = plot_image_counterfactuals(np.zeros(4), {"ε = 0": np.eye(2).ravel()})
    >>> len(figure.axes)
    4

    References
    ----------
    Vardakas, Karra, Pitoura, Likas: Counterfactual Explanations for k-Means and Gaussian
    Clustering, figure 4.
    """
    y = check_matrix([factual], "factual")[0]
    side = _shape(shape, y.size)
    shown = _images(counterfactuals, y.size, "counterfactuals")
    above = {**_images(centers or {}, y.size, "centers"), "factual": y}
    if not shown:
        raise DataError("there are no counterfactuals to draw", remedy="give at least one")
    width = max(len(above), len(shown))
    figure = figure or new_figure(SIDE * width + 0.7, 3 * (SIDE + 0.26) + 0.45)
    grid = figure.add_gridspec(
        3, width + 1, width_ratios=[1.0] * width + [0.07], hspace=0.12, wspace=0.06
    )
    # a counterfactual may leave the range of the images; there it is drawn as their end
    given = np.concatenate(list(above.values()))
    ink = {"cmap": "gray_r", "vmin": float(given.min()), "vmax": float(given.max())}
    differences = {label: image - y for label, image in shown.items()}
    largest = max(float(np.abs(v).max()) for v in differences.values()) or 1.0
    first: list[Axes] = []
    for i, (label, image) in enumerate(above.items()):
        ax = figure.add_subplot(grid[0, i])
        _draw(ax, image.reshape(side), label, **ink)
        first.append(ax)
    for i, (label, image) in enumerate(shown.items()):
        ax = figure.add_subplot(grid[1, i])
        _draw(ax, image.reshape(side), label, **ink)
        ax = figure.add_subplot(grid[2, i])
        moved = float(np.linalg.norm(differences[label]))
        image, words = differences[label].reshape(side), f"distance {moved:.3g}"
        mesh = _draw(ax, image, words, cmap="RdBu_r", vmin=-largest, vmax=largest)
    colour_bar(mesh, cax=figure.add_subplot(grid[2, width]))
    headline(figure, title)
    return figure


def _shape(shape: tuple[int, int] | None, size: int) -> tuple[int, int]:
    side = round(size**0.5)
    height, width = (side, side) if shape is None else (int(shape[0]), int(shape[1]))
    if height * width != size:
        raise DataError(
            f"{size} pixels do not make an image of {height} x {width}",
            remedy="give shape=(height, width)",
        )
    return height, width


def _images(given: Mapping[str, Any], size: int, what: str) -> dict[str, Floats]:
    if not isinstance(given, Mapping):
        raise DataError(f"{what} is {kind_of(given)}", remedy="give a mapping of label to image")
    images = {}
    for label, values in given.items():
        image = check_matrix([np.ravel(values)], f"image {label!r}")[0]
        if image.size != size:
            raise DataError(
                f"image {label!r} has {image.size} pixels, the factual has {size}",
                remedy="give images of one size",
            )
        images[str(label)] = image
    return images


def _draw(ax: Axes, image: Floats, label: str, **options: Any) -> Any:
    mesh = ax.imshow(image, interpolation="nearest", **options)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_color("#CFCFCF")
    ax.set_title(plain(label), fontsize=9.5, color=QUIET, pad=3)
    return mesh


# Clusters from which the numbers in the cells would touch.
MOST_NUMBERS = 14
# Points from which a violin is drawn; fewer are drawn as they are.
FEW = 8


def plot_separability(
    separability: Any,
    *,
    statistic: Any = "median",
    names: Any = None,
    title: str = "How far apart the clusters are",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the distances of rows of each cluster to each other cluster as a heat map.

    .. math:: S_{st} = \operatorname{median}_{i \in s}\; \min \{ \|z - x_i\| : z \in t \}

    A cell is dark where a typical row of the cluster at the left is close to the one at the
    bottom: few changes would move it there. The matrix is not symmetric. A cross stands where
    no row can reach the cluster.

    Parameters
    ----------
    separability : ClusterSeparability
        What `ClusterExplainer.separability` returned.
    statistic : {"median", "mean", "min", "max"} or float
        Statistic of the distances, or a quantile between 0 and 1.
    names : sequence of str, optional
        Names of the clusters; their numbers by default.
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
        Something else than distances of clusters, names that do not fit, an unknown statistic.
    """
    if not hasattr(separability, "matrix"):
        raise DataError(
            f"separability is {kind_of(separability)}",
            remedy="give what the separability() of an explainer returns",
        )
    matrix = np.asarray(separability.matrix(statistic), dtype=float)
    K = matrix.shape[0]
    labels = _names(names, K)
    longest = max(map(len, labels))
    ax = new_axes(ax, 2.5 + 0.52 * K + 0.1 * longest, 1.8 + 0.46 * K + 0.07 * longest)
    from matplotlib.colors import Normalize

    known = matrix[np.isfinite(matrix)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    scale = Normalize(low, high if high > low else low + 1.0)
    mesh = ax.imshow(np.ma.masked_invalid(matrix), cmap="YlGnBu_r", norm=scale, aspect="equal")
    for s in range(K):
        for t in range(K):
            if s == t:
                continue
            if not np.isfinite(matrix[s, t]):
                in_cell(ax, s, t, "×", fontsize=10, color=QUIET)
            elif K <= MOST_NUMBERS:
                dark = _lightness(mesh.cmap(scale(matrix[s, t]))) <= 0.5
                in_cell(ax, s, t, _short(matrix[s, t]), strong=dark, fontsize=8.5)
    turned: dict[str, Any] = (
        {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if longest > 3 else {}
    )
    ax.set_xticks(range(K), labels, **turned)
    ax.set_yticks(range(K), labels)
    ax.set_xlabel("cluster to reach")
    ax.set_ylabel("cluster of the row")
    word = statistic if isinstance(statistic, str) else f"{statistic:.0%} quantile"
    colour_bar(mesh, f"{separability.units}, {word}", ax=ax, shrink=0.8, pad=0.03)
    tidy(ax, title, "distance of rows to their counterfactuals", left=True, bottom=True)
    ax.tick_params(length=0)
    return ax


def plot_distances(
    distances: Mapping[str, Any],
    *,
    units: str = "distance to the factual",
    log: bool = False,
    note: str = "",
    title: str = "Distances of counterfactuals",
    ax: Axes | None = None,
) -> Axes:
    """Draw distributions of distances side by side, as violins.

    A violin has the median as a dot and the middle half as a bar. Fewer than 8 distances are
    drawn as points. Distances that are NaN or infinite (no counterfactual) are left out and
    counted below the label.

    Parameters
    ----------
    distances : mapping of str to array (n,)
        Distances by label, for example of methods, masks or pairs of clusters.
    units : str
        What the axis shows.
    log : bool
        Whether the axis is logarithmic; zeros are then left out.
    note : str
        Second line of the title.
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
        Nothing to draw.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.methods.cluster_counterfactuals.plots import plot_distances
    >>> ax = plot_distances({"ours": [1.0, 2.0, 2.5], "theirs": [2.0, 3.0, 3.5]})
    >>> [t.get_text() for t in ax.get_xticklabels()]
    ['ours', 'theirs']
    """
    check_mapping(distances, "distances")
    given = {str(k): np.asarray(v, dtype=float).ravel() for k, v in distances.items()}
    if not any(np.isfinite(v).any() for v in given.values()):
        raise DataError("there are no distances to draw", remedy="give at least one finite number")
    ax = new_axes(ax, 1.6 + 1.15 * len(given), 4.2)
    labels = []
    for i, (label, values) in enumerate(given.items()):
        kept = values[np.isfinite(values) & ((values > 0) | (not log))]
        _violin(ax, i, kept, COLOURS[i % len(COLOURS)], log)
        missing = values.size - kept.size
        lines = map(plain, wrap(plain(label).replace(r"\$", "$"), 15))
        labels.append("\n".join(lines) + (f"\n({missing} left out)" if missing else ""))
    ax.set_xticks(range(len(given)), labels)
    ax.set_xlim(-0.6, len(given) - 0.4)
    if log:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    ax.set_ylabel(units)
    tidy(ax, title, note, grid="y")
    ax.tick_params(axis="x", length=0)
    return ax


def _names(names: Any, count: int) -> list[str]:
    if names is None:
        return [str(k) for k in range(count)]
    labels = [plain(n, 16) for n in names]
    if len(labels) != count:
        raise DataError(f"{len(labels)} names for {count} clusters", remedy="give one per cluster")
    return labels


def _lightness(colour: Any) -> float:
    red, green, blue = colour[:3]
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


def _short(number: float) -> str:
    return f"{number:.3g}" if abs(number) < 1000 else f"{number:,.0f}"


def _violin(ax: Axes, at: int, values: Floats, colour: str, log: bool) -> None:
    if values.size >= FEW and np.ptp(values) > 0:
        height, density = _density(np.log(values) if log else values)
        width = 0.42 * density / density.max()
        height = np.exp(height) if log else height
        ax.fill_betweenx(
            height, at - width, at + width, color=colour, alpha=0.35, linewidth=0, zorder=2
        )
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        ax.plot([at, at], [low, high], color=colour, linewidth=5, solid_capstyle="butt", zorder=3)
        ax.plot(at, middle, "o", color="white", markeredgecolor=colour, markersize=6, zorder=4)
    elif values.size:
        ax.plot(
            np.full(values.size, at), values, "o", color=colour, alpha=0.6, markersize=5, zorder=3
        )


def _density(values: Floats) -> tuple[Floats, Floats]:
    """Return heights between the extremes and a Gaussian estimate of the density there."""
    height = np.linspace(values.min(), values.max(), 160)
    spread = min(values.std(), np.subtract(*np.quantile(values, [0.75, 0.25])) / 1.34)
    # Silverman's rule; the middle half may be one point
    width = 0.9 * (spread or values.std()) * values.size**-0.2
    density = np.exp(-0.5 * ((height[:, None] - values) / width) ** 2).sum(axis=1)
    return height, density
