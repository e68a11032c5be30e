"""One HTML file about a comparison of solvers: the figures, every run, and how to read them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optfair.comparison.run import Run
from optfair.pages import Picture, count, page, picture, text_of

if TYPE_CHECKING:
    from optfair.comparison.comparison import Cell, Comparison

TEMPLATE, SCRIPT = "comparison.html.j2", "sort.js"
OUTCOME_WORDS = {
    "solved": "solved",
    "infeasible": "proved infeasible",
    "local": "local",
    "time_limit": "time limit",
    "memory_limit": "memory limit",
    "failed": "failed",
    "crashed": "crashed",
    "unreadable": "unreadable",
    "refused": "refused",
}
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
    ]


def _notices(c: Comparison) -> list[str]:
    found = [f"Contradiction. {text}" for text in c.conflicts()]
    if len(c.environments) > 1:
        found.append(
            f"The runs come from {len(c.environments)} environments; their times are not comparable."
        )
    return found


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
    found = [_accuracy_picture(c, name, plot_accuracy) for name in accuracies]
    profile = c.profile()
    if not any(r.size for r in profile.ratios.values()):
        return found
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
    return [drawn, *found]


def _accuracy_picture(c: Comparison, measure: str, draw: Any) -> Picture:
    rows = c.accuracy()
    told = "; ".join(
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
        f"{caption[measure]} A small dot is a run, a large mark the medians of a solver.",
        3.6 + 0.12 * len(rows),
        title=f"{of_what[measure]} against time",
        description=f"Medians over the runs of each solver: {told}.",
    )


def _rows(c: Comparison) -> list[dict[str, Any]]:
    best: dict[str, float] = {}
    for by_problem in c.values().values():
        for name, value in by_problem.items():
            if value is not None:
                best[name] = min(value, best.get(name, value))
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
    pairs = [_pair(seconds)]
    if stopped:
        pairs = [(pairs[0][0], f"≥ {figure(limit)}")]
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
    bare: Mapping[str, Any] = run.to_dict()
    asked = run.asked
    return {
        **{name: bare[name] for name in ("solver", "version")},
        "reason": run.reason,
        **_outcome(run),
        "repeat": str(run.repeat + 1) if asked else "–",
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
        (
            "time limit",
            f"No answer within {c.time_limit:g} seconds: its time is at least that.",
        ),
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
        (
            "memory",
            "What the call added, at its peak, to what had been loaded before.",
        ),
    ]


def _provenance(c: Comparison) -> list[tuple[str, str]]:
    found = []
    for i, environment in enumerate(c.environments):
        mark = f" {i + 1}" if len(c.environments) > 1 else ""
        found.append((f"environment{mark}", ", ".join(f"{k} {v}" for k, v in environment.items())))
    versions = {r.solver: r.version for r in c.runs}
    found.append(("solvers", ", ".join(f"{k} {v}" for k, v in versions.items())))
    return found
