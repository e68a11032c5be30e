"""Picture of what clusters are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError
from optfair.methods.fair_clustering.metrics.clustering import composition
from optfair.numbers import check_weights, encode_groups
from optfair.plots.axes import COLOURS, INK, ON_LIGHT, QUIET, legend_below, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_composition"]

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
        ax.annotate(
            text,
            (1, k),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=QUIET,
        )
    legend_below(
        ax,
        [
            Patch(color=COLOURS[g], label=f"{plain(name)} ({population[g]:.0%} of all)")
            for g, name in enumerate(names)
        ],
    )
