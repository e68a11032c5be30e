"""Problems from CVXPY: anybody's problem wrapped, and declarations from named expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.classify import constraint_term, model_goal, model_term, objective_term
from optfair.core.expressions import substitute
from optfair.core.problem import Declaration, Problem, Sense
from optfair.errors import DeclarationError
from optfair.numbers import check_names

__all__ = [
    "AdoptedProblem",
    "declaration",
    "from_cvxpy",
]


# Wrap anybody's CVXPY problem as a declared problem.

# Attributes that stay on the variable because they say what it is, not where it may lie.
_SHAPE = ("symmetric", "diag", "sparsity")
_REFUSED = ("complex", "imag", "hermitian", "NSD")


class AdoptedProblem(Problem):
    """A CVXPY problem with names, evidence and certificates; made by `from_cvxpy`."""

    title = "CVXPY problem"
    unit_from_data = True

    def __init__(self, problem: Any, names: Sequence[str] | None = None) -> None:
        super().__init__({"problem": problem, "names": names})

    @property
    def objective_constant(self) -> float:
        """The objective at the origin, where it is finite."""
        if "_constant" not in self.__dict__:
            zeros = {name: np.zeros(v.shape) for name, v in self.variables.items()}
            value = self.objective_value(zeros)
            self._set(_constant=value if np.isfinite(value) else 0.0)
        constant: float = self.__dict__["_constant"]
        return constant

    def declare(self) -> Declaration:
        """Copy the problem onto plain variables; signs and bounds become named terms."""
        problem, given = self.data["problem"], self.data["names"]
        variables: dict[str, Any] = {}
        aliases: dict[Any, str] = {}
        swaps: dict[int, Any] = {}
        integers = set()
        signs: dict[str, Any] = {}
        for old in problem.variables():
            name = _unique(old.name(), variables)
            new = cp.Variable(old.shape, name=name, **_kept(old))
            variables[name], aliases[old], swaps[id(old)] = new, name, new
            signs.update(_sign_constraints(name, old, new))
            if old.attributes["boolean"] or old.attributes["integer"]:
                integers.add(name)
        ids = {v.id: name for name, v in variables.items()}
        constraints: dict[str, Any] = {}
        for i, c in enumerate(problem.constraints):
            label = given[i] if given is not None else (getattr(c, "label", None) or f"c{i}")
            constraints[_unique(str(label), constraints)] = substitute(c, swaps)
        sense = "minimize" if isinstance(problem.objective, cp.Minimize) else "maximize"
        goal = substitute(problem.objective.args[0], swaps)
        objective = (objective_term("objective", goal, ids, sense),)
        terms = [constraint_term(name, c, ids) for name, c in {**constraints, **signs}.items()]
        return Declaration(
            variables,
            "minimize" if sense == "minimize" else "maximize",
            tuple(replace(t, origin="model") for t in objective),
            tuple(replace(t, origin="model") for t in terms),
            frozenset(integers),
            aliases,
        )


def _unique(name: str, taken: Any) -> str:
    candidate, i = name, 1
    while candidate in taken:
        i += 1
        candidate = f"{name} {i}"
    return candidate


def _kept(variable: Any) -> dict[str, Any]:
    a = variable.attributes
    refused = [k for k in _REFUSED if a.get(k)]
    if refused:
        raise DeclarationError(
            f"variable {variable.name()!r} is {refused[0]}",
            "only real variables with sign, bound, symmetry, PSD and integrality attributes are known",
            "write it with real variables and constraints",
        )
    partial = [k for k in ("boolean", "integer") if a.get(k) and a[k] is not True]
    if partial:
        raise DeclarationError(
            f"variable {variable.name()!r} is {partial[0]} in some entries only",
            remedy="split it into an integer and a continuous variable",
        )
    kept = {k: a[k] for k in _SHAPE if a.get(k)}
    if a.get("PSD"):
        kept["symmetric"] = True
    return kept


def _sign_constraints(name: str, old: Any, new: Any) -> dict[str, Any]:
    a = old.attributes
    found: dict[str, Any] = {}
    if a.get("nonneg") or a.get("pos"):
        found[f"{name} nonnegative"] = new >= 0
    if a.get("nonpos") or a.get("neg"):
        found[f"{name} nonpositive"] = new <= 0
    if a.get("PSD"):
        found[f"{name} psd"] = new >> 0
    if a.get("boolean"):
        found[f"{name} lower"], found[f"{name} upper"] = new >= 0, new <= 1
    if a.get("bounds"):
        for word, bound in zip(("lower", "upper"), a["bounds"], strict=True):
            if bound is None:
                continue
            if isinstance(bound, cp.Expression):  # of parameters
                found[f"{name} {word}"] = new >= bound if word == "lower" else new <= bound
                continue
            limit = np.broadcast_to(np.asarray(bound, dtype=float), new.shape)
            finite = np.isfinite(limit)
            if finite.all():
                found[f"{name} {word}"] = new >= limit if word == "lower" else new <= limit
            elif finite.any():
                part, limit = new[finite], limit[finite]
                found[f"{name} {word}"] = part >= limit if word == "lower" else part <= limit
    return found


def from_cvxpy(problem: Any, names: Sequence[str] | None = None) -> AdoptedProblem:
    """Wrap a CVXPY problem, so that it is classified, certified, composed and verified.

    Parameters
    ----------
    problem : cvxpy.Problem
        Any problem in real variables. Signs, bounds, PSD and integrality of its variables
        become named terms; constraints may still be written on its own variables. Infinite
        bounds bind nothing. Parameters are read once: when one has another value afterwards,
        whatever solves, verifies, explains or writes the problem says so.
    names : sequence of str, optional
        A name per constraint, in order; by default their labels, else c0, c1, ...

    Returns
    -------
    AdoptedProblem

    Raises
    ------
    DeclarationError
        Complex or partly integer variables, a parameter without value, NaN, infinity that is
        no bound, a bound that no number meets.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(3, name="x", nonneg=True)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 1)), [cp.sum(x) == 1]), ["budget"])
    >>> print(p.explain())
    objective: minimize convex quadratic -> QP
    budget: affine in Zero -> LP
    x nonnegative: affine in Nonpositive -> LP
    together: QP
    >>> round(float(p.solve().shadow_price["budget"]), 4)
    -1.3333
    """
    if not isinstance(problem, cp.Problem):
        raise DeclarationError(
            f"from_cvxpy got a {type(problem).__name__}", remedy="give a cvxpy.Problem"
        )
    if isinstance(names, str):
        raise DeclarationError(
            f"names is the text {names!r}",
            remedy=f"give a list, a name per constraint: [{names!r}]",
        )
    names = None if names is None else check_names(names, "names")
    if names is not None and len(names) != len(problem.constraints):
        raise DeclarationError(
            f"{len(names)} names for {len(problem.constraints)} constraints",
            remedy="give one name per constraint, in order",
        )
    return AdoptedProblem(problem, names)


# Turn named CVXPY expressions into a declaration.


def declaration(
    sense: Sense,
    objective: Mapping[str, Any],
    constraints: Mapping[str, Any],
    *,
    latex: Mapping[str, str],
    integers: frozenset[str] = frozenset(),
) -> Declaration:
    """Return the declaration of a small model from its expressions.

    Every term is analysed when it is declared, which a model of a few rows can afford.

    Parameters
    ----------
    sense : {"minimize", "maximize"}
        Direction of the objective.
    objective, constraints : dict
        Name -> CVXPY expression, name -> CVXPY constraint. Their variables are the
        variables of the model, under their own names.
    latex : dict
        Name of a term -> how it is printed.
    integers : frozenset of str
        Names of integer variables.
    """
    variables = {
        v.name(): v
        for part in (*objective.values(), *constraints.values())
        for v in part.variables()
    }
    return Declaration(
        variables,
        sense,
        tuple(model_goal(name, e, latex[name], sense) for name, e in objective.items()),
        tuple(model_term(name, c, latex[name]) for name, c in constraints.items()),
        integers,
    )
