"""Pictures of edits: which cells change, how many in each row, and what a budget of them buys."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.changed_cells import (
    LOWER,
    OTHER,
    RAISED,
    Directions,
    edit_directions,
    row_labels,
)
from optfair.methods.sparse_counterfactuals.metrics import DIVERGENCES
from optfair.methods.sparse_counterfactuals.tables import Cells
from optfair.numbers import Floats, check_mapping, check_matrix, check_number
from optfair.plots import (
    COLOURS,
    INK,
    QUIET,
    beside,
    headline,
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


@in_one_order("factuals", "edited")
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
    >>> from optfair.methods.sparse_counterfactuals.plots import plot_edits
    >>> figure = plot_edits([[1.0, 2.0]], {"before": [[2.0, 1.0]], "after": [[2.0, 2.0]]})
    >>> len(figure.axes)
    2
    """
    tables = _tables(factuals, edited)
    first = next(iter(edited.values()))
    names = _named(features, Cells.of(factuals, first).names)
    n, d = next(iter(tables.values())).shape
    labels = None if rows is None else [plain(r, 12) for r in row_labels(rows, n)]
    if figure is None:
        width = float(np.clip(2.6 + 0.27 * n, NARROW, WIDE))
        height = 0.45 + len(tables) * (HEAD + CELL * d) + FOOT + _below(labels, n) - FLAT
        figure = new_figure(width, height)
    axes = figure.subplots(len(tables), 1, sharex=True, squeeze=False)[:, 0]
    room = int(np.clip(9 * figure.get_figwidth() - 36, 12, 40))  # letters beside the counts
    for ax, (label, directions) in zip(axes, tables.items(), strict=True):
        _draw(ax, directions, names)
        edits = int((directions > 0).sum())
        ax.set_title(
            f"{plain(label, room)}: {edits} edit{'' if edits == 1 else 's'}, {edits / n:.1f} per row",
            loc="left",
            fontsize=10.5,
            color=INK,
            pad=5,
        )
    _row_labels(axes[-1], labels, n)
    headline(figure, title)
    seen = [k for k in (LOWER, RAISED, OTHER) if any((t == k).any() for t in tables.values())]
    legend_below(axes[-1], _handles(seen), inches=_below(labels, n))
    return figure


@in_one_order("factuals", "original", "refined")
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
    >>> from optfair.methods.sparse_counterfactuals.plots import plot_row_edits
    >>> ax = plot_row_edits([[1.0, 2.0]], [[2.0, 1.0]], [[2.0, 2.0]])
    >>> [patch.get_height() for patch in ax.patches]
    [np.int64(1), np.int64(1)]
    """
    before = Cells.of(factuals, original).differ.sum(axis=1)
    after = Cells.of(factuals, refined).differ.sum(axis=1)
    n = before.size
    labels = None if rows is None else [plain(r, 12) for r in row_labels(rows, n)]
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
    note = said if rest <= whole else f"{rest} edits, the counterfactuals have {whole}"
    tidy(ax, title, note, grid="y")
    ax.set_ylabel("edits", color=INK)
    ax.set_xlim(-0.6, n - 0.4)
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
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
            in_cell(ax, j, i, SYMBOLS[directions[i, j]], strong=True, fontsize=6.5)
    beside(ax, "edits", (1.0, 1.0), (6, 5), xycoords="axes fraction")
    row: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "va": "center"}
    for j, count in enumerate((directions > 0).sum(axis=0)):
        beside(ax, f"{count}", (1.0, j), (6, 0), color=QUIET if count else "#BBBBBB", **row)


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


# Vermilion first: the method that a picture is about stands out from the baselines.
ORDER = (5, 0, 2, 3, 1, 4, 6)
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (3, 1.2)),
    (0, (1, 1)),
    "-.",
    (0, (6, 2, 1, 2)),
    (0, (2, 2)),
)
NAMES = {
    "ot": "transport distance",
    "mmd": "MMD",
    "mean": "mean difference",
    "median": "median difference",
}
# Two-sided 99.9 % point of the normal distribution, as the paper's bands.
BAND = 3.2905
# Points up to which each is marked.
DOTS = 25
# Width of the first curve.
FIRST = 3.2


@dataclass(frozen=True)
class _Curve:
    label: str
    edits: Floats
    values: Floats
    spread: Floats | None


def plot_effect(
    curves: Mapping[str, Any],
    *,
    optimum: Any = None,
    divergence: str = "mean",
    levels: Any = (0.8,),
    most_edits: int | None = None,
    title: str = "What a budget of edits buys",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw the divergence from the target that is left after each number of edits.

    .. math:: C \mapsto D(f(z_C), y^*)

    Steps, as edits are whole; points joined by lines where numbers of edits are left out. A
    method that was run several times is drawn by its mean, with a band for its 99.9 %
    confidence interval. No curve lies below an optimum of the same D and the same values;
    curves with other values may.

    Parameters
    ----------
    curves : mapping of str to SparseCounterfactuals, array (L + 1,), array (R, L + 1), or pair
        By label, at most seven: a fitted estimator (anything with ``divergences(name)``); the
        divergences after 0, 1, ..., L edits; those of R runs; or numbers of edits with their
        divergences. The first is the one the picture is about.
    optimum : pair (edits, divergences), optional
        Least divergence that so many edits can reach with the values of the first curve.
    divergence : {"ot", "mmd", "mean", "median"}
        D, asked of estimators and written on the axis.
    levels : sequence of float
        Counterfactual effects to mark, as shares of the divergence without edits.
    most_edits : int, optional
        Where the axis ends.
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
        No curve or too many, entries that are negative or not finite, pairs of different
        lengths, curves that do not start together where effects are marked.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.methods.sparse_counterfactuals.plots import plot_effect
    >>> ax = plot_effect({"COLA": [0.4, 0.2, 0.0]}, optimum=([0, 1, 2], [0.4, 0.1, 0.0]))
    >>> ax.get_ylabel()
    'mean difference to the target'

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, figures 3 and 4.
    """
    if divergence not in DIVERGENCES:
        raise DataError(
            f"unknown divergence {divergence!r}", remedy=f"one of {', '.join(DIVERGENCES)}"
        )
    if not 1 <= len(check_mapping(curves, "curves")) <= len(ORDER):
        remedy = f"give between 1 and {len(ORDER)}, by label"
        raise DataError(f"{len(curves)} curves", remedy=remedy)
    drawn = [_curve(str(label), given, divergence) for label, given in curves.items()]
    best = None if optimum is None else _pair("optimum", optimum)
    marks = [check_number(v, "level", positive=True, most=1.0) for v in levels]
    begin = drawn[0].values[0] if drawn[0].edits[0] == 0 else None
    ax = new_axes(ax, 7.2, 4.4)
    if best is not None:
        _steps(ax, best, INK, "-", 1.8, 5)
    for i in reversed(range(len(drawn))):
        # the first is broad and below, so that a curve that coincides with it is seen on it
        width = FIRST if i == 0 else 1.6
        _steps(ax, drawn[i], COLOURS[ORDER[i]], DASHES[i], width, 3 if i == 0 else 4)
    everything = [*drawn, *([best] if best is not None else [])]
    last = most_edits if most_edits is not None else max(float(c.edits[-1]) for c in everything)
    ax.set_xlim(0, last or 1.0)
    top = max(float(c.values[c.edits <= last].max(initial=0.0)) for c in everything)
    ax.set_ylim(0, 1.06 * top if top > 0 else 1.0)
    _marks(ax, marks, begin)
    note = (
        "black: least possible with the values of the first"
        if best is not None
        else "lower is better"
    )
    if any(c.spread is not None for c in drawn):
        note += "; bands: 99.9 % confidence"
    tidy(ax, title, note, grid="y")
    ax.set_xlabel("edits", color=INK)
    ax.set_ylabel(f"{NAMES[divergence]} to the target", color=INK)
    _legend(ax, drawn, best)
    return ax


def _curve(label: str, given: Any, divergence: str) -> _Curve:
    if hasattr(given, "divergences"):
        given = np.asarray(given.divergences(divergence))
    if isinstance(given, tuple) and len(given) == 2:
        return _pair(label, given)
    table: Any = None
    with suppress(TypeError, ValueError):
        table = np.atleast_2d(np.asarray(given, dtype=float))
    if table is None or table.ndim != 2:
        raise DataError(
            f"curve {label!r} is no row of numbers",
            remedy="give the divergence after 0, 1, ..., L edits, or a pair (edits, divergences)",
        )
    _check(table, label)
    runs = table.shape[0]
    spread = BAND * table.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else None
    return _Curve(label, np.arange(table.shape[1], dtype=float), table.mean(axis=0), spread)


def _pair(label: str, given: Any) -> _Curve:
    try:
        edits, values = (np.asarray(part, dtype=float) for part in given)
    except (TypeError, ValueError):
        raise DataError(
            f"{label!r} is no pair (edits, divergences)", remedy="give two rows of numbers"
        ) from None
    if edits.ndim != 1 or edits.shape != values.shape or not edits.size:
        raise DataError(
            f"edits and divergences of {label!r} do not fit",
            f"shapes {edits.shape} and {values.shape}",
            "give one divergence for each number of edits",
        )
    _check(np.stack([edits, values]), label)
    order = np.argsort(edits, kind="stable")
    return _Curve(label, edits[order], values[order], None)


def _check(table: Any, label: str) -> None:
    if (check_matrix(table, f"curve {label!r}") < 0).any():
        raise DataError(
            f"curve {label!r} has negative entries",
            "a divergence is at least 0",
            "give divergences, not effects",
        )


def _steps(ax: Axes, c: _Curve, colour: str, dashes: Any, width: float, order: int) -> None:
    # between numbers that were left out, a step would claim what nobody computed
    sparse = bool((np.diff(c.edits) > 1).any())
    dots = (sparse and c.edits.size <= DOTS) or c.edits.size == 1
    ax.plot(
        *(c.edits, c.values),
        drawstyle="default" if sparse else "steps-post",
        marker="o" if dots else None,
        clip_on=not dots,
        markersize=4,
        color=colour,
        linestyle=dashes,
        linewidth=width,
        zorder=order,
    )
    if c.spread is not None:
        ax.fill_between(
            c.edits,
            np.maximum(c.values - c.spread, 0.0),
            c.values + c.spread,
            step="post",
            color=colour,
            alpha=0.18,
            linewidth=0,
            zorder=2,
        )


def _marks(ax: Axes, marks: list[float], begin: float | None) -> None:
    if begin is None:
        return
    for level in marks:
        height = (1.0 - level) * float(begin)
        ax.axhline(height, color=QUIET, linestyle=(0, (2, 2)), linewidth=1.0, zorder=1)
        end: dict[str, Any] = {"xycoords": ax.get_yaxis_transform(), "ha": "right"}
        beside(ax, f"effect {level:.0%}", (1.0, height), (-3, 3), **end)


def _legend(ax: Axes, drawn: list[_Curve], best: _Curve | None) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            *([], []),
            color=COLOURS[k],
            linestyle=dash,
            linewidth=FIRST if i == 0 else 1.6,
            label=plain(c.label),
        )
        for i, (c, k, dash) in enumerate(zip(drawn, ORDER, DASHES, strict=False))
    ]
    if best is not None:
        handles.append(Line2D([], [], color=INK, linewidth=1.8, label="optimum"))
    legend_below(ax, handles)
