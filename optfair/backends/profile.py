"""What a solver can do, read from its file of facts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair.errors import DeclarationError, nearest
from optfair.registry import load_facts

if TYPE_CHECKING:
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
    """

    why: str
    tighter: float = 1.0
    classes: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


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
        Where one step may take longer than a time limit: problems of more numbers in their
        matrices are, under a limit, solved in a process of their own, which is ended soon after it.
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
    quirks: Mapping[str, str] = field(default_factory=dict)
    reports: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    retry: tuple[Retry, ...] = ()

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
        if forcing:
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


def _retry(table: dict[str, Any]) -> Retry:
    return Retry(**{**table, "classes": tuple(table.get("classes", ()))})


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
        facts["retry"] = tuple(_retry(table) for table in facts.get("retry", ()))
        return SolverProfile(**facts)
    except TypeError as e:
        raise DeclarationError(f"{path} is incomplete", str(e), "add the missing keys") from None
