"""Solve once and say what it took; called in the process that is measured."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair import registry
from optfair.comparison.run import finite
from optfair.errors import (
    Infeasible,
    NotInstalled,
    NotLicensed,
    OptfairError,
    SizeLimited,
    UnsupportedProblem,
)

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

__all__ = [
    "allowance",
    "measured",
    "peak_megabytes",
    "reset_peak",
    "resident_megabytes",
]


# Memory of this process.

# Linux counts the high-water mark per address space here; that of getrusage outlives exec, so a
# child of a large process would seem large.
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """Return the largest memory since the start, or since `reset_peak`."""
    return _status("VmHWM:")


def resident_megabytes() -> float:
    """Return the memory in use now; where only the peak is known, that."""
    return _status("VmRSS:")


def reset_peak() -> None:
    """Let the high-water mark start from what is in use now, where the system can."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return


def _status(field: str) -> float:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return _usage()
    found = (line.split()[1] for line in lines if line.startswith(field))
    return next((int(kilobytes) / 1e3 for kilobytes in found), math.nan)


def _usage() -> float:
    try:
        import resource
    except ImportError:
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # kilobytes on most systems, bytes on macOS
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


# Solve once and say what it took; called in the process that is measured.

# Seconds that loading a solver and its first small problem may take.
LOADING = 60.0
NOT_ASKED = (UnsupportedProblem, NotInstalled, NotLicensed, SizeLimited)


def allowance(time_limit: float) -> float:
    """Return the seconds after which a run is ended from outside.

    A solver looks at the clock between steps, and compiling does not look at all.
    """
    return 1.25 * time_limit + 2.0


def measured(problem: Problem, solver: str, tolerance: float, time_limit: float) -> dict[str, Any]:
    """Return outcome, times, memory and residuals of one run.

    Parameters
    ----------
    problem : Problem
        What to solve.
    solver : str
        By whom.
    tolerance, time_limit : float
        What to ask.

    Notes
    -----
    The solver has solved a problem of two variables before, so that loading it is not timed.
    """
    from threadpoolctl import threadpool_limits

    from optfair.backends.registry import profile

    facts = profile(solver)
    # one that has no clock is ended from outside
    limit = {"time_limit": time_limit} if "time_limit" in facts.options else {}
    with threadpool_limits(1):
        _end_after(LOADING + allowance(time_limit))
        _warm_up(facts)
        reset_peak()
        before = resident_megabytes()
        _end_after(allowance(time_limit))
        cpu, begin = _cpu_seconds(), time.perf_counter()
        solution, error = None, None
        try:
            solution = problem.solve(solver, tolerance=tolerance, **limit)
        # whatever a solver's library raises is a finding about that solver
        except Exception as e:
            error = e
        seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
        _end_after(0.0)
        peak = peak_megabytes()
        found = _point(solution, tolerance) if error is None and solution else _raised(error)
    if seconds > time_limit and found["outcome"] not in ("refused", "crashed"):
        late = f"{found['outcome']} after {seconds:.1f} s"
        late = ": ".join(filter(None, (late, found["reason"])))
        found |= {"outcome": "time_limit", "reason": late}
    return found | {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "megabytes": finite(peak),
        "megabytes_added": finite(max(0.0, peak - before)),
    }


def _point(s: Solution, tolerance: float) -> dict[str, Any]:
    r = s.residuals()
    above = r.above(tolerance)
    if not above:
        outcome, reason = "solved", ""
    elif s.status.termination == "local" and r.feasibility <= tolerance:
        outcome, reason = "local", "a local optimum, as its solver says; no bound"
    else:
        outcome = "time_limit" if s.status.termination == "time_limit" else "failed"
        reason = "; ".join([f"it ended {s.status.termination}", *above])
    return {
        "outcome": outcome,
        "reason": reason,
        "objective": finite(s.objective),
        "bound": finite(s.bound),
        "feasibility": finite(r.feasibility),
        "dual": finite(r.dual),
        "gap": finite(r.gap),
        "grade": str(s.grade),
        "phases": dict(s.seconds),
    }


def _raised(error: Exception | None) -> dict[str, Any]:
    if isinstance(error, Infeasible) and error.certificate is not None:
        if error.certificate.verify():
            return {"outcome": "infeasible", "reason": error.cause}
        return {"outcome": "failed", "reason": "its certificate of infeasibility proves nothing"}
    if isinstance(error, OptfairError):
        outcome = "refused" if isinstance(error, NOT_ASKED) else "failed"
        said = ": ".join(filter(None, (error.cause, error.evidence)))
        return {"outcome": outcome, "reason": said}
    return {"outcome": "crashed", "reason": f"{type(error).__name__}: {error}"}


def _warm_up(facts: SolverProfile) -> None:
    """Solve the first small problem that the solver takes."""
    import cvxpy as cp

    from optfair.core.adopt import from_cvxpy

    x = cp.Variable(2, name="x")
    small: list[Callable[[], Problem]] = [
        lambda: from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1])),
        lambda: from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [x >= 1])),
    ]
    if facts.structure in registry.names("examples"):
        small.append(registry.load("examples", facts.structure))
    for declared in small:
        problem = declared()
        if facts.accepts(problem):
            # what fails here fails again when it counts
            with contextlib.suppress(Exception):
                problem.solve(facts.name, tolerance=1e-4)
            return


def _cpu_seconds() -> float:
    """Return the time of all threads, and of programs that were started."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _end_after(seconds: float) -> None:
    """Let the system end this process, whatever it does then; 0 calls it off."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
