"""Picture of what a map does to each feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError
from optfair.plots.axes import INK, ON_LIGHT, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_map"]

# Numbers are written into the cells of up to so many features.
MOST_NUMBERS = 16
# Changes below this are what a solver leaves of zero.
STILL = 5e-4
# Standard deviations from which on colours do not grow: one odd feature would pale the others.
STRONGEST = 1.0


def plot_map(
    found: Any,
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
    found : TransportMap
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
    if not hasattr(found, "matrix") or not hasattr(found, "offset"):
        raise DataError(
            f"a {type(found).__name__} is not an affine map",
            remedy="give what problem.map(solution) returns",
        )
    A, mean = np.asarray(found.matrix), np.asarray(found.mean)
    shift = found.transform(mean[None])[0] - mean
    s = np.sqrt(np.diag(found.covariance)) if standardized else np.ones(mean.size)
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
            strong = abs(change[i, j]) > 0.6 * limit
            if abs(change[i, j]) >= STILL or j == i + 1:
                ax.text(
                    j,
                    i,
                    f"{value:+.2f}" if j == 0 else f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="white" if strong else ON_LIGHT,
                )
    names = [plain(name, 18) for name in found.features]
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
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, pad=0.02, extend=ends)
    bar.set_label("difference to staying", fontsize=9)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5)
    return ax
