"""One run: what was asked of one solver, what it took, what became of it, and how it is kept."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair import registry
from optfair.errors import (
    DataError,
    Infeasible,
    NotInstalled,
    NotLicensed,
    OptfairError,
    SizeLimited,
    SolverFailure,
    Unbounded,
    UnsupportedProblem,
    say_names,
)
from optfair.storage import check_record, made_folder, read_json, write_text

if TYPE_CHECKING:
    from optfair.backends.request import SolverProfile
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.solution.residuals import Residuals

# One run: what was asked of one solver, and what became of it.

# From best to worst. The first three are answers that were verified here; "unreadable" and
# those after it say that the solver was not asked, the last two that it is not to be had here.
# types of the fields of a run in a file; the others are tables
TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "float | None": (int, float, type(None)),
}
OUTCOMES = (
    *("solved", "infeasible", "unbounded", "local", "time_limit", "memory_limit"),
    *("failed", "crashed", "unreadable", "refused"),
    *("not_installed", "not_licensed"),
)
UNAVAILABLE = ("not_installed", "not_licensed")
UNASKED = ("unreadable", "refused", *UNAVAILABLE)
# Answers that are proofs and have no point.
PROOFS = ("infeasible", "unbounded")
ANSWERS = ("solved", *PROOFS)
# Outcomes that leave a point to be judged at another tolerance.
POINTS = ("solved", "time_limit", "failed")
# Halvings of the exponent of the least tolerance that is passed.
HALVINGS = 30


def finite(value: Any) -> float | None:
    """Return a number, None when it is not finite: JSON has no other."""
    number = float(value)
    return number if math.isfinite(number) else None


@dataclass(frozen=True)
class Run:
    """One solver on one problem.

    Attributes
    ----------
    problem, problem_class : str
        What was to be solved.
    solver, version : str
        By whom: the solver's name, or that of a `ConfiguredSolver` of it.
    repeat : int
        Counted from 0.
    outcome : str
        "solved": every residual, recomputed here, is within the tolerance. "infeasible" and
        "unbounded": a certificate was verified. "local": a feasible point that its solver calls locally
        optimal, without a bound. "time_limit": not within the limit, so ``seconds`` is a
        lower bound. "memory_limit": it wanted more memory than was allowed. "failed": it returned nothing that passes. "crashed": its process died
        or an exception was raised. "unreadable": the file of a collection is missing, damaged or another one. "refused": it does not take the problem.
        "not_installed": its package is missing. "not_licensed": it has no licence, or one that ends below this size.
    reason : str
        Why it is not "solved".
    tolerance, time_limit : float
        What was asked.
    seconds, cpu_seconds : float or None
        Of the whole call, verification included; wall time and time of all threads.
    megabytes, megabytes_added : float or None
        Peak memory of the process; what the call added to what was there.
    objective, bound, feasibility, dual, gap : float or None
        Of the point returned, by our residuals.
    grade : str
        What the bound rests on: ``proved``, ``proved for |x| ≤ R``, or ``reported by SOLVER``.
    stated : float or None
        Certified optimum of the instance.
    phases : dict
        Seconds of choose, compile, solve, recover and verify.
    fingerprint : str
        Of the problem as declared; empty where nothing was kept.
    options : dict
        What the solver was asked for besides, by its own names.
    passes : float or None
        Least tolerance at which the point is accepted, to six digits; None where 1 is too little.
    load : float or None
        Processes that waited for a processor when it began, of the last minute.
    environment : dict
        Versions and machine.
    """

    problem: str
    problem_class: str
    solver: str
    version: str
    repeat: int
    outcome: str
    reason: str
    tolerance: float
    time_limit: float
    seconds: float | None = None
    cpu_seconds: float | None = None
    megabytes: float | None = None
    megabytes_added: float | None = None
    objective: float | None = None
    bound: float | None = None
    feasibility: float | None = None
    dual: float | None = None
    gap: float | None = None
    grade: str = ""
    stated: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)
    fingerprint: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    passes: float | None = None
    load: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        say_names(self, phases="phase", options="option", environment="fact")

    @property
    def answered(self) -> bool:
        """Whether it ended with an answer that was verified."""
        return self.outcome in ANSWERS

    @property
    def asked(self) -> bool:
        """Whether the solver was asked."""
        return self.outcome not in UNASKED

    def __repr__(self) -> str:
        took = "" if self.seconds is None else f" in {self.seconds:.3g} s"
        came = "" if self.objective is None else f", objective {self.objective:.10g}"
        why = f" ({self.reason})" if self.reason else ""
        return f"Run of {self.problem} by {self.solver}: {self.outcome}{took}{came}{why}"

    def at(self, tolerance: float) -> Run:
        """Return the run judged at another tolerance, by the residuals it has.

        Certificates, refusals, and what came late or left no point stay what they are.
        """
        kept = replace(self, tolerance=tolerance)
        late = self.seconds is None or self.seconds > self.time_limit
        if late or self.objective is None or self.outcome not in POINTS:
            return kept
        if self.passes is not None and self.passes <= tolerance:
            return replace(kept, outcome="solved", reason="")
        if self.outcome != "solved":
            return kept
        least = "no tolerance" if self.passes is None else f"{self.passes:.1e}"
        return replace(kept, outcome="failed", reason=f"it passes at {least}")

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Run:
        """Return the run that `to_dict` wrote.

        Raises
        ------
        DataError
            Fields are missing or unknown, or there is no such outcome.
        """
        if not isinstance(record, Mapping):
            raise DataError("this is not the record of a run", type(record).__name__)
        known = {f.name: TYPES.get(str(f.type), dict) for f in fields(cls)}
        record = {"options": {}, "passes": None, "load": None, **record}  # younger than some files
        odd = sorted(set(record) ^ set(known))
        if not odd:
            check_record(record, known, "the record of a run")
        if odd or record["outcome"] not in OUTCOMES:
            raise DataError(
                "this is not the record of a run",
                f"fields {', '.join(odd)}" if odd else f"outcome {record['outcome']!r}",
                "give what Comparison.save wrote",
            )
        return cls(**record)

    def row(self) -> dict[str, Any]:
        """Return one flat row for a table; phases and environment become columns."""
        tables = ("phases", "options", "environment")
        flat = {k: v for k, v in self.to_dict().items() if k not in tables}
        flat |= {f"option_{name}": value for name, value in self.options.items()}
        flat |= {f"seconds_{name}": seconds for name, seconds in self.phases.items()}
        return flat | {f"environment_{k}": v for k, v in self.environment.items()}


# Runs in a folder, so that a comparison goes on where it was stopped.


class Store:
    """A folder with one file per run.

    Parameters
    ----------
    folder : path
        Made where it does not exist.

    Raises
    ------
    DataError
        It is a file, or cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.runs = made_folder(self.folder / "runs")

    def key(
        self, problem: str, profile: SolverProfile, tolerance: float, repeat: int, *asked: Any
    ) -> str:
        """Return the name of a run: everything that decides its result, but the time limit."""
        from optfair import __version__

        facts = (dict(profile.tolerance), dict(profile.fixed), dict(profile.options))
        parts = (problem, profile.name, profile.version, facts, tolerance, repeat, __version__)
        parts += tuple(v for v in asked if v)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]

    def read(self, key: str, time_limit: float) -> Run | None:
        """Return a run that still says what happens within this limit, else None."""
        try:
            run = Run.from_dict(read_json(self.runs / f"{key}.json"))
        except DataError:  # what is not there, or is not ours, is made again
            return None
        if run.outcome == "crashed":  # memory or an installation may be better now
            return None
        same = run.time_limit == time_limit
        done = run.outcome != "time_limit" and (run.seconds or 0.0) <= min(
            time_limit, run.time_limit
        )
        return run if same or done else None

    def write(self, key: str, run: Run) -> None:
        """Keep a run; the file is there whole or not at all."""
        write_text(self.runs / f"{key}.json", json.dumps(run.to_dict(), indent=1))


# Where runs were made: versions and machine.

PACKAGES = ("cvxpy", "numpy", "scipy")


@lru_cache(maxsize=1)
def environment() -> dict[str, str]:
    """Return versions and machine, by name; nothing in it names a person or a host."""
    from optfair import __version__

    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    clock = _frequency()
    return {
        "optfair": __version__,
        "python": platform.python_version(),
        **versions,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        **({"frequency": clock} if clock else {}),
        "memory": _memory(),
        "blas": _blas(),
    }


def _memory() -> str:
    """Return the memory of the machine."""
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB"
    except (AttributeError, OSError, ValueError):  # a system that does not say
        return ""


def _blas() -> str:
    """Return the libraries of linear algebra that are loaded, with version and kind of processor."""
    import scipy.linalg  # it may bring one of its own
    from threadpoolctl import threadpool_info

    del scipy
    names = {
        " ".join(str(i[k]) for k in ("internal_api", "version", "architecture") if i.get(k))
        for i in threadpool_info()
        if i["user_api"] == "blas"
    }
    return ", ".join(sorted(names))


def _processor() -> str:
    return _cpu_fact("model name") or platform.processor() or platform.machine()


# Linux: where the highest frequency of the first processor stands, in kHz; its facts as text.
CLOCK, FACTS = (
    Path("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"),
    Path("/proc/cpuinfo"),
)


def _frequency() -> str:
    """Return the frequency of the processor, empty where the machine does not say.

    The highest one where there is a governor: what runs at the moment is no fact of a machine.
    """
    try:
        hertz = 1e3 * float(CLOCK.read_text())
    except (OSError, ValueError):
        try:
            hertz = 1e6 * float(_cpu_fact("cpu MHz"))
        except ValueError:
            return ""
    return f"{hertz / 1e9:.1f} GHz" if 0 < hertz < math.inf else ""


def _cpu_fact(name: str) -> str:
    try:
        lines = FACTS.read_text().splitlines()
    except OSError:
        return ""
    facts = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(facts, "")


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
    sizes = (line.split()[1] for line in lines if line.startswith(field))
    return next((int(kilobytes) / 1e3 for kilobytes in sizes), math.nan)


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
NOT_ASKED: dict[type[OptfairError], str] = {
    UnsupportedProblem: "refused",
    NotInstalled: "not_installed",
    NotLicensed: "not_licensed",
    SizeLimited: "not_licensed",
}


def allowance(time_limit: float) -> float:
    """Return the seconds after which a run is ended from outside.

    A solver looks at the clock between steps, and compiling does not look at all.
    """
    return 1.25 * time_limit + 2.0


def measured(
    problem: Problem,
    solver: str,
    tolerance: float,
    time_limit: float,
    options: Mapping[str, Any] | None = None,
    memory_limit: float | None = None,
) -> dict[str, Any]:
    """Return outcome, times, memory and residuals of one run.

    Parameters
    ----------
    problem : Problem
        What to solve.
    solver : str
        By whom.
    tolerance, time_limit : float
        What to ask.
    options : dict, optional
        Further options by the solver's own names.
    memory_limit : float, optional
        Megabytes the call may add.

    Notes
    -----
    The solver has solved a problem of two variables before, so that loading it is not timed.
    """
    from threadpoolctl import threadpool_limits

    from optfair.backends.registry import profile

    facts = profile(solver)
    # one that has no clock is ended from outside
    limit = time_limit if "time_limit" in facts.options else None
    with threadpool_limits(1):
        _end_after(LOADING + allowance(time_limit))
        _warm_up(facts)
        reset_peak()
        before = resident_megabytes()
        _allow_memory(memory_limit)
        _end_after(allowance(time_limit))
        cpu, begin = _cpu_seconds(), time.perf_counter()
        solution, error = None, None
        try:
            more: Any = {"options": dict(options)} if options else {}
            solution = problem.solve(solver, tolerance=tolerance, time_limit=limit, **more)
        except Exception as e:  # whatever a solver's library raises is a finding about that solver
            error = e
        seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - cpu
        _end_after(0.0)
        peak = peak_megabytes()
        outcome = _point(solution, tolerance) if error is None and solution else _raised(error)
        if memory_limit is not None and _wanted_memory(error):
            outcome = {"outcome": "memory_limit", "reason": f"more than {memory_limit:g} MB"}
        elif isinstance(error, SolverFailure) and error.solution is not None:
            # what it came to is a finding, too; that it was not accepted stays one
            outcome = _point(error.solution, tolerance) | outcome
    if seconds > time_limit and outcome["outcome"] not in (*UNASKED, "crashed"):
        late = f"{outcome['outcome'].replace('_', ' ')} after {seconds:.1f} s"
        late = ": ".join(filter(None, (late, outcome["reason"])))
        outcome |= {"outcome": "time_limit", "reason": late}
    return outcome | {
        "load": None if not hasattr(os, "getloadavg") else os.getloadavg()[0],
        "seconds": seconds,
        "cpu_seconds": cpu,
        "megabytes": finite(peak),
        "megabytes_added": finite(max(0.0, peak - before)),
    }


def _passes(r: Residuals) -> float | None:
    """Return the least tolerance that residuals pass, a little more where it is no end of a range."""
    low, high = -16.0, 0.0
    if r.above(10.0**high):
        return None
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if r.above(10.0**middle) else (low, middle)
    return float(10.0**high)


def _point(s: Solution, tolerance: float) -> dict[str, Any]:
    r = s.residuals()
    above = r.above(tolerance)
    if not above:
        outcome, reason = "solved", ""
    elif s.status.termination == "local" and r.feasibility <= tolerance:
        outcome, reason = "local", "a local optimum, as its solver says; no bound"
    else:
        outcome = "time_limit" if s.status.termination == "time_limit" else "failed"
        reason = "; ".join([f"it ended: {s.status.termination.replace('_', ' ')}", *above])
    return {
        "outcome": outcome,
        "reason": reason,
        "objective": finite(s.objective),
        "bound": finite(s.bound),
        "feasibility": finite(r.feasibility),
        "dual": finite(r.dual),
        "gap": finite(r.gap),
        "passes": _passes(r),
        "grade": str(s.grade),
        "phases": dict(s.seconds),
    }


def _raised(error: Exception | None) -> dict[str, Any]:
    if isinstance(error, (Infeasible, Unbounded)) and error.certificate is not None:
        word = "infeasible" if isinstance(error, Infeasible) else "unbounded"
        if error.certificate.verify():
            return {"outcome": word, "reason": error.cause}
        return {"outcome": "failed", "reason": f"its certificate proves nothing: {word}"}
    if isinstance(error, OptfairError):
        outcome = next((v for k, v in NOT_ASKED.items() if isinstance(error, k)), "failed")
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


def can_limit_memory() -> bool:
    """Whether this system holds a process to a limit of memory."""
    return importlib.util.find_spec("resource") is not None and STATUS.exists()


def _allow_memory(megabytes: float | None) -> None:
    """Let this process have so much more memory than it has, where there is a limit."""
    if megabytes is not None:
        import resource

        # what may be written: a thread reserves addresses that it never uses
        top = int(1e6 * (_status("VmData:") + megabytes))
        resource.setrlimit(resource.RLIMIT_DATA, (top, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _wanted_memory(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, says that there was no memory, also for a thread."""
    while error is not None:
        message = str(error).lower()
        if (
            isinstance(error, MemoryError)
            or "memory" in message
            or "thread could not be" in message
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _end_after(seconds: float) -> None:
    """Let the system end this process, whatever it does then; 0 calls it off."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)
