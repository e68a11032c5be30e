"""What a solver can do, what is asked of it, and what comes back before it is verified."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.certificate import DualCheck
from optfair.core.solution import Solution
from optfair.errors import DeclarationError, UnsupportedProblem, kind_of, nearest, no_number
from optfair.numbers import Floats, check_level, real
from optfair.registry import load_facts

if TYPE_CHECKING:
    from optfair.core.certificate import DualProof
    from optfair.core.expressions import Values
    from optfair.core.problem import Problem


@dataclass(frozen=True)
class Accept:
    """The solver takes the problem."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class Refusal:
    """The solver does not take the problem: why, and what to do instead."""

    reasons: tuple[str, ...]
    remedies: tuple[str, ...]

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True)
class Retry:
    """What to ask of the same solver next, when its result was rejected.

    Parameters
    ----------
    why : str
        What it is good for, with its source.
    tighter : float
        What the tolerances handed over are divided by.
    classes : tuple of str
        Classes it is tried for; all when there is none.
    options : dict
        Options by the solver's own names.
    units : {"", "sides", "point"}
        Whether right-hand sides, or the last answer, have a say in the units that it is handed.
    """

    why: str
    tighter: float = 1.0
    classes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    units: str = ""


@dataclass(frozen=True)
class SolverProfile:
    """One solver: classes, probe, licence, tolerances, quirks.

    Parameters
    ----------
    name, title : str
        Name users type; one line on what it is.
    via : str
        Who talks to it: "cvxpy", "structured" (a route of ours), or a direct adapter: ``run`` of
        ``backends/VIA_backend.py``; for "FILE:NAME", ``run_NAME`` of ``backends/FILE_backend.py``.
    cvxpy_name, pyomo_name, route : str
        Name CVXPY or Pyomo knows it by; module of the structured algorithm.
    module, package : str
        Import name that shows it is installed; distribution that carries its version.
    licence, kind, install : str
        Licence; "open" or "commercial"; command that installs it.
    classes : tuple of str
        Classes it solves, by name (LP, MILP, SOCP ...).
    cones : tuple of str
        Cones it takes when CONIC is among the classes.
    structure : str
        Structure it needs; it is then not offered by class.
    nonconvex : {"", "global", "local"}
        Whether it takes problems that are not known to be convex: to the global optimum,
        with a bound, or to a local one, without.
    compile_as : str
        CVXPY's name of the interface whose form is compiled, when the solver's own keeps
        its data in a form that cannot be read.
    objective : {"", "linear"}
        "linear" where it takes neither quadratic functions nor cones besides ``cones``.
    objective_scale : {"largest", "typical"}
        Which coefficient of the objective is brought near 1 before it is handed over.
    updates : bool
        Whether CVXPY's interface of it keeps its solver and puts other numbers in.
    stoppable : str
        Module in ``backends/`` whose `Stoppable` CVXPY's interface is handed as the solver it keeps:
        it ends at Ctrl-C with a point. Others are left behind, and leave none.
    deaf : int
        Where nothing else in the process goes on while it solves: problems of more numbers in
        their matrices are solved in a process of their own, so that Ctrl-C is heard.
    coarse : int
        Where one step may take longer than a limit: above so many numbers in matrices, or in the
        data of nonlinear problems, one is kept by a process of its own, which is ended.
    warm_start : bool
        Whether it starts from a solution that is handed in.
    returns : tuple of str
        What it hands back: primal, dual, farkas, ray, bound.
    tolerance : dict
        Option that carries each tolerance; ``share`` is the part of the asked tolerance
        handed on, ``smallest`` the least value allowed.
    options : dict
        Option names of time_limit, threads, seed.
    known_options : tuple of str
        Every option there is, for solvers that pass over those they do not know.
    reports : dict
        Where CVXPY's raw result keeps what its interface passes over, as dotted paths:
        ``bound`` and ``status``; ``interrupted`` is the status after Ctrl-C, ``point`` where it
        ended then.
    misses : tuple of str
        Outcomes it does not recognise: "infeasible", "unbounded", "unbounded QP"; its result
        then fails verification.
    exclusive : bool
        Whether other distributions hold the same module, so that only one can be installed.
    chatty : bool
        Whether it prints although it is told not to; the line is held back.
    probe : str
        Recipe in ``backends/registry.py`` that finds out the state of the licence.
    limits : dict
        Largest problem without a full licence: variables, constraints, and variables of
        problems with a quadratic term.
    fixed : dict
        Options always set.
    bounded : dict
        Options for a linear program that is known to have an optimum, and nothing else.
    large : dict
        Options for a linear program of at least so many ``rows`` of two and more ``entries``.
    curved : dict
        Options for a program with other cones than those of linear rows.
    retry : tuple of Retry
        What to ask next, in order, when a result is rejected.
    quirks : dict
        What surprised somebody, with its source.
    """

    name: str
    title: str
    via: str
    module: str
    package: str
    licence: str
    kind: str
    install: str
    classes: tuple[str, ...]
    cvxpy_name: str = ""
    pyomo_name: str = ""
    route: str = ""
    structure: str = ""
    nonconvex: str = ""
    compile_as: str = ""
    probe: str = ""
    known_options: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    chatty: bool = False
    exclusive: bool = False
    objective: str = ""
    objective_scale: str = "largest"
    warm_start: bool = False
    updates: bool = False
    stoppable: str = ""
    deaf: int = 0
    coarse: int = 0
    cones: tuple[str, ...] = ()
    returns: tuple[str, ...] = ("primal", "dual")
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    bounded: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, Any] = field(default_factory=dict)
    curved: Mapping[str, Any] = field(default_factory=dict)
    quirks: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    retry: tuple[Retry, ...] = ()

    def __repr__(self) -> str:
        state, classes = self.version if self.installed else "(missing)", ", ".join(self.classes)
        return f"Solver {self.name} {state}: {classes}; {self.licence}"

    @property
    def installed(self) -> bool:
        """Whether its module can be found, in its own distribution (nothing is imported)."""
        there = importlib.util.find_spec(self.module) is not None
        return there and (not self.exclusive or bool(self.version))

    @property
    def version(self) -> str:
        """Installed version, empty when it is not installed."""
        return _version(self.package)

    def accepts(self, problem: Problem) -> Accept | Refusal:
        """Answer whether this solver takes a problem, before anything is solved."""
        pc = problem.problem_class
        if self.structure:
            lost = problem.structure_refusal(self.structure)
            if lost:
                why = f"{self.name} needs the structure {self.structure!r}; {lost}"
                return Refusal((why,), ())
        reasons = []
        if not pc.convex and not self.nonconvex:
            culprits = [t for t in problem.terms if not t.evidence.problem_class.convex]
            named = "; ".join(str(t.evidence) for t in culprits)
            reasons.append(f"{self.name} needs a convex problem; this one is {pc} ({named})")
        if pc.name not in self.classes:
            reasons.append(f"{self.name} solves {', '.join(self.classes)}, not {pc.name}")
        elif self.objective == "linear" and (pc.quadratic_objective or pc.quadratic_constraint):
            reasons.append(f"{self.name} takes linear objectives and constraints only")
        elif pc.family == "CONIC" or self.objective == "linear":
            beyond = sorted(pc.cones - set(self.cones))
            if beyond:
                reasons.append(f"{self.name} has no cone {', '.join(beyond)}")
        if reasons:
            return Refusal(tuple(reasons), self._remedies(problem))
        return Accept()

    def _remedies(self, problem: Problem) -> tuple[str, ...]:
        pc = problem.problem_class
        forcing = [
            t.name for t in problem.terms if t.evidence.problem_class.name not in self.classes
        ]
        remedies = []
        if problem.integers and pc.name not in self.classes:
            remedies.append("solve without integer variables")
        if 0 < len(forcing) < len(problem.terms):  # without all of them there is no problem
            remedies.append(f"remove {', '.join(map(repr, forcing))}")
        if not pc.convex and not self.nonconvex:
            remedies.append("write the nonconvex term in a convex form, or relax it")
        return tuple(remedies)


@lru_cache(maxsize=64)  # every solution names a version, and reading the metadata takes a while
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def load_profile(path: Path) -> SolverProfile:
    """Read a solver's file; unknown keys are an error."""
    facts = load_facts(path)
    facts.pop("schema")
    known = {f.name for f in fields(SolverProfile)}
    for key in facts:
        if key not in known:
            raise DeclarationError(f"unknown key {key!r} in {path}", remedy=nearest(key, known))
    facts = {k: tuple(v) if isinstance(v, list) else v for k, v in facts.items()}
    try:
        retries = ({**t, "classes": tuple(t.get("classes", ()))} for t in facts.get("retry", ()))
        facts["retry"] = tuple(Retry(**table) for table in retries)
        return SolverProfile(**facts)
    except TypeError as e:
        raise DeclarationError(f"{path} is incomplete", str(e), "add the missing keys") from None


# An objective beyond this is taken to have no limit where nothing proves one.
LEAST = 1e12
# An objective below this is measured by it when a gap is small enough to stop.
SMALL = 1e-4
# A larger tolerance is the gap that branch and bound may leave; rows are held to this.
COARSE = 1e-4
# Numbers that are not handed over when time is up; times what is left, when a process is ended.
LARGE, LATE = 50_000, 1.2


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
        By the solver's own names.
    started : float
        ``time.perf_counter()`` when the verb began.
    isolate : bool
        Solve in a process of its own, which may crash or hang.
    tighter, units : float, str
        As of `Retry`; the result is held to ``tolerance`` in any case.
    near : array, optional
        The last answer, in compiled columns.
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
    units: str = ""
    near: Floats | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        given, limit, some = self.tolerance, self.time_limit, self.threads
        in_time = limit is None or real(limit) > 0
        checks = {
            f"tolerance {given!r} is not between 1e-12 and 1": 1e-12 <= real(given) < 1,
            f"time_limit {limit!r} is no positive number of seconds": in_time,
            f"threads {some!r} is not a positive integer": real(some) >= 1 and real(some) % 1 == 0,
            f"seed {self.seed!r} is not an integer from 0 to 2147483647": self.seed is None
            or (0 <= real(self.seed) < 2**31 and real(self.seed) % 1 == 0),
            f"warm_start is {kind_of(self.warm_start)}, not a Solution": self.warm_start is None
            or isinstance(self.warm_start, Solution),
        }
        for message, fine in checks.items():
            if not fine:
                why = no_number(given, limit, some, self.seed)
                raise DeclarationError(message, why, "correct the option")
        object.__setattr__(self, "verbose", check_level(self.verbose, "verbose"))
        for name in ("threads", "seed"):  # solvers tell 2.0 and NumPy's 2 from 2
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

    def late(self, size: int) -> bool:
        """Whether time was up before so many numbers are handed over: fewer are solved at once."""
        return size > LARGE and time.perf_counter() > self.deadline

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
        gap = asked.get("gap_of_costs") if self.tolerance > COARSE else None
        value = (COARSE if gap else self.tolerance) * share
        value = max(value, asked.pop("smallest", 0.0))
        chosen |= dict.fromkeys(asked.values(), value)
        chosen |= {gap: 0.9 * self.tolerance / self.tighter} if gap else {}
        general = {
            "time_limit": None if self.time_limit is None else self.seconds_left,
            "threads": self.threads,
            "seed": self.seed,
        }
        for name, wanted in general.items():
            clocked = name == "time_limit" and self.apart(profile) is not None
            if wanted is None:
                continue
            if name in profile.options:
                chosen[profile.options[name]] = wanted
            elif not (clocked or (name == "threads" and wanted == 1)):
                raise UnsupportedProblem(
                    f"{profile.name} has no option for {name}",
                    f"it has {', '.join(profile.options) or 'none of time_limit, threads, seed'}",
                    f"leave {name} out, or choose another solver",
                )
        known = set(profile.known_options) | set(chosen)
        unknown = [repr(n) for n in self.options if profile.known_options and n not in known]
        if unknown:
            raise UnsupportedProblem(
                f"{profile.name} has no option {', '.join(unknown)}",
                f"it would pass over it in silence; it has {', '.join(sorted(known))}",
                "correct or remove the option",
            )
        return {**chosen, **self.options}

    def apart(self, profile: SolverProfile, size: int = 0) -> float | None:
        """Return after how many seconds to end the solver's own process; None to solve here.

        One without a clock gets one, and one that reads its own between long steps at that size.
        """
        if profile.via.partition(":")[0] not in ("cvxpy", "nlp"):
            return None
        if (limited := self.time_limit is not None) and "time_limit" not in profile.options:
            return self.seconds_left
        coarse = limited and 0 < profile.coarse < size
        return LATE * self.seconds_left if self.isolate or coarse else None

    def start(self, problem: Problem) -> tuple[dict[str, Floats] | None, str]:
        """Return the values to start from and "used", or None and why not; "" where none are given."""
        if self.warm_start is None:
            return None, ""
        given = self.warm_start.values
        for name, variable in problem.variables.items():
            if name not in given or np.shape(given[name]) != variable.shape:
                return None, f"not used: it has no value of the shape of {name!r}"
        return {n: np.asarray(given[n], dtype=float) for n in problem.variables}, "used"

    def retried(self, retry: Retry, near: Floats | None = None) -> Request:
        """Return what is asked of the same solver next; options that were given stay."""
        more = replace(self, tighter=self.tighter * retry.tighter, units=retry.units, near=near)
        return replace(more, options={**retry.options, **self.options})

    def until(self, deadline: float) -> Request:
        """Return the same with less time, where there is a limit."""
        left = max(1e-3, min(deadline, self.deadline) - self.started)
        return self if self.time_limit is None else replace(self, time_limit=left)

    def satisfied(self, problem: Problem, values: Values) -> bool:
        """Return whether values satisfy all constraints, within the tolerance."""
        off = (t.relative_violation(values) for t in problem.constraints.values())
        return max(off, default=0.0) <= self.tolerance

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
    return {  # + 0.0 turns -0.0 into 0.0
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


@dataclass(frozen=True)
class ReportedBound:
    """A bound of branch and bound, taken from the solver; ``unit``: the least size of an objective."""

    problem: Problem
    bound: float
    by: str
    unit: float = 1.0

    @property
    def source(self) -> str:
        """Who reports it."""
        return f"branch and bound of {self.by}, as reported"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Return the reported bound, and the rows of the point in their own terms."""
        from optfair.backends.global_backend import worst_row

        rows = worst_row(self._form, values)
        return DualCheck(self.bound, 0.0, reported=self.by, unit=self.unit, rows=rows)

    def entry_sizes(self, name: str, values: Values, stated: Any = None) -> Floats:
        """Return the size of each entry of a constraint, 0 where its right-hand side tells it."""
        from optfair.backends.global_backend import entry_sizes

        return entry_sizes(self._form, name, values, stated)

    @cached_property
    def _form(self) -> Any:
        """The problem in quadratics, None where they do not state it."""
        from optfair.backends.global_backend import quadratic_form

        with suppress(UnsupportedProblem):
            return quadratic_form(self.problem)
        return None
