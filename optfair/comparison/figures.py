"""Figures over many problems, and the page that shows them: means, profiles, accuracy against time, every run."""

from __future__ import annotations

import base64
import hashlib
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.comparison.run import OUTCOMES, PROOFS, Run
from optfair.errors import DataError, kind_of
from optfair.numbers import Floats, check_names, check_positive, checked, floats
from optfair.pages import Picture, count, page, picture, text_of

if TYPE_CHECKING:
    from optfair.comparison.comparison import Cell, Comparison


@checked(shift=check_positive)
def shifted_geometric_mean(values: Iterable[float], shift: float = 1.0) -> float:
    r"""Return the shifted geometric mean.

    .. math:: \Big(\prod_{i=1}^n (v_i + s)\Big)^{1/n} - s

    Neither the easiest problems decide it, as they do a geometric mean, nor the hardest, as
    they do an arithmetic one. The shift says what counts as easy: with 1 second, 0.01 and
    0.001 seconds are nearly the same.

    Parameters
    ----------
    values : iterable of float
        Nonnegative.
    shift : float
        Positive; 1 second by convention.

    Raises
    ------
    DataError
        A value is negative, or there is none.

    Examples
    --------
    >>> from optfair.comparison import shifted_geometric_mean
    >>> round(shifted_geometric_mean([0.0, 3.0]), 12)
    1.0

    References
    ----------
    T. Achterberg, Constraint Integer Programming, PhD thesis, TU Berlin 2007, appendix A.3.
    """
    v = floats(values if hasattr(values, "__array__") else check_names(values, "values"), "values")
    if v.ndim != 1 or not v.size or not (v >= 0).all():
        raise DataError(
            "a shifted geometric mean needs nonnegative values and a positive shift",
            f"got {v.size} values, least {v.min(initial=np.inf):g}, shift {shift:g}",
        )
    return float(np.expm1(np.log1p(v / shift).mean()) * shift)


@dataclass(frozen=True)
class PerformanceProfile:
    """Ratios to the best, by solver.

    Attributes
    ----------
    measure : str
        What was compared.
    ratios : dict
        Solver -> sorted ratios to the best solver, of the problems it solved; in a data profile
        the measure itself.
    taken : dict
        Solver -> number of problems it takes; refusals are not counted against it.
    to_best : bool
        Whether these are ratios to the best; False in a data profile.
    """

    measure: str
    ratios: Mapping[str, Floats]
    taken: Mapping[str, int]
    to_best: bool = True

    def share(self, solver: str, ratio: float) -> float:
        """Return the share of the problems it takes that it solves within a ratio to the best."""
        return float((self.ratios[solver] <= ratio).sum() / max(1, self.taken[solver]))

    def steps(self, solver: str) -> tuple[Floats, Floats]:
        """Return the ratios at which its share rises, and the shares from there on."""
        at, counts = np.unique(self.ratios[solver], return_counts=True)
        return at, np.cumsum(counts) / max(1, self.taken[solver])


def best_of(values: Mapping[str, Mapping[str, float | None]]) -> dict[str, float]:
    """Return the least value of every problem that some solver has one for."""
    best: dict[str, float] = {}
    for by_problem in values.values():
        for problem, value in by_problem.items():
            if value is not None:
                best[problem] = min(value, best.get(problem, value))
    return best


def performance_profile(
    values: Mapping[str, Mapping[str, float | None]], measure: str = "seconds"
) -> PerformanceProfile:
    r"""Return Dolan and Moré's performance profile.

    .. math:: \rho_s(\tau) = \frac{1}{|P_s|}\,\big|\{p \in P_s : t_{ps} \le \tau \min_{s'} t_{ps'}\}\big|

    :math:`P_s` are the problems that solver s takes, so that a solver of linear programs is not
    blamed for a semidefinite one; where all take all it is the profile of the paper.

    Parameters
    ----------
    values : dict of dict
        Solver -> problem -> positive measure, None where it was not solved; without an entry
        where the solver does not take the problem.
    measure : str
        What it is called.

    References
    ----------
    E. D. Dolan, J. J. Moré, Benchmarking optimization software with performance profiles,
    Mathematical Programming 91, 2002.
    """
    best = best_of(values)
    ratios = {
        solver: np.sort([_ratio(v, best[p]) for p, v in by_problem.items() if v is not None])
        for solver, by_problem in values.items()
    }
    return PerformanceProfile(measure, ratios, {s: len(v) for s, v in values.items()})


def _ratio(value: Any, best: float) -> float:
    if not value >= 0:
        raise DataError(f"a performance profile needs nonnegative values, got {value!r}")
    return 1.0 if value == best else float(value / best) if best > 0 else np.inf


@dataclass(frozen=True)
class Accuracy:
    r"""How exact the points of a solver are at one tolerance, and what they took.

    .. math:: \frac{|f(x) - f^\star|}{\max(1, |f^\star|)}, \qquad
              \text{the largest relative violation of a constraint at } x

    Without a certified optimum :math:`f^\star` the relative gap to the bound stands in, which is
    no less where the bound is proved. A run without a point, and an error beyond 1, count as 1:
    not one digit is right. Proofs of infeasibility have no point and are left out.

    Attributes
    ----------
    solver : str
        Who.
    tolerance : float
        What was asked.
    answered, runs : int
        Runs with a verified answer, of those that count.
    seconds : tuple of float
        Of each run; the time limit where it has none.
    objective, feasibility : tuple of float
        Errors of each run.
    """

    solver: str
    tolerance: float
    answered: int
    runs: int
    seconds: tuple[float, ...]
    objective: tuple[float, ...]
    feasibility: tuple[float, ...]

    def median(self, measure: str) -> float:
        """Return the median over the runs of ``seconds``, ``objective`` or ``feasibility``."""
        return float(statistics.median(getattr(self, measure)))


def accuracy(comparisons: Iterable[Comparison]) -> tuple[Accuracy, ...]:
    """Return accuracies and seconds of every solver at every tolerance, loose ones first."""
    by_tolerance: dict[float, Comparison] = {}
    for c in comparisons:
        if not hasattr(c, "cells"):
            raise DataError(f"{kind_of(c)} is no comparison", remedy="compare solvers first")
        if by_tolerance.setdefault(c.tolerance, c) is not c:
            raise DataError(
                f"two comparisons are at the tolerance {c.tolerance:g}",
                remedy="give one comparison for each tolerance",
            )
    order = dict.fromkeys(s for c in by_tolerance.values() for s in c.solvers)
    rows = []
    for solver in order:
        for tolerance in sorted(by_tolerance, reverse=True):
            c = by_tolerance[tolerance]
            runs = [r for r in c.runs if r.solver == solver and _has_accuracy(r)]
            if runs:
                rows.append(_accuracy(solver, tolerance, runs))
    return tuple(rows)


def _has_accuracy(run: Run) -> bool:
    return run.asked and run.outcome not in PROOFS


def _accuracy(solver: str, tolerance: float, runs: list[Run]) -> Accuracy:
    return Accuracy(
        solver,
        tolerance,
        sum(r.answered for r in runs),
        len(runs),
        tuple(r.time_limit if r.seconds is None else r.seconds for r in runs),
        tuple(_error(_off(r)) for r in runs),
        tuple(_error(r.feasibility) for r in runs),
    )


def _off(run: Run) -> float | None:
    """Return the error of an objective, the gap where no optimum is certified."""
    if run.objective is None or run.stated is None:
        return run.gap
    return abs(run.objective - run.stated) / max(1.0, abs(run.stated))


def _error(value: float | None) -> float:
    return 1.0 if value is None else min(1.0, value)


# One HTML file about a comparison of solvers: the figures, every run, and how to read them.

TEMPLATE, SCRIPT = "comparison.html.j2", "sort.js"
OUTCOME_WORDS = {name: name.replace("_", " ") for name in OUTCOMES}
OUTCOME_WORDS |= {name: f"proved {name}" for name in PROOFS}
# (column, whether it is text)
HEADS = (
    *(("problem", True), ("class", True), ("solver", True), ("outcome", True)),
    *(("seconds", False), ("to best", False), ("CPU seconds", False)),
    *(("MB added", False), ("feasibility", False)),
    *(("dual", False), ("gap", False), ("objective", False)),
)


def figure(value: float | None, digits: int = 3) -> str:
    """Return a number to a few digits, a dash without one."""
    if value is None:
        return "–"
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.{digits}g}"
    return f"{value:.1e}" if abs(value) < 1 else f"{value:,.0f}"


def rendered(comparison: Comparison, command: str = "") -> str:
    """Return the page.

    Parameters
    ----------
    comparison : Comparison
        What it is about.
    command : str
        What was typed, if anything.
    """
    from markupsafe import Markup

    from optfair import __version__

    script = text_of(SCRIPT)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    c = comparison
    return page(
        TEMPLATE,
        version=__version__,
        title=f"{count(len(c.solvers), 'solver')} on {count(len(c.problems), 'problem')}",
        lead=f"Relative residuals of at most {c.tolerance:g}, recomputed on the problem as declared,"
        f" within {c.time_limit:g} seconds. What a solver says of itself does not count.",
        tiles=_tiles(c),
        notices=_notices(c),
        solvers=[_solver(row) for row in c.summary()],
        pictures=_pictures(c),
        heads=[{"name": name, "text": text} for name, text in HEADS],
        rows=_rows(c),
        failures=[_failure(run) for run in c.failures()],
        problems=_problems(c),
        reading=_reading(c),
        command=command,
        provenance=_provenance(c),
        # the only code of the page; its hash stands in the policy, so no other runs
        script=Markup(script),
        script_hash=digest,
    )


def _tiles(c: Comparison) -> list[dict[str, str]]:
    asked = [cell for cell in c.cells.values() if cell.worst.asked]
    answered = sum(cell.answered for cell in asked)
    by_any = {p for (p, _), cell in c.cells.items() if cell.answered}
    return [
        {
            "value": f"{answered} / {len(asked)}",
            "name": "answers",
            "text": "Pairs of problem and solver that ended with an answer that was verified.",
        },
        {
            "value": f"{len(by_any)} / {len(c.problems)}",
            "name": "problems answered",
            "text": "By at least one solver.",
        },
        {
            "value": str(len(c.conflicts())),
            "name": "contradictions",
            "text": "Verified answers that differ from each other or from a certified optimum.",
        },
        {
            "value": str(len(c.refusals())),
            "name": "refusals",
            "text": "Pairs where the solver does not take the problem. They count against nobody.",
        },
        *([_unavailable(c)] if c.unavailable() else ()),
    ]


def _unavailable(c: Comparison) -> dict[str, str]:
    reasons = dict.fromkeys(run.reason for run in c.unavailable())
    return {
        "value": str(len(c.unavailable())),
        "name": "not available",
        "text": "Pairs whose solver has no package or no licence here. " + "; ".join(reasons),
    }


def _notices(c: Comparison) -> list[str]:
    notices = [f"Contradiction. {text}" for text in c.conflicts()]
    if len(c.environments) > 1:
        notices.append(
            f"The runs come from {len(c.environments)} environments; their times are not comparable."
        )
    return notices


def _solver(row: Any) -> dict[str, str]:
    least = "≥ " if row.lower_bound else ""
    return {
        "solver": row.solver,
        "version": row.version,
        "taken": str(row.taken),
        "answered": str(row.answered),
        "seconds": "–" if row.seconds is None else least + figure(row.seconds),
        "ratio": "–" if row.ratio is None else least + figure(row.ratio),
        "megabytes": figure(row.megabytes),
    }


def _pictures(c: Comparison) -> list[Picture]:
    from optfair.plots import plot_accuracy, plot_profile

    accuracies = [] if not c.accuracy() else ["objective", "feasibility"]
    pictures = [_accuracy_picture(c, name, plot_accuracy) for name in accuracies]
    profile = c.profile()
    if not any(r.size for r in profile.ratios.values()):
        return pictures
    ends = ", ".join(f"{s} {len(r)} of {profile.taken[s]}" for s, r in profile.ratios.items())
    drawn = picture(
        lambda ax: plot_profile(profile, title="", ax=ax),
        "profile",
        "Wall time",
        "The share of the problems a solver takes that it answers within this ratio to the best"
        " solver of each. The legend has how many it answers of how many it takes.",
        3.4 + 0.12 * len(profile.ratios),
        title="Performance profile, wall time",
        description="Share of problems answered within a ratio to the best solver."
        f" Answered in all: {ends}.",
    )
    return [drawn, *pictures]


def _accuracy_picture(c: Comparison, measure: str, draw: Any) -> Picture:
    rows = c.accuracy()
    medians = "; ".join(
        f"{r.solver} {figure(r.median(measure), 2)} in {figure(r.median('seconds'))} s"
        for r in rows
    )
    of_what = {"objective": "Accuracy of the objective", "feasibility": "Violation of constraints"}
    caption = {
        "objective": "The relative distance of the objective from the certified optimum, or the gap"
        " to the bound where none is certified.",
        "feasibility": "The largest relative violation of a constraint at the point that came back.",
    }
    return picture(
        lambda ax: draw(c, measure=measure, title="", ax=ax),
        measure,
        of_what[measure],
        f"{caption[measure]} A small dot is a run, a large mark the medians of a solver; the legend"
        " has how many of its runs were verified.",
        3.6 + 0.12 * len(rows),
        title=f"{of_what[measure]} against time",
        description=f"Medians over the runs of each solver: {medians}.",
    )


def _rows(c: Comparison) -> list[dict[str, Any]]:
    best = best_of(c.values())
    return [
        _row(cell, best.get(problem), c.time_limit)
        for (problem, _), cell in c.cells.items()
        if cell.worst.asked
    ]


def _row(cell: Cell, best: float | None, limit: float) -> dict[str, Any]:
    run = cell.worst
    seconds = cell.median("seconds")
    stopped = cell.outcome == "time_limit"
    if stopped:
        seconds = limit
    ratio = seconds / best if cell.answered and seconds is not None and best else None
    pairs = [_pair(seconds) if not stopped else (repr(float(limit)), f"≥ {figure(limit)}")]
    pairs += [_pair(ratio), _pair(cell.median("cpu_seconds"))]
    pairs.append(_pair(cell.median("megabytes_added")))
    pairs += [_pair(getattr(run, name), 2) for name in ("feasibility", "dual", "gap")]
    pairs.append(_pair(run.objective, 9))
    return {
        "problem": run.problem,
        "class": run.problem_class,
        "solver": run.solver,
        **_outcome(run),
        "numbers": pairs,
    }


def _pair(value: float | None, digits: int = 3) -> tuple[str, str]:
    """Return what a cell is sorted by, and what it shows."""
    return ("", "–") if value is None else (repr(float(value)), figure(value, digits))


def _outcome(run: Run) -> dict[str, str]:
    return {"outcome": run.outcome, "outcome_words": OUTCOME_WORDS[run.outcome]}


def _failure(run: Run) -> dict[str, str]:
    return {"problem": run.problem, "solver": run.solver, "reason": run.reason, **_outcome(run)}


def _problems(c: Comparison) -> list[dict[str, Any]]:
    by_problem: dict[str, list[Run]] = {}
    for run in c.runs:
        by_problem.setdefault(run.problem, []).append(run)
    return [
        {"name": name, "about": _about(runs), "runs": [_detail(run) for run in runs]}
        for name, runs in by_problem.items()
    ]


def _about(runs: list[Run]) -> str:
    words = [runs[0].problem_class or "not read"]
    if runs[0].stated is not None:
        words.append(f"certified optimum {runs[0].stated:.10g}")
    answered = len({r.solver for r in runs if r.answered})
    asked = len({r.solver for r in runs if r.asked})
    return ", ".join([*words, f"answered by {answered} of {asked}"])


def _detail(run: Run) -> dict[str, Any]:
    phases = ", ".join(f"{name} {figure(value, 2)}" for name, value in run.phases.items())
    return {
        **{name: getattr(run, name) for name in ("solver", "version", "reason")},
        **_outcome(run),
        "repeat": str(run.repeat + 1) if run.asked else "–",
        "objective": "–" if run.objective is None else f"{run.objective:.10g}",
        "bound": "–" if run.bound is None else f"{run.bound:.10g}",
        "grade": run.grade or "–",
        "seconds": figure(run.seconds),
        "phases": phases,
    }


def _reading(c: Comparison) -> list[tuple[str, str]]:
    repeated = f" Of {c.repeats} repeats, the median." if c.repeats > 1 else ""
    return [
        (
            "solved",
            "Feasibility, objective, multipliers and bound were recomputed on the problem as"
            f" declared, and every residual is at most {c.tolerance:g}, relative. The bound of a"
            " problem with integer variables is the one reported by branch and bound: the grade"
            " says so.",
        ),
        (
            "proved infeasible",
            "A certificate that no point satisfies the constraints was verified. A solver that says"
            " so without one has failed.",
        ),
        (
            "local",
            "A feasible point that its solver calls locally optimal. Nothing says how far it is from"
            " the best, so it is no answer.",
        ),
        ("time limit", f"No answer within {c.time_limit:g} seconds: its time is at least that."),
        (
            "seconds",
            "Wall time of the whole call, from the choice of the solver to the verification, in a"
            " process of its own with one thread, after everything was loaded and the solver had"
            " solved a small problem." + repeated,
        ),
        (
            "shifted geometric mean",
            "Of seconds + 1, minus 1; over the problems a solver takes. Without an answer the time"
            " limit is counted, and the mean is a lower bound, marked ≥.",
        ),
        (
            "ratio to the best",
            "That mean, divided by the mean of the fastest solver of each of the same problems. Two"
            " solvers that take different problems can be compared by it with care only.",
        ),
        ("memory", "What the call added, at its peak, to what had been loaded before."),
    ]


def _provenance(c: Comparison) -> list[tuple[str, str]]:
    facts = []
    for i, environment in enumerate(c.environments):
        mark = f" {i + 1}" if len(c.environments) > 1 else ""
        facts.append((f"environment{mark}", ", ".join(f"{k} {v}" for k, v in environment.items())))
    versions = {r.solver: r.version for r in c.runs}
    facts.append(("solvers", ", ".join(f"{k} {v}" for k, v in versions.items())))
    return facts
