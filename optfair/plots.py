"""Pictures; needs the extra `plot`: the look all share, and those that methods register; importing this imports none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair import registry
from optfair.errors import DataError, needed

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Okabe and Ito's palette: told apart with every kind of colour vision, and by lightness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
# Petroff's ten (arXiv 2107.02270), chosen by a survey for scattered points of many kinds.
MANY_COLOURS = (
    "#3F90DA",
    "#FFA90E",
    "#BD1F01",
    "#94A4A2",
    "#832DB6",
    "#A96B59",
    "#E76300",
    "#B9AC70",
    "#717581",
    "#92DADD",
)
# Text and lines on the page; a page of another colour may replace them.
INK, QUIET, FAINT = "#222222", "#6B6B6B", "#E3E3E3"
# Text on a light colour of the picture itself, which no page replaces.
ON_LIGHT = "#1B1B1B"

# Mean width of a character of 9.5 pt, in inches, and what a legend's handle and gaps take.
CHARACTER, HANDLE = 0.082, 0.55
LONGEST = 40


def new_figure(width: float, height: float) -> Figure:
    """Return a new figure of a size in inches.

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    """
    plt = needed("matplotlib.pyplot", 'pip install "optfair[plot]"')
    figure: Figure = plt.figure(figsize=(width, height), layout="constrained")
    return figure


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return the given axes, or new ones of a size in inches; raises as `new_figure`."""
    return new_figure(width, height).subplots() if ax is None else ax


def tidy(ax: Axes, title: str, note: str = "", **hidden: Any) -> None:
    """Set a left-aligned title with a quiet line below it, and drop needless spines.

    Parameters
    ----------
    ax : Axes
        Where.
    title, note : str
        What is seen; how to read it.
    **hidden
        Further spines to hide, ``left=True`` and so on.
    """
    lines = 1.5 * (note.count("\n") + 1) if note else 0.0
    ax.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=8 + 9.5 * lines)
    if note:
        ax.annotate(
            note,
            (0, 1),
            xytext=(0, 6),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=9.5,
            color=QUIET,
            va="bottom",
        )
    for side in ("top", "right", *hidden):
        ax.spines[side].set_visible(False)
    ax.tick_params(labelsize=9.5, colors=INK)


def plain(text: object, longest: int = LONGEST) -> str:
    """Return somebody's text as one line that is drawn as it stands, without mathematics."""
    line = " ".join(str(text).split())
    if len(line) > longest:
        line = line[: longest - 1] + "…"
    return line.replace("$", r"\$")


def legend_below(ax: Axes, handles: Sequence[Artist], *, inches: float = 0.62) -> None:
    """Put a legend under the axis label, in as many columns as its texts leave room for.

    Parameters
    ----------
    ax : Axes
        Whose legend.
    handles : sequence of Artist
        With their labels.
    inches : float
        Distance from the axis.
    """
    from matplotlib.transforms import ScaledTranslation

    figure = ax.figure
    # half of what the layout may still take away for labels at the sides is a fair guess
    width = 0.85 * figure.bbox.width / figure.dpi * ax.get_position().width / 0.8
    longest = max((len(str(h.get_label())) for h in handles), default=1)
    columns = int(width / (CHARACTER * longest + HANDLE))
    ax.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -inches, figure.dpi_scale_trans),
        ncols=max(1, min(4, len(handles), columns)),
        frameon=False,
        fontsize=9.5,
        handlelength=1.2,
        borderaxespad=0,
    )


# Labels next to points, where they hide nothing.

Floats = NDArray[np.float64]


# Offsets to try, in points: near first, and rather beside a point than above or below it.
DISTANCES = (9.0, 16.0, 26.0, 38.0, 54.0, 74.0)
DIRECTIONS = (
    *((1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1)),
    *((0.3, 1), (-0.3, 1), (0.3, -1), (-0.3, -1)),
)
# A label further than this from its point gets a line to it; markers have this radius.
LEADER, RADIUS = 12.0, 5.0
# What hiding costs: a labelled point, another label, a pixel outside, a point to avoid is 1.
POINT, LABEL, OUTSIDE = 10.0, 20.0, 2.0


def label_points(
    ax: Axes, points: Sequence[tuple[float, float]], texts: Sequence[str], avoid: Floats
) -> None:
    """Write a label next to each point, off other labels, points and curves.

    Greedy: each label takes the nearest place that covers nothing, or covers least.

    Parameters
    ----------
    ax : Axes
        With its final limits.
    points : sequence of (x, y)
        What is labelled, in data coordinates.
    texts : sequence of str
        The label of each.
    avoid : array (m, 2)
        What labels should not cover, in data coordinates; a curve as many points along it.
    """
    from matplotlib.text import Text

    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    frame = ax.get_window_extent()
    pad = RADIUS * ax.figure.dpi / 72.0
    obstacles = ax.transData.transform(np.vstack([avoid, np.asarray(points)]))
    weight = np.concatenate([np.ones(len(avoid)), np.full(len(points), POINT)])
    taken: list[Bbox] = [
        t.get_window_extent() for t in ax.texts if t.get_text() and t.get_visible()
    ]
    # notes above the axes are no obstacle inside them
    taken = [box for box in taken if frame.overlaps(box)]
    labelled = obstacles[len(avoid) :]
    for i, (point, text) in enumerate(zip(points, texts, strict=True)):
        own, others = labelled[i], np.delete(labelled, i, axis=0)
        best: tuple[float, Any, Bbox] | None = None
        for rank, (dx, dy, distance) in enumerate(_places()):
            note = _write(ax, point, text, dx * distance, dy * distance)
            note.get_window_extent()  # settles where the text stands; then its box without the line
            box = Text.get_window_extent(note).padded(2.0)
            wide = box.padded(pad)
            hidden = ((obstacles > wide.min) & (obstacles < wide.max)).all(axis=1)
            cost = (
                float(weight @ hidden)
                + LABEL * box.count_overlaps(taken)
                + OUTSIDE * _outside(box, frame)
                + POINT * _crossed(own, (dx * distance, dy * distance), others, taken, pad)
                + 1e-3 * rank
            )
            if best is None or cost < best[0]:
                if best is not None:
                    best[1].remove()
                best = (cost, note, box)
            else:
                note.remove()
            if best[0] < 1.0:
                break
        if best is not None:
            taken.append(best[2])


def _places() -> list[tuple[float, float, float]]:
    return [(dx, dy, distance) for distance in DISTANCES for dx, dy in DIRECTIONS]


def _write(ax: Axes, point: tuple[float, float], text: str, dx: float, dy: float) -> Any:
    far = max(abs(dx), abs(dy)) > LEADER
    line = {
        "arrowstyle": "-",
        "color": QUIET,
        "linewidth": 0.8,
        "shrinkA": 1,
        "shrinkB": 5,
        "relpos": (0.5 * (1 - np.sign(dx)), 0.5 * (1 - np.sign(dy))),
    }
    return ax.annotate(
        text,
        point,
        xytext=(dx, dy),
        textcoords="offset points",
        ha="left" if dx > 0 else "right" if dx < 0 else "center",
        va="bottom" if dy > 0 else "top" if dy < 0 else "center",
        fontsize=9.5,
        color=INK,
        linespacing=1.25,
        zorder=6,
        arrowprops=line if far else None,
    )


def _outside(box: Bbox, frame: Bbox) -> float:
    """Return by how many pixels a box sticks out of a frame."""
    return float(
        max(0.0, frame.x0 - box.x0)
        + max(0.0, box.x1 - frame.x1)
        + max(0.0, frame.y0 - box.y0)
        + max(0.0, box.y1 - frame.y1)
    )


def _crossed(
    own: Floats, offset: tuple[float, float], others: Floats, taken: list[Bbox], pad: float
) -> int:
    """Return how many points and labels the line from a point to its label runs over."""
    if np.abs(offset).max() <= LEADER:
        return 0
    line = own + np.linspace(0, 1, 25)[:, None] * np.asarray(offset) * pad / RADIUS  # in pixels
    near = [np.hypot(*(line - other).T).min() < 1.6 * pad for other in others]
    over = [bool(((line > box.min) & (line < box.max)).all(axis=1).any()) for box in taken]
    return int(sum(near) + sum(over))


# Picture of a performance profile.

NAMES = {
    "seconds": "wall time",
    "cpu_seconds": "CPU time",
    "megabytes": "peak memory",
    "megabytes_added": "memory added",
}
DASHES = ("-", "--", ":", "-.")


def plot_profile(
    comparison: Any,
    *,
    measure: str = "seconds",
    title: str = "Performance profile",
    ax: Axes | None = None,
) -> Axes:
    r"""Draw Dolan and Moré's performance profile of a comparison.

    .. math:: \rho_s(\tau) = \frac{1}{|P_s|}\,\big|\{p \in P_s : t_{ps} \le \tau \min_{s'} t_{ps'}\}\big|

    A step line per solver: at 1 the share of problems it is best on, at the right the share it
    solves at all. Shares are of the problems :math:`P_s` that a solver takes; their number
    stands in the legend.

    Parameters
    ----------
    comparison : Comparison or PerformanceProfile
        What `optfair.comparison.compare_solvers` returned, or a profile of it.
    measure : {"seconds", "cpu_seconds", "megabytes", "megabytes_added"}
        What is compared, when it is a comparison.
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
        No solver takes any of the problems.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> from optfair.comparison.comparison import performance_profile
    >>> from optfair.plots import plot_profile
    >>> times = {"a": {"p": 1.0, "q": 4.0}, "b": {"p": 2.0, "q": None}}
    >>> ax = plot_profile(performance_profile(times))
    >>> ax.get_ylabel()
    'share of problems solved'

    References
    ----------
    E. D. Dolan, J. J. Moré, Benchmarking optimization software with performance profiles,
    Mathematical Programming 91, 2002.
    """
    profile = comparison if hasattr(comparison, "ratios") else comparison.profile(measure)
    if not profile.ratios:
        raise DataError(
            "there is nothing to draw",
            "no solver takes any of these problems",
            "compare on problems of another class",
        )
    ax = new_axes(ax, 7.2, 4.6)
    found = [r[np.isfinite(r)].max(initial=1.0) for r in profile.ratios.values()]
    right = 1.5 * max(float(max(found)), 2.0)
    handles = []
    for i, solver in enumerate(_ranked(profile)):
        at, shares = profile.steps(solver)
        kept = np.isfinite(at)
        x = np.concatenate([[1.0], at[kept], [right]])
        y = np.concatenate([[0.0], shares[kept], [shares[kept][-1] if kept.any() else 0.0]])
        solved, taken = profile.ratios[solver].size, profile.taken[solver]
        (line,) = ax.step(
            x,
            y,
            where="post",
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i // len(COLOURS) % len(DASHES)],
            linewidth=1.8,
            label=f"{plain(solver)}, {solved} of {taken}",
        )
        handles.append(line)
    ax.set_xscale("log")
    ax.set_xlim(0.97, right)
    ax.set_ylim(-0.02, 1.03)
    ticks = [t for t in (1, 2, 5, 10, 20, 50, 100, 1e3, 1e4, 1e5, 1e6) if t <= right]
    ax.set_xticks(ticks, [f"{t:,.0f}" for t in ticks])
    ax.minorticks_off()
    ax.grid(color=FAINT, linewidth=0.8)
    ax.set_axisbelow(True)
    name = NAMES.get(profile.measure, profile.measure)
    ax.set_xlabel(f"{name}, ratio to the best solver", color=QUIET)
    ax.set_ylabel("share of problems solved")
    tidy(ax, title, "higher is better: at 1 how often best, at the right how often solved at all")
    legend_below(ax, handles)
    return ax


def _ranked(profile: Any) -> list[str]:
    """Return the solvers, that with the largest share at the right first."""
    key = lambda s: (-profile.ratios[s].size / max(1, profile.taken[s]), s)
    return sorted(profile.ratios, key=key)


__all__ = ("plot_profile", *registry.names("plots"))


def __getattr__(name: str) -> Any:
    if name not in registry.names("plots"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return registry.load("plots", name)


def __dir__() -> list[str]:
    return list(__all__)
