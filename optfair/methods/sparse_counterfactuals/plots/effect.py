"""Picture of what a budget of edits buys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.metrics import DIVERGENCES
from optfair.numbers import check_matrix
from optfair.plots.axes import COLOURS, FAINT, INK, QUIET, legend_below, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

__all__ = ["plot_effect"]

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
    >>> from optfair.methods.sparse_counterfactuals.plots.effect import plot_effect
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
    if not isinstance(curves, Mapping) or not 1 <= len(curves) <= len(ORDER):
        raise DataError(
            "curves is no mapping of label to curve"
            if not isinstance(curves, Mapping)
            else f"{len(curves)} curves",
            remedy=f"give between 1 and {len(ORDER)}, by label",
        )
    drawn = [_curve(str(label), given, divergence) for label, given in curves.items()]
    best = None if optimum is None else _pair("optimum", optimum)
    marks = [_level(value) for value in levels]
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
    ax.set_xlim(0, last)
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
    tidy(ax, title, note)
    ax.set_xlabel("edits", color=INK)
    ax.set_ylabel(f"{NAMES[divergence]} to the target", color=INK)
    ax.set_axisbelow(True)
    ax.grid(axis="y", color=FAINT, linewidth=0.8)
    _legend(ax, drawn, best)
    return ax


def _curve(label: str, given: Any, divergence: str) -> _Curve:
    if hasattr(given, "divergences"):
        given = np.asarray(given.divergences(divergence))
    if isinstance(given, tuple) and len(given) == 2:
        return _pair(label, given)
    table = np.atleast_2d(np.asarray(given, dtype=float)) if _regular(given) else None
    if table is None or table.ndim != 2:
        raise DataError(
            f"curve {label!r} is no row of numbers",
            remedy="give the divergence after 0, 1, ..., L edits, or a pair (edits, divergences)",
        )
    _check(table, label)
    runs = table.shape[0]
    spread = BAND * table.std(axis=0, ddof=1) / np.sqrt(runs) if runs > 1 else None
    return _Curve(label, np.arange(table.shape[1], dtype=float), table.mean(axis=0), spread)


def _regular(given: Any) -> bool:
    try:
        np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        return False
    return True


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


def _level(value: Any) -> float:
    if not isinstance(value, (int, float)) or not 0.0 < value <= 1.0:
        raise DataError(f"level {value!r} is no effect", remedy="give shares in (0, 1]")
    return float(value)


def _steps(ax: Axes, c: _Curve, colour: str, dashes: Any, width: float, order: int) -> None:
    # between numbers that were left out, a step would claim what nobody computed
    sparse = bool((np.diff(c.edits) > 1).any())
    dots = sparse and c.edits.size <= DOTS
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
        ax.annotate(
            f"effect {level:.0%}",
            (1.0, height),
            xycoords=ax.get_yaxis_transform(),
            xytext=(-3, 3),
            textcoords="offset points",
            ha="right",
            fontsize=9.5,
            color=QUIET,
        )


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
