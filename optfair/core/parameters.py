"""CVXPY parameters whose values were taken when a term was declared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.core.expressions import substitute
from optfair.core.nonfinite import entry
from optfair.errors import DeclarationError

if TYPE_CHECKING:
    from optfair.core.term import Term

__all__ = ["FrozenParameter", "check_parameters", "freeze_parameters"]

# an array with more entries is shown by the one that changed
_SHOWN = 6


@dataclass(frozen=True, eq=False)
class FrozenParameter:
    """A parameter and its value when the term was declared.

    Parameters
    ----------
    parameter : cvxpy.Parameter
        What the user may set to another value afterwards.
    value : array or sparse array
        A copy of what it was.
    """

    parameter: Any
    value: Any

    @property
    def changed(self) -> bool:
        """Whether the parameter has another value now, or none."""
        now = _value(self.parameter)
        if now is None or np.shape(now) != np.shape(self.value):
            return True
        if hasattr(now, "toarray") and hasattr(self.value, "toarray"):
            return bool((now != self.value).nnz)
        return not np.array_equal(_dense(now), _dense(self.value))

    def difference(self) -> tuple[str, str]:
        """Return the declared and the present value in words, of one entry if there are many."""
        then, now = _dense(self.value), _value(self.parameter)
        if now is None:
            return _text(then), "nothing"
        now = _dense(now)
        if then.size <= _SHOWN or now.shape != then.shape:
            return _text(then), _text(now)
        place = tuple(int(i) for i in np.argwhere(now != then)[0])
        where = f" at {entry(place)}"
        return f"{then[place]}{where}", f"{now[place]}{where}"


def _value(parameter: Any) -> Any:
    """Return the value of a parameter; that of a sparse one without spreading it out."""
    if parameter.attributes.get("sparsity"):
        return parameter.value_sparse
    return parameter.value


def _dense(value: Any) -> Any:
    return value.toarray() if hasattr(value, "toarray") else np.asarray(value)


def _text(value: Any) -> str:
    text = str(value.item() if value.size == 1 else value)
    return " ".join(text.split())


def freeze_parameters(expression: Any, name: str) -> tuple[Any, tuple[FrozenParameter, ...]]:
    """Replace parameters by their values: a declared problem does not change afterwards.

    Parameters
    ----------
    expression : cvxpy.Expression or cvxpy.Constraint
        What somebody wrote.
    name : str
        Name of the term.

    Returns
    -------
    (expression, tuple of FrozenParameter)
        The expression on constants, and what they were taken from.

    Raises
    ------
    DeclarationError
        A parameter has no value.
    """
    swaps, frozen = {}, []
    for parameter in expression.parameters():
        value = _value(parameter)
        if value is None:
            raise DeclarationError(
                f"parameter {parameter.name()!r} in {name!r} has no value",
                remedy="set its value before the term is declared",
            )
        # a copy: the array may be filled with other numbers afterwards
        value = value.copy() if hasattr(value, "toarray") else np.array(value)
        frozen.append(FrozenParameter(parameter, value))
        swaps[id(parameter)] = cp.Constant(value)
    return (substitute(expression, swaps) if swaps else expression), tuple(frozen)


def check_parameters(terms: Iterable[Term]) -> None:
    """Refuse terms whose parameters have other values now than when they were declared.

    Raises
    ------
    DeclarationError
        Names the parameter, the term, and both values.
    """
    seen: set[FrozenParameter] = set()
    for term in terms:
        for frozen in term.parameters:
            if frozen not in seen and frozen.changed:
                then, now = frozen.difference()
                name = frozen.parameter.name()
                raise DeclarationError(
                    f"parameter {name!r} in {term.name!r} was {then} when the problem was"
                    f" declared, and is {now} now",
                    "a declared problem does not change: it holds the values of its declaration",
                    "declare it again with optfair.from_cvxpy(problem) (or add the constraint"
                    f" again), or set {name!r} back",
                )
            seen.add(frozen)
