"""Shadow prices: the one place where the sign of multipliers is converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from cvxpy.constraints import Equality, Inequality, NonPos, Zero
from numpy.typing import NDArray

from optfair.core.solution import LazyValues, check_solution
from optfair.numbers import checked

if TYPE_CHECKING:
    from optfair.core.solution import Solution


@checked(solution=check_solution)
def shadow_prices(solution: Solution) -> Mapping[str, Any]:
    r"""Return d(optimum)/d(right-hand side) by constraint name.

    The right-hand side is the constant side of ``left <= right``, ``left >= right`` and
    ``left == right``; when both sides vary, it is the right one as printed. For a cone
    constraint ``args in K`` it is what is subtracted from the arguments.

    With multipliers y of the minimisation of f + Σ⟨y, left - right⟩, raising the right-hand
    side by δ changes the optimum by -⟨y, δ⟩; under ``maximize`` the optimum is that of -f,
    so its sign turns once more.
    """
    p = solution.problem

    def price(name: str) -> NDArray[Any]:
        y = np.asarray(solution.multipliers[name], dtype=float)
        sign = shadow_price_sign(p.constraints[name].build())
        return y * sign * (1.0 if p.sense == "minimize" else -1.0)

    known = set(solution.multipliers)
    prices = LazyValues({name: _later(price, name) for name in p.constraints if name in known})
    return p.labelled(prices, "prices")


def _later(price: Any, name: str) -> Any:
    return lambda: price(name)


def shadow_price_sign(constraint: Any) -> float:
    """Return the factor from CVXPY's multiplier to d(minimum)/d(right-hand side)."""
    if isinstance(constraint, (Inequality, Equality)):
        left, right = constraint.args
        # CVXPY writes a >= b as b <= a; when the constant stands on the left it is the
        # right-hand side, and raising it moves the constraint function the other way
        flipped = left.is_constant() and not right.is_constant()
        return 1.0 if flipped else -1.0
    if isinstance(constraint, (Zero, NonPos)):
        return -1.0
    return 1.0
