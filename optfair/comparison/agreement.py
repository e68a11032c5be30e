"""Whether verified answers agree with each other and with what is certified."""

from __future__ import annotations

from collections.abc import Iterable

from optfair.comparison.run import Run

__all__ = ["conflicts"]

# Residuals of size tau move an optimum by more than tau: by tau times the multipliers.
SLACK = 100.0


def conflicts(runs: Iterable[Run]) -> tuple[str, ...]:
    """Return the contradictions among runs with a verified answer, in words.

    Parameters
    ----------
    runs : iterable of Run
        Of any problems.

    Notes
    -----
    Optima may differ by 100 times the tolerance, relative to max(1, abs(optimum)): residuals
    of that size are allowed, and multipliers enlarge what they do to the optimum.
    """
    by_problem: dict[str, list[Run]] = {}
    for run in runs:
        if run.answered:
            by_problem.setdefault(run.problem, []).append(run)
    return tuple(text for group in by_problem.values() for text in _among(group))


def _among(group: list[Run]) -> Iterable[str]:
    first = group[0]
    if first.stated is not None:
        for run in group:
            if run.outcome == "infeasible":
                yield f"{run.problem}: {run.solver} proves it infeasible, certified optimum {first.stated:.10g}"
            elif not _close(run.objective, first.stated, run.tolerance):
                yield (
                    f"{run.problem}: {run.solver} has {run.objective:.10g},"
                    f" certified optimum {first.stated:.10g}"
                )
        return
    for run in group[1:]:
        if run.outcome != first.outcome:
            yield f"{run.problem}: {first.solver} says {first.outcome}, {run.solver} {run.outcome}"
        elif run.outcome == "solved" and not _close(run.objective, first.objective, run.tolerance):
            yield (
                f"{run.problem}: {first.solver} has {first.objective:.10g},"
                f" {run.solver} {run.objective:.10g}"
            )


def _close(a: float | None, b: float | None, tolerance: float) -> bool:
    if a is None or b is None:
        return False
    return abs(a - b) <= SLACK * tolerance * max(1.0, abs(b))
