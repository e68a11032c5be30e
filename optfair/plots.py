"""Pictures; needs the extra `plot`: the look all share, and those that methods register; importing this imports none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, kind_of, needed
from optfair.registry import attach_registered

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

# Okabe and Ito's palette: told apart with every kind of colour vision, and by lightness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
# Petroff's ten (arXiv 2107.02270), chosen by a survey for scattered points of many kinds.
MANY_COLOURS = (
    *("#3F90DA", "#FFA90E", "#BD1F01", "#94A4A2", "#832DB6"),
    *("#A96B59", "#E76300", "#B9AC70", "#717581", "#92DADD"),
)
# Neighbours of a series differ most: blue, vermilion, green, purple, ...; and their marks.
ORDER, SHAPES = (0, 5, 2, 3, 1, 4), "os^DvP"
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


def beside(ax: Axes, text: str, at: Any, away: tuple[float, float], **look: Any) -> None:
    """Write a quiet note some points away from a place; ``xycoords`` says what the place is in."""
    look = {"fontsize": 9.5, "color": QUIET, "textcoords": "offset points", **look}
    ax.annotate(text, at, xytext=away, **look)


def headline(figure: Figure, title: str) -> None:
    """Write the title of a picture of several axes."""
    figure.suptitle(plain(title, 90), x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)


def in_cell(
    ax: Axes, row: int, column: int, text: str, *, strong: bool = False, **look: Any
) -> None:
    """Write into a cell of a picture of a matrix: white on a strong colour, dark on a light one."""
    ink = "white" if strong else ON_LIGHT
    ax.text(column, row, text, **{"ha": "center", "va": "center", "color": ink, **look})


def colour_bar(image: Any, label: str = "", **place: Any) -> Any:
    """Return the bar of colours of a picture of a matrix, with a quiet frame."""
    bar = image.figure.colorbar(image, **place)
    bar.set_label(label, fontsize=9)
    bar.ax.tick_params(labelsize=8.5, colors=INK, length=2)
    bar.outline.set_visible(False)
    return bar


def tidy(
    ax: Axes, title: str, note: str = "", *, grid: Literal["", "x", "y", "both"] = "", **hidden: Any
) -> None:
    """Set a left-aligned title with a quiet line below it, and drop needless spines.

    Parameters
    ----------
    ax : Axes
        Where.
    title, note : str
        What is seen; how to read it.
    grid : {"", "x", "y", "both"}
        Which faint lines are drawn below everything.
    **hidden
        Further spines to hide, ``left=True`` and so on.
    """
    lines = 1.5 * (note.count("\n") + 1) if note else 0.0
    ax.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=8 + 9.5 * lines)
    if note:
        beside(ax, note, (0, 1), (0, 6), xycoords="axes fraction", va="bottom")
    if grid:
        ax.grid(axis=grid, color=FAINT, linewidth=0.8)
        ax.set_axisbelow(True)
    for side in ("top", "right", *hidden):
        ax.spines[side].set_visible(False)
    ax.tick_params(labelsize=9.5, colors=INK)
    for axis in (ax.xaxis, ax.yaxis):
        _whole_numbers(axis)


def _whole_numbers(axis: Axis) -> None:
    """Write large and small numbers at their ticks: a common factor would stand in the note."""
    from matplotlib.ticker import ScalarFormatter

    class Whole(ScalarFormatter):
        def format_ticks(self, values: Any) -> list[str]:
            texts = super().format_ticks(values)
            factored = bool(super().get_offset())
            return [self.fix_minus(_whole(v)) for v in values] if factored else texts

        def get_offset(self) -> str:
            return ""

    if type(axis.get_major_formatter()) is ScalarFormatter:
        axis.set_major_formatter(Whole())


def _whole(value: float) -> str:
    """Return a number to 12 digits, in its shortest form."""
    plainly = f"{value:,.12g}"
    each = (f"{value:.{digits}g}" for digits in range(1, 12))
    same = [text for text in each if "e" in text and float(text) == float(f"{value:.12g}")]
    return min([plainly, *same], key=lambda text: len(text) + 3 * ("e" in text))


def plain(text: object, longest: int = LONGEST) -> str:
    """Return somebody's text as one line that is drawn as it stands, its end kept when it is cut."""
    line = " ".join(str(text).split())
    if len(line) > longest:
        end = longest // 4
        line = f"{line[: longest - 1 - end]}…{line[-end:]}"
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


def draw_chords(
    ax: Axes,
    chords: Sequence[tuple[NDArray[Any], NDArray[Any], str]],
    graph: tuple[NDArray[Any], NDArray[Any], str] | None,
) -> None:
    """Draw at most two chords of a function, and by how much their middles are missed.

    Parameters
    ----------
    ax : Axes
        Where.
    chords : sequence of tuple
        Of each the places, the function there, and what is to be said; the middle is the middle one.
    graph : tuple, optional
        Places, the function there, and the name of its variable. Without it, each chord has a scale
        of its own.
    """
    colours = (COLOURS[5], COLOURS[0])
    if graph is not None:
        x, f, name = graph
        known = np.concatenate([along[[0, along.size // 2, -1]] for _, along, _ in chords])
        room = 2 * np.ptp(known)  # a pole would leave nothing to see of the chords
        seen = (f >= known.min() - room) & (f <= known.max() + room)
        ax.plot(x, np.where(seen, f, np.nan), color=INK, label="f")
    ax.set_xlabel(
        "from the first point of a chord (0) to the second (1)" if graph is None else plain(name)
    )
    ax.set_ylabel("f")
    lines: list[Any] = [*ax.get_lines()]
    for i, ((place, f, said), colour) in enumerate(zip(chords, colours, strict=False)):
        own = ax if graph is not None or i == 0 else ax.twinx()
        half, middle = (f[0] + f[-1]) / 2, f.size // 2
        if graph is None:
            own.plot(place, f, color=colour)
            own.tick_params(axis="y", colors=colour)
            own.spines["top"].set_visible(False)
        own.plot(place[[middle, middle]], [half, f[middle]], color=colour, lw=3, alpha=0.4)
        ends = [f[0], half, f[-1]]
        lines += own.plot(place[[0, middle, -1]], ends, "o--", color=colour, ms=5, label=said)
    legend_below(ax, lines)


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

# What is measured, and in what.
MEASURES = {
    "seconds": ("wall time", "seconds"),
    "cpu_seconds": ("CPU time", "seconds"),
    "megabytes": ("peak memory", "MB"),
    "megabytes_added": ("memory added", "MB"),
}
DASHES = ("-", "--", ":", "-.")


def plot_profile(
    comparison: Any, *, measure: str = "seconds", title: str | None = None, ax: Axes | None = None
) -> Axes:
    r"""Draw Dolan and Moré's performance profile of a comparison.

    .. math:: \rho_s(\tau) = \frac{1}{|P_s|}\,\big|\{p \in P_s : t_{ps} \le \tau \min_{s'} t_{ps'}\}\big|

    A step line per solver: at 1 the share of problems it is best on, at the right the share it
    solves at all. Shares are of the problems :math:`P_s` that a solver takes; their number
    stands in the legend.

    Parameters
    ----------
    comparison : Comparison or PerformanceProfile
        What `optfair.comparison.compare_solvers` returned, or a profile of it; of a data profile
        the lower axis is the measure itself.
    measure : {"seconds", "cpu_seconds", "megabytes", "megabytes_added"}
        What is compared, when it is a comparison.
    title : str, optional
        Title; by default what kind of profile it is.
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
    >>> from optfair.comparison.figures import performance_profile
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
    if not (hasattr(comparison, "ratios") or hasattr(comparison, "profile")):
        raise DataError(
            f"comparison is {kind_of(comparison)}", remedy="give what compare_solvers() returns"
        )
    profile = comparison if hasattr(comparison, "ratios") else comparison.profile(measure)
    if not profile.ratios:
        raise DataError(
            "there is nothing to draw",
            "no solver takes any of these problems",
            "compare on problems of another class",
        )
    ax = new_axes(ax, 7.2, 4.6)
    ratios = np.concatenate([r[np.isfinite(r)] for r in profile.ratios.values()])
    left, right = 1.0, 1.5 * max(float(ratios.max(initial=1.0)), 2.0)
    if not profile.to_best and ratios.size:
        right = 1.5 * float(ratios.max())
        left = min(0.7 * max(float(ratios.min()), 1e-9), right / 4.0)
    handles = []
    for i, solver in enumerate(_ranked(profile)):
        at, shares = profile.steps(solver)
        kept = np.isfinite(at)
        x = np.concatenate([[left], at[kept], [right]])
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
    ax.set_xlim(0.97 * left, right)
    ax.set_ylim(-0.02, 1.03)
    steps = (1, 2, 5) if right / left < 1e3 else (1,)
    ticks = [m * 10.0**e for e in range(-9, 9) for m in steps if left <= m * 10.0**e <= right]
    ax.set_xticks(ticks, [f"{t:,.0f}" if t >= 1 else f"{t:g}" for t in ticks])
    ax.minorticks_off()
    name, unit = MEASURES.get(profile.measure, (profile.measure,) * 2)
    ax.set_ylabel("share of problems solved")
    if profile.to_best:
        ax.set_xlabel(f"{name}, ratio to the best solver", color=QUIET)
        note = "higher is better: at 1 how often best, at the right how often solved at all"
        kind = "Performance profile"
    else:
        ax.set_xlabel(f"{name}, {unit}", color=QUIET)
        note, kind = "higher is better: the share that is solved within so much", "Data profile"
    tidy(ax, kind if title is None else title, note, grid="both")
    legend_below(ax, handles)
    return ax


# Accuracy against time.

ERRORS = {"objective": "error of the objective", "feasibility": "largest violation"}
MARKS = "osD^vP*X"
# Less than this is drawn there: it is what rounding leaves.
EXACT = 1e-16


def plot_accuracy(
    comparisons: Any,
    *,
    measure: str = "objective",
    title: str = "Accuracy against time",
    ax: Axes | None = None,
) -> Axes:
    """Draw how exact the points of each solver are against the seconds they took.

    A small dot is a run, a large mark the medians of a solver at one tolerance; the line joins its
    tolerances. A hollow mark says that not every run was verified at the tolerance that was asked
    for. What is measured is said by `optfair.comparison.Accuracy`.

    Parameters
    ----------
    comparisons : Comparison, or iterable of Comparison
        What `optfair.comparison.compare_solvers` returned, at one tolerance or at several.
    measure : {"objective", "feasibility"}
        Which error: of the objective, or the largest relative violation of a constraint.
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
        Another measure, or no run came to a point.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import optfair as of
    >>> from optfair.plots import plot_accuracy
    >>> asked = [of.compare_solvers("diet", ["clarabel"], tolerance=t) for t in (1e-2, 1e-8)]
    >>> plot_accuracy(asked).get_xlabel()
    'seconds of the whole call'
    """
    from matplotlib.lines import Line2D

    from optfair.errors import nearest

    if measure not in ERRORS:
        raise DataError(f"unknown measure {measure!r}", remedy=nearest(measure, ERRORS))
    rows, order = _accuracies(comparisons)
    if not rows:
        raise DataError(
            "there is nothing to draw", "no run came to a point", "compare on other problems"
        )
    ax = new_axes(ax, 7.2, 5.0)
    tolerances = sorted({r.tolerance for r in rows}, reverse=True)
    marks = {t: MARKS[i % len(MARKS)] for i, t in enumerate(tolerances)}
    handles: list[Artist] = []
    for i, solver in enumerate(order):
        own = [r for r in rows if r.solver == solver]
        colour = COLOURS[i % len(COLOURS)]
        dashes = DASHES[i // len(COLOURS) % len(DASHES)]
        middle = [(r.median("seconds"), max(EXACT, r.median(measure))) for r in own]
        ax.plot(*zip(*middle, strict=True), color=colour, linestyle=dashes, linewidth=1.6, zorder=3)
        for r, (x, y) in zip(own, middle, strict=True):
            if r.runs > 1:
                errors = np.maximum(EXACT, getattr(r, measure))
                ax.scatter(r.seconds, errors, s=9, color=colour, alpha=0.35, linewidths=0, zorder=2)
            ax.plot(
                *(x, y, marks[r.tolerance]),
                color=colour,
                markersize=7.5,
                markeredgewidth=1.6,
                markerfacecolor=colour if r.answered == r.runs else "white",
                zorder=4,
            )
        name = f"{plain(solver)}, {own[-1].answered} of {own[-1].runs}"
        stroke: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.8}
        handles.append(Line2D([], [], label=name, **stroke))
    for t in tolerances:
        ax.axhline(t, color=QUIET, linewidth=0.8, linestyle=":", zorder=1)
        look: dict[str, Any] = {"color": QUIET, "marker": marks[t], "linestyle": ""}
        handles.append(Line2D([], [], label=f"asked for {t:g}", **look))
    ax.set_xscale("log")
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    ax.set_ylim(max(low, 0.3 * EXACT), min(high, 3.0))
    ax.set_xlabel("seconds of the whole call", color=QUIET)
    ax.set_ylabel(ERRORS[measure])
    note = "lower and further left is better; hollow: not every run was verified"
    tidy(ax, title, note, grid="both")
    legend_below(ax, handles)
    return ax


def _accuracies(comparisons: Any) -> tuple[list[Any], list[str]]:
    """Return the accuracies of one comparison or of several, and solvers as a profile has them."""
    single = hasattr(comparisons, "accuracy")
    several = [comparisons] if single else list(getattr(comparisons, "__iter__", list)())
    if not several or not all(hasattr(c, "accuracy") for c in several):
        raise DataError(
            f"{comparisons!r:.60} is no comparison", remedy="give what compare_solvers returned"
        )
    rows = list(several[0].accuracy(*several[1:]))
    order = _ranked(min(several, key=lambda c: c.tolerance).profile())
    known = {r.solver for r in rows}
    return rows, [*(s for s in order if s in known), *sorted(known - set(order))]


def _ranked(profile: Any) -> list[str]:
    """Return the solvers, that with the largest share at the right first."""
    key = lambda s: (-profile.ratios[s].size / max(1, profile.taken[s]), s)
    return sorted(profile.ratios, key=key)


__all__, __getattr__, __dir__ = attach_registered(
    __name__, "plots", "plot_accuracy", "plot_profile"
)
