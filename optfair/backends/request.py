"""What is asked of a solver, and what comes back before it is verified."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.solution import Solution
from optfair.errors import DeclarationError, UnsupportedProblem
from optfair.numbers import Floats, check_level, real

if TYPE_CHECKING:
    from optfair.backends.profile import Retry, SolverProfile
    from optfair.core.certificate import DualProof
    from optfair.core.problem import Problem

# An objective beyond this is taken to have no limit where nothing proves one.
LEAST = 1e12
# An objective below this is measured by it when a gap is small enough to stop.
SMALL = 1e-4


@dataclass(frozen=True)
class Request:
    """Options that mean the same for every solver.

    Parameters
    ----------
    tolerance : float
        Relative residual at which a result counts as optimal.
    time_limit : float or None
        Wall seconds over the whole verb.
    threads : int
        Threads the solver may use.
    seed : int or None
        Seed, for solvers that have one.
    verbose : int
        0 silent, 1 progress, 2 the solver's own log.
    warm_start : Solution or None
        Where to start.
    options : dict
        Options by the solver's own names.
    started : float
        ``time.perf_counter()`` when the verb began.
    isolate : bool
        Solve in a process of its own, which may crash or hang.
    tighter : float
        What the tolerances handed to the solver are divided by; the result is held to
        ``tolerance`` in any case.
    """

    tolerance: float = 1e-7
    time_limit: float | None = None
    threads: int = 1
    seed: int | None = None
    verbose: int = 0
    warm_start: Solution | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)
    isolate: bool = False
    tighter: float = 1.0

    def __post_init__(self) -> None:
        checks = {
            f"tolerance {self.tolerance!r} is not between 1e-12 and 1": 1e-12
            <= real(self.tolerance)
            < 1,
            f"time_limit {self.time_limit!r} is not positive": self.time_limit is None
            or real(self.time_limit) > 0,
            f"threads {self.threads!r} is not a positive integer": real(self.threads) >= 1
            and real(self.threads) % 1 == 0,
            f"seed {self.seed!r} is not an integer from 0 to 2147483647": self.seed is None
            or (0 <= real(self.seed) < 2**31 and real(self.seed) % 1 == 0),
            f"warm_start is a {type(self.warm_start).__name__}, not a Solution": self.warm_start
            is None
            or isinstance(self.warm_start, Solution),
        }
        for message, fine in checks.items():
            if not fine:
                raise DeclarationError(message, remedy="correct the option")
        object.__setattr__(self, "verbose", check_level(self.verbose, "verbose"))
        # solvers tell 2.0 and NumPy's 2 from 2
        for name in ("threads", "seed"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else int(value))

    @property
    def deadline(self) -> float:
        """``time.perf_counter()`` value after which to stop."""
        return np.inf if self.time_limit is None else self.started + self.time_limit

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, at least a millisecond."""
        return max(1e-3, self.deadline - time.perf_counter())

    def solver_options(self, profile: SolverProfile) -> dict[str, Any]:
        """Return the options by the solver's own names.

        Raises
        ------
        UnsupportedProblem
            The solver has no such option.
        """
        chosen: dict[str, Any] = dict(profile.fixed)
        asked = dict(profile.tolerance)
        share = asked.pop("share", 1.0) / self.tighter
        value = max(self.tolerance * share, asked.pop("smallest", 0.0))
        for option in asked.values():
            chosen[option] = value
        general = {
            "time_limit": None if self.time_limit is None else self.seconds_left,
            "threads": self.threads,
            "seed": self.seed,
        }
        for name, wanted in general.items():
            if wanted is None or (name == "time_limit" and self.apart(profile) is not None):
                continue
            if name in profile.options:
                chosen[profile.options[name]] = wanted
            elif not (name == "threads" and wanted == 1):
                raise UnsupportedProblem(
                    f"{profile.name} has no option for {name}",
                    f"it has {', '.join(profile.options) or 'none of time_limit, threads, seed'}",
                    f"leave {name} out, or choose another solver",
                )
        known = set(profile.known_options) | set(chosen)
        unknown = [
            repr(name) for name in self.options if profile.known_options and name not in known
        ]
        if unknown:
            raise UnsupportedProblem(
                f"{profile.name} has no option {', '.join(unknown)}",
                f"it would pass over it in silence; it has {', '.join(sorted(known))}",
                "correct or remove the option",
            )
        chosen.update(self.options)
        return chosen

    def apart(self, profile: SolverProfile) -> float | None:
        """Return after how many seconds to end the solver's own process; None to solve here.

        A solver that knows no clock, or was asked to stay out of ours, gets one.
        """
        clocked = self.time_limit is None or "time_limit" in profile.options
        if profile.via != "cvxpy" or (clocked and not self.isolate):
            return None
        return self.seconds_left if self.time_limit is not None else float(np.inf)

    def start(self, problem: Problem) -> tuple[dict[str, Floats] | None, str]:
        """Return the values to start from and "used", or None and why not; "" where none are given."""
        if self.warm_start is None:
            return None, ""
        given = self.warm_start.values
        for name, variable in problem.variables.items():
            if name not in given or np.shape(given[name]) != variable.shape:
                return None, f"not used: it has no value of the shape of {name!r}"
        return {n: np.asarray(given[n], dtype=float) for n in problem.variables}, "used"

    def retried(self, retry: Retry) -> Request:
        """Return what is asked of the same solver next; options that were given stay."""
        options = {**retry.options, **self.options}
        return replace(self, tighter=self.tighter * retry.tighter, options=options)

    def until(self, deadline: float) -> Request:
        """Return the same with less time, where there is a limit."""
        if self.time_limit is None:
            return self
        return replace(self, time_limit=max(1e-3, min(deadline, self.deadline) - self.started))

    def refuse_options(self, profile: SolverProfile) -> None:
        """Refuse what a structured route does not have: it takes no options of its own."""
        self.solver_options(profile)
        if self.options:
            raise UnsupportedProblem(
                f"{profile.name} does not take the options {', '.join(map(repr, self.options))}",
                remedy="leave them out, or name the solver they belong to",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return what was asked for, for the record."""
        return {
            "tolerance": self.tolerance,
            "time_limit": self.time_limit,
            "threads": self.threads,
            "seed": self.seed,
            **dict(self.options),
        }


def refused_options(name: str, why: str) -> UnsupportedProblem:
    """Return what to raise when a solver does not take the options it is handed."""
    return UnsupportedProblem(
        f"{name} does not take these options", why, "correct or remove the option"
    )


def refuse_integers(problem: Problem, profile: SolverProfile) -> None:
    """Raise where a solver would have to branch."""
    if problem.integers:
        raise UnsupportedProblem(
            f"{profile.name} has no integer variables",
            f"{', '.join(map(repr, sorted(problem.integers)))} are integer",
            "solve without them, or choose a solver for integer programs",
        )


def with_whole(problem: Problem, values: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the values of the declared variables, integer ones as the integers they stand for."""
    # + 0.0 turns -0.0 into 0.0
    return {
        name: np.round(values[name]) + 0.0 if name in problem.integers else values[name]
        for name in problem.variables
        if name in values
    }


@dataclass(frozen=True, eq=False)
class Outcome:
    """What an adapter hands back.

    Attributes
    ----------
    termination : str
        optimal, local, inaccurate, time_limit, interrupted, stalled, failed.
    values, multipliers : mapping
        By name; empty when there is no point.
    proof : DualProof or None
        Proof of the bound.
    seconds : dict
        Seconds of compile, solve and recover.
    progress : tuple
        Rounds of a structured algorithm.
    warm_start : str
        "used", or why not; empty when the profile knows.
    iterations : dict
        Of the solver, where it says them: of this solve, and of the first without a start.
    kept : str
        What of an earlier solve it started from.
    """

    termination: str
    values: Mapping[str, Any]
    multipliers: Mapping[str, Any]
    proof: DualProof | None
    seconds: Mapping[str, float]
    progress: tuple[Any, ...] = ()
    warm_start: str = ""
    iterations: Mapping[str, int] = field(default_factory=dict)
    kept: str = ""


def stages(begin: float, compiled_at: float, solved_at: float) -> dict[str, float]:
    """Return the seconds of compile and solve, and of what was recovered since."""
    recovered = time.perf_counter() - solved_at
    return {"compile": compiled_at - begin, "solve": solved_at - compiled_at, "recover": recovered}


@dataclass(frozen=True, eq=False)
class RawPoint:
    """What a solver leaves on the compiled cone program.

    Attributes
    ----------
    status : str
        optimal, inaccurate, time_limit, interrupted, infeasible, unbounded,
        infeasible_or_unbounded, or the solver's own word for a failure.
    x : array or None
        Primal point.
    z : array or None
        Multipliers, or a Farkas vector when infeasible.
    bound : float or None
        Bound of branch and bound on the compiled objective, offset included.
    iterations : int or None
        Of the solver, where it says them.
    kept : str
        What of an earlier solve it started from.
    """

    status: str
    x: Floats | None = None
    z: Floats | None = None
    bound: float | None = None
    iterations: int | None = None
    kept: str = ""
