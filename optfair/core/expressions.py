"""What the core needs of CVXPY expressions: substitution and evaluation without side effects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.constraints import Equality, ExpCone, Inequality, PowCone3D
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Values = Mapping[str, Any]

__all__ = [
    "Evaluator",
    "Values",
    "dense",
    "fresh_copy",
    "substitute",
    "variable_names",
]


def substitute(expression: Any, replacements: Mapping[int, Any]) -> Any:
    """Return a copy of an expression or constraint with variables replaced, by ``id(variable)``."""
    return expression.tree_copy(id_objects=dict(replacements))


def fresh_copy(variable: Any, *, integer: bool = False) -> Any:
    """Return a new variable with the same shape, name and attributes."""
    attributes = {k: v for k, v in variable.attributes.items() if v not in (None, False)}
    if integer:
        attributes["integer"] = True
    return cp.Variable(variable.shape, name=variable.name(), **attributes)


class Evaluator:
    """Evaluates one expression or constraint at many points.

    The first call copies it onto variables of its own, so those of the problem never hold a
    value; later calls only fill these in. A copy takes longer than an evaluation.

    Parameters
    ----------
    expression : cvxpy.Expression or cvxpy.Constraint
        What to evaluate.
    names : mapping
        CVXPY variable id -> name in the values.
    """

    def __init__(self, expression: Any, names: Mapping[int, str]) -> None:
        self._expression = expression
        self._names = names
        self._lock = threading.Lock()
        self._copy: Any = None
        self._leaves: dict[Any, str] = {}

    def read(self, values: Values, what: Callable[[Any], Any]) -> Any:
        """Return ``what(copy)`` while the variables of the copy hold the values."""
        # outside a domain the value is infinite or NaN, no accident
        with self._lock, np.errstate(all="ignore"):
            if self._copy is None:
                self._prepare()
            try:
                for leaf, name in self._leaves.items():
                    x = np.asarray(values[name], dtype=float).reshape(leaf.shape)
                    # unlike ``.value =`` this takes NaN: a broken point must evaluate, not raise
                    leaf.save_value(x)
                return what(self._copy)
            finally:
                for leaf in self._leaves:
                    leaf.save_value(None)

    def _prepare(self) -> None:
        e, swaps = self._expression, {}
        for variable in e.variables():
            copy = cp.Variable(variable.shape, name=variable.name())
            swaps[id(variable)] = copy
            self._leaves[copy] = self._names[variable.id]
        if isinstance(e, (Equality, Inequality)):
            sides = [substitute(side, swaps) for side in e.args]
            self._copy = _Sides(sides, isinstance(e, Equality))
        else:
            self._copy = substitute(e, swaps)

    def value(self, values: Values) -> Floats:
        """Return the value of an expression."""
        return np.asarray(self.read(values, lambda e: e.value), dtype=float)

    def violation(self, values: Values) -> Floats:
        """Return how far a constraint is violated, elementwise."""
        return np.asarray(np.abs(self.read(values, _violation)), dtype=float)


@dataclass(frozen=True)
class _Sides:
    """Both sides of an equality or inequality: copying the constraint takes twice as long."""

    args: Sequence[Any]
    equality: bool

    def violation(self) -> Any:
        left, right = (dense(side.value) for side in self.args)
        return left - right if self.equality else np.maximum(left - right, 0.0)


def dense(value: Any) -> Floats:
    """Return a value of CVXPY, which may be sparse, as an array."""
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=float)


def _violation(constraint: Any) -> Any:
    if isinstance(constraint, PowCone3D):
        # CVXPY solves a program for the distance, to 1e-9 at best; this is 0 on the cone and
        # bounds the distance in the largest entry outside it
        x, y, z = (np.asarray(arg.value, dtype=float) for arg in constraint.args)
        power = np.asarray(constraint.alpha.value, dtype=float)
        base = np.maximum(x, 0.0) ** power * np.maximum(y, 0.0) ** (1.0 - power)
        return np.maximum(np.maximum(np.abs(z) - base, 0.0), np.maximum(-x, -y))
    if isinstance(constraint, ExpCone):  # the same for y exp(x / y) <= z
        x, y, z = (np.asarray(arg.value, dtype=float) for arg in constraint.args)
        tiny = np.finfo(float).tiny
        with np.errstate(over="ignore"):
            above = y * np.exp(x / np.maximum(y, tiny)) - z
        edge = np.maximum(-y, np.maximum(x, -z))
        return np.maximum(np.where(y > tiny, above, edge), 0.0)
    return constraint.violation()


def variable_names(
    constraint: Any, names: Mapping[int, str]
) -> tuple[frozenset[str], Sequence[str]]:
    """Return (names of the known variables, descriptions of the unknown ones)."""
    known, unknown = set(), []
    for variable in constraint.variables():
        if variable.id in names:
            known.add(names[variable.id])
        else:
            unknown.append(f"{variable.name()} {variable.shape}")
    return frozenset(known), unknown
