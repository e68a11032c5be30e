"""Pictures of the distances between clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.plots.axes import COLOURS, FAINT, INK, ON_LIGHT, QUIET, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

__all__ = ["plot_distances", "plot_separability"]

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
        Names that do not fit, an unknown statistic.
    """
    matrix = np.asarray(separability.matrix(statistic), dtype=float)
    K = matrix.shape[0]
    labels = _names(names, K)
    ax = new_axes(ax, 2.6 + 0.52 * K, 1.9 + 0.46 * K)
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
                ax.text(t, s, "×", ha="center", va="center", fontsize=10, color=QUIET)
            elif K <= MOST_NUMBERS:
                light = _lightness(mesh.cmap(scale(matrix[s, t]))) > 0.5
                ink = ON_LIGHT if light else "white"
                text = _short(matrix[s, t])
                ax.text(t, s, text, ha="center", va="center", fontsize=8.5, color=ink)
    ax.set_xticks(range(K), labels, rotation=45 if max(map(len, labels)) > 3 else 0)
    ax.set_yticks(range(K), labels)
    ax.set_xlabel("cluster to reach")
    ax.set_ylabel("cluster of the row")
    word = statistic if isinstance(statistic, str) else f"{statistic:.0%} quantile"
    bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.8, pad=0.03)
    bar.set_label(f"{separability.units}, {word}", fontsize=9.5, color=INK)
    bar.ax.tick_params(labelsize=9, colors=INK, length=2)
    bar.outline.set_visible(False)
    tidy(
        ax,
        title,
        "distance of rows to their counterfactuals",
        left=True,
        bottom=True,
    )
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
    >>> from optfair.methods.cluster_counterfactuals.plots.separability import plot_distances
    >>> ax = plot_distances({"ours": [1.0, 2.0, 2.5], "theirs": [2.0, 3.0, 3.5]})
    >>> [t.get_text() for t in ax.get_xticklabels()]
    ['ours', 'theirs']
    """
    given = {str(k): np.asarray(v, dtype=float).ravel() for k, v in distances.items()}
    if not any(np.isfinite(v).any() for v in given.values()):
        raise DataError("there are no distances to draw", remedy="give at least one finite number")
    ax = new_axes(ax, 1.6 + 1.15 * len(given), 4.2)
    labels = []
    for i, (label, values) in enumerate(given.items()):
        kept = values[np.isfinite(values) & ((values > 0) | (not log))]
        _violin(ax, i, kept, COLOURS[i % len(COLOURS)], log)
        missing = values.size - kept.size
        labels.append(plain(label) + (f"\n({missing} left out)" if missing else ""))
    ax.set_xticks(range(len(given)), labels)
    ax.set_xlim(-0.6, len(given) - 0.4)
    if log:
        ax.set_yscale("log")
    else:
        ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
    ax.set_ylabel(units)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    tidy(ax, title, note)
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
