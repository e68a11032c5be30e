"""What rules on masses need of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.rule import Rule
from optfair.errors import DeclarationError, nearest

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["between", "finite_vector", "group_vector", "mass_target"]


def mass_target(problem: Problem, rule: Rule) -> tuple[Any, NDArray[np.float64]]:
    """Return (masses variable, group shares).

    Raises
    ------
    DeclarationError
        The problem has no masses.
    """
    if "masses" not in problem.variables or "shares" not in problem.data:
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on group masses",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with FairAssignment",
        )
    return problem["masses"], np.asarray(problem.data["shares"])


def between(value: Any, lower: float, upper: float) -> bool:
    """Whether a value is one number in an interval."""
    try:
        return np.ndim(value) == 0 and lower <= float(value) <= upper
    except (TypeError, ValueError):
        return False


def finite_vector(value: Any, size: int, what: str) -> NDArray[np.float64]:
    """Return ``size`` finite numbers from one number or as many."""
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if numbers.shape not in ((), (size,)) or not np.isfinite(numbers).all():
        raise DeclarationError(
            f"{what}={value!r} is neither a finite number nor {size} of them",
            remedy=f"give one number, or {size}",
        )
    return np.broadcast_to(numbers, (size,)).copy()


def group_vector(value: Any, problem: Problem, what: str, default: float) -> NDArray[np.float64]:
    """Return one number per group from a number or a dict by group label."""
    names = list(problem.data["group_names"])
    if value is None:
        return np.full(len(names), default)
    value = value.to_dict() if hasattr(value, "to_dict") else value  # a pandas Series, by label
    if isinstance(value, Mapping):
        known = {str(n): i for i, n in enumerate(names)}
        out = np.full(len(names), default)
        for label, number in value.items():
            if str(label) not in known:
                raise DeclarationError(
                    f"{what} names an unknown group {label!r}", remedy=nearest(str(label), known)
                )
            out[known[str(label)]] = number
        return out
    return finite_vector(value, len(names), what)
