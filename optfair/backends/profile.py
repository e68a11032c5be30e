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
from optfair.locate import load_facts

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Accept", "Refusal", "SolverProfile", "load_profile"]


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
class SolverProfile:
    """One solver: classes, probe, licence, tolerances, quirks.

    Parameters
    ----------
    name, title : str
        Name users type; one line on what it is.
    via : {"cvxpy", "highspy", "structured"}
        Who talks to it: CVXPY, a direct adapter, or a route of ours.
    cvxpy_name, route : str
        Name CVXPY knows it by; module of the structured algorithm.
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
    objective_scale : {"largest", "typical"}
        Which coefficient of the objective is brought near 1 before it is handed over.
    warm_start : bool
        Whether it starts from a solution that is handed in.
    returns : tuple of str
        What it hands back: primal, dual, farkas, bound.
    tolerance : dict
        Option that carries each tolerance; ``share`` is the part of the asked tolerance
        handed on, ``smallest`` the least value allowed.
    options : dict
        Option names of time_limit, threads, seed.
    fixed : dict
        Options always set.
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
    route: str = ""
    structure: str = ""
    objective_scale: str = "largest"
    warm_start: bool = False
    cones: tuple[str, ...] = ()
    returns: tuple[str, ...] = ("primal", "dual")
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    quirks: Mapping[str, str] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Whether its module can be found (nothing is imported)."""
        return importlib.util.find_spec(self.module) is not None

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
        if not pc.convex:
            culprits = [t for t in problem.terms if not t.evidence.problem_class.convex]
            named = "; ".join(str(t.evidence) for t in culprits)
            reasons.append(f"{self.name} needs a convex problem; this one is {pc} ({named})")
        if pc.name not in self.classes:
            reasons.append(f"{self.name} solves {', '.join(self.classes)}, not {pc.name}")
        elif pc.family == "CONIC":
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
        if not pc.convex:
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
        return SolverProfile(**facts)
    except TypeError as e:
        raise DeclarationError(f"{path} is incomplete", str(e), "add the missing keys") from None
