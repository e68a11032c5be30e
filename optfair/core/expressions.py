"""What the core needs of CVXPY expressions: substitution and evaluation without side effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError

Floats = NDArray[np.float64]
Values = Mapping[str, Any]

__all__ = [
    "Values",
    "evaluate",
    "freeze_parameters",
    "fresh_copy",
    "substitute",
    "variable_names",
    "violation",
]


def substitute(expression: Any, replacements: Mapping[int, Any]) -> Any:
    """Return a copy of an expression or constraint with variables replaced, by ``id(variable)``."""
    return expression.tree_copy(id_objects=dict(replacements))


def freeze_parameters(expression: Any, name: str) -> Any:
    """Replace parameters by their values: a declared problem does not change afterwards."""
    swaps = {}
    for parameter in expression.parameters():
        if parameter.value is None:
            raise DeclarationError(
                f"parameter {parameter.name()!r} in {name!r} has no value",
                remedy="set its value before the term is declared",
            )
        swaps[id(parameter)] = cp.Constant(parameter.value)
    return substitute(expression, swaps) if swaps else expression


def fresh_copy(variable: Any, *, integer: bool = False) -> Any:
    """Return a new variable with the same shape, name and attributes."""
    attributes = {k: v for k, v in variable.attributes.items() if v not in (None, False)}
    if integer:
        attributes["integer"] = True
    return cp.Variable(variable.shape, name=variable.name(), **attributes)


def _valued(expression: Any, names: Mapping[int, str], values: Values) -> Any:
    """Copy an expression onto fresh variables that hold the values."""
    replacements = {}
    for variable in expression.variables():
        copy = cp.Variable(variable.shape, name=variable.name())
        # unlike ``.value =`` this takes NaN: a broken point must evaluate, not raise
        copy.save_value(np.asarray(values[names[variable.id]], dtype=float).reshape(variable.shape))
        replacements[id(variable)] = copy
    return substitute(expression, replacements)


def evaluate(expression: Any, names: Mapping[int, str], values: Values) -> Floats:
    """Return an expression's value; the variables themselves never hold one."""
    with np.errstate(all="ignore"):  # outside a domain the value is infinite or NaN, no accident
        return np.asarray(_valued(expression, names, values).value, dtype=float)


def violation(constraint: Any, names: Mapping[int, str], values: Values) -> Floats:
    """Return how far a constraint is violated, elementwise."""
    with np.errstate(all="ignore"):
        found = np.asarray(_valued(constraint, names, values).violation(), dtype=float)
    return np.asarray(np.abs(found), dtype=float)


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
