"""Picture of the categories in each cluster of a mixture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, nearest
from optfair.plots.axes import INK, ON_LIGHT, QUIET, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

__all__ = ["plot_category_profiles"]

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
    >>> from optfair.methods.fair_mixtures.plots.mixture_profile import plot_category_profiles
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
                f"a {type(model).__name__} has no categories to draw",
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
        ax.text(
            j,
            i,
            f"{100 * value:.0f}",
            ha="center",
            va="center",
            fontsize=8.5,
            fontweight="bold" if j == 0 else "normal",
            color="white" if abs(change[i, j]) > 0.6 * STRONGEST else ON_LIGHT,
        )
    _frame(ax, blocks, labels, weights)
    tidy(ax, title, "per cent of the rows; colours: difference to all rows", left=True, bottom=True)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.6, pad=0.02, extend=_ends(change))
    bar.set_label("difference to all rows", fontsize=9)
    bar.set_ticks([-STRONGEST, 0.0, STRONGEST], labels=["-50", "0", "+50"])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5)
    return ax


def _blocks(model: Any, columns: Any) -> list[tuple[str, NDArray[Any], Floats]]:
    """Return (name, categories, probabilities (K, categories)) of the columns to draw."""
    c = model.columns_
    places = list(c.categorical)
    if not places:
        raise DataError(
            "the mixture has no categorical columns",
            remedy="name them in categorical= of the fit",
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
        range(weights.size + 1),
        ["all\nrows", *(f"{k}\n{w:.0%}" for k, w in enumerate(weights))],
    )
    ax.tick_params(length=0)
    ax.set_xlabel("cluster, with its weight", color=QUIET)
    ax.set_yticks(range(len(labels)), labels)
    ax.axvline(0.5, color=INK, lw=1.2)
    start = 0
    transform = ax.get_yaxis_transform()
    longest = max(map(len, labels))
    for name, values, _ in blocks:
        if start:
            ax.axhline(start - 0.5, color=INK, lw=0.8)
        ax.annotate(
            plain(name, LONGEST),
            (0.0, start),
            xycoords=transform,
            xytext=(-14 - 5.4 * longest, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=9.5,
            fontweight="bold",
            color=INK,
        )
        start += values.size
