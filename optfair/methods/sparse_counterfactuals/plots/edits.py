"""Pictures of edits: which cells change and in which direction, and how many in each row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError, NotInstalled
from optfair.methods.sparse_counterfactuals.choices import Cells
from optfair.methods.sparse_counterfactuals.plots.changed_cells import (
    LOWER,
    OTHER,
    RAISED,
    Directions,
    edit_directions,
)
from optfair.plots.axes import COLOURS, FAINT, INK, QUIET, legend_below, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_edits", "plot_row_edits"]

# Blue falls, vermilion rises, green is another category; the symbols say it without colours.
FILLS = ("#F1F1F1", COLOURS[0], COLOURS[5], COLOURS[2])
SYMBOLS = ("", "▼", "▲", "◆")
WORDS = ("unchanged", "lower", "higher", "other category")
# Rows up to which cells have room for symbols and rows for labels.
FEW = 45
# Inches: a cell's height, what stands above and below a panel, the least and the greatest width.
CELL, HEAD, FOOT = 0.27, 0.42, 0.95
NARROW, WIDE = 6.4, 11.0
# Inches below the axes: with numbers of rows, and for each letter of labels that stand upright.
FLAT, LETTER = 0.5, 0.07


def plot_edits(
    factuals: Any,
    edited: Mapping[str, Any],
    *,
    features: Any = None,
    rows: Any = None,
    title: str = "What has to change",
    figure: Figure | None = None,
) -> Figure:
    """Draw the edits of every cell with their direction, one panel per table.

    A column of the picture is a row of the data; at the right stand the edits of each feature.
    With few rows, symbols in the cells repeat what the colours say.

    Parameters
    ----------
    factuals : array or data frame (n, d)
        Rows as they are.
    edited : mapping of str to array or data frame (n, d)
        The same rows edited, by label: for example the counterfactuals of each row, and what
        is left of them.
    features : sequence of str, optional
        Names of the features of arrays.
    rows : sequence, optional
        Labels of the rows, shown where there are few.
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
        Tables that do not fit the factuals, no table, names or labels of another number.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.methods.sparse_counterfactuals.plots.edits import plot_edits
    >>> figure = plot_edits([[1.0, 2.0]], {"before": [[2.0, 1.0]], "after": [[2.0, 2.0]]})
    >>> len(figure.axes)
    2
    """
    tables = _tables(factuals, edited)
    first = next(iter(edited.values()))
    names = _named(features, Cells.of(factuals, first).names)
    n, d = next(iter(tables.values())).shape
    labels = None if rows is None else [plain(r, 12) for r in rows]
    if labels is not None and len(labels) != n:
        raise DataError(f"{len(labels)} labels for {n} rows", remedy="give one per row")
    if figure is None:
        width = float(np.clip(2.6 + 0.27 * n, NARROW, WIDE))
        height = 0.45 + len(tables) * (HEAD + CELL * d) + FOOT + _below(labels, n) - FLAT
        figure = _new_figure(width, height)
    axes = figure.subplots(len(tables), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, directions) in zip(axes, tables.items(), strict=True):
        _draw(ax, directions, names)
        edits = int((directions > 0).sum())
        ax.set_title(
            f"{plain(label)}: {edits} edit{'' if edits == 1 else 's'}, {edits / n:.1f} per row",
            loc="left",
            fontsize=10.5,
            color=INK,
            pad=5,
        )
    _row_labels(axes[-1], labels, n)
    figure.suptitle(plain(title, 90), x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)
    seen = [k for k in (LOWER, RAISED, OTHER) if any((t == k).any() for t in tables.values())]
    legend_below(axes[-1], _handles(seen), inches=_below(labels, n))
    return figure


def plot_row_edits(
    factuals: Any,
    original: Any,
    refined: Any,
    *,
    rows: Any = None,
    title: str = "Edits that remain in each row",
    ax: Axes | None = None,
) -> Axes:
    """Draw how many edits remain in each row, stacked on those that turned out not to be needed.

    Parameters
    ----------
    factuals, original, refined : arrays or data frames (n, d)
        Rows as they are, their counterfactuals and the refined rows, aligned.
    rows : sequence, optional
        Labels of the rows, shown where there are few.
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
        Tables that do not fit, labels of another number, counterfactuals equal to the factuals.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.methods.sparse_counterfactuals.plots.edits import plot_row_edits
    >>> ax = plot_row_edits([[1.0, 2.0]], [[2.0, 1.0]], [[2.0, 2.0]])
    >>> [patch.get_height() for patch in ax.patches]
    [np.int64(1), np.int64(1)]
    """
    before = Cells.of(factuals, original).differ.sum(axis=1)
    after = Cells.of(factuals, refined).differ.sum(axis=1)
    n = before.size
    labels = None if rows is None else [plain(r, 12) for r in rows]
    if labels is not None and len(labels) != n:
        raise DataError(f"{len(labels)} labels for {n} rows", remedy="give one per row")
    if not before.any():
        raise DataError(
            "the counterfactuals are the factuals",
            remedy="give counterfactuals, aligned with the factual rows",
        )
    width = float(np.clip(2.2 + 0.24 * n, NARROW, WIDE))
    ax = new_axes(ax, width, 3.1 + _below(labels, n))
    from matplotlib.ticker import MaxNLocator  # new_axes has said so where it is missing

    spared = np.maximum(before - after, 0)
    gap = 0.82 if n <= FEW else 1.0
    at = np.arange(n)
    kept = ax.bar(at, after, width=gap, color=COLOURS[0], label="edits that remain")
    left = ax.bar(*(at, spared), width=gap, bottom=after, color="#C9DCEA", label="edits not needed")
    more = np.flatnonzero(after > before)
    handles: list[Any] = [kept, left]
    if more.size:
        # a coupling may give a row another counterfactual than its own
        marks = ax.scatter(
            *(at[more], before[more]),
            marker="_",
            color=INK,
            linewidth=2.0,
            s=60,
            label="edits of its own counterfactual",
        )
        handles.append(marks)
    whole, rest = int(before.sum()), int(after.sum())
    said = f"{rest} of {whole} edits remain, {rest / whole:.0%}"
    tidy(ax, title, said if rest <= whole else f"{rest} edits, the counterfactuals have {whole}")
    ax.set_ylabel("edits", color=INK)
    ax.set_xlim(-0.6, n - 0.4)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_axisbelow(True)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)
    _row_labels(ax, labels, n)
    legend_below(ax, handles, inches=_below(labels, n))
    return ax


def _tables(factuals: Any, edited: Any) -> dict[str, Directions]:
    if not isinstance(edited, Mapping) or not edited:
        raise DataError(
            "there are no edited rows to draw",
            remedy='give a mapping of label to rows: {"counterfactuals": r, "refined": z}',
        )
    return {str(label): edit_directions(factuals, rows) for label, rows in edited.items()}


def _named(features: Any, names: tuple[str, ...]) -> list[str]:
    given = names if features is None else tuple(map(str, features))
    if len(given) != len(names):
        raise DataError(f"{len(given)} names for {len(names)} features", remedy="give one each")
    return [plain(name, 28) for name in given]


def _new_figure(width: float, height: float) -> Figure:
    try:
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise NotInstalled(
            "matplotlib is not installed", str(e), 'pip install "optfair[plot]"'
        ) from None
    return plt.figure(figsize=(width, height), layout="constrained")


def _draw(ax: Axes, directions: Directions, names: list[str]) -> None:
    from matplotlib.colors import ListedColormap

    n, d = directions.shape
    ax.imshow(
        directions.T,
        cmap=ListedColormap(FILLS),
        vmin=-0.5,
        vmax=3.5,
        aspect="auto",
        interpolation="nearest",
    )
    # white lines between the cells, thinner where there are many
    thin = 1.4 if n <= FEW else 0.5
    ax.set_xticks(np.arange(n + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(d + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=thin)
    ax.tick_params(which="both", length=0, labelsize=9.5, colors=INK)
    ax.set_yticks(np.arange(d), names)
    for side in ax.spines.values():
        side.set_visible(False)
    if n <= FEW:
        for i, j in np.argwhere(directions > 0):
            symbol = SYMBOLS[directions[i, j]]
            ax.text(i, j, symbol, ha="center", va="center", fontsize=6.5, color="white")
    ax.annotate(
        "edits",
        (1.0, 1.0),
        xycoords="axes fraction",
        xytext=(6, 5),
        textcoords="offset points",
        fontsize=9.5,
        color=QUIET,
    )
    for j, count in enumerate((directions > 0).sum(axis=0)):
        ax.annotate(
            f"{count}",
            (1.0, j),
            xycoords=ax.get_yaxis_transform(),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9.5,
            color=QUIET if count else "#BBBBBB",
        )


def _row_labels(ax: Axes, labels: list[str] | None, n: int) -> None:
    if n <= FEW:
        ax.set_xticks(np.arange(n), labels if labels is not None else list(map(str, range(n))))
        if _below(labels, n) > FLAT:
            ax.tick_params(axis="x", rotation=90)
    ax.set_xlabel("row", color=INK)


def _below(labels: list[str] | None, n: int) -> float:
    """Return the inches that the labels of the rows take below the axes."""
    longest = max(map(len, labels)) if labels is not None and n <= FEW else 0
    return FLAT + LETTER * longest if longest > 3 else FLAT


def _handles(seen: list[int]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D(
            *([], []),
            linestyle="none",
            marker={LOWER: "v", RAISED: "^", OTHER: "D"}[k],
            color=FILLS[k],
            markersize=7,
            label=WORDS[k],
        )
        for k in seen
    ]
