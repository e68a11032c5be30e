"""Picture of a performance profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError
from optfair.plots.axes import COLOURS, FAINT, QUIET, legend_below, new_axes, plain, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    >>> from optfair.plots.profile import plot_profile
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
