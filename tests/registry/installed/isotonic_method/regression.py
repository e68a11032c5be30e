"""The problem, and a rule on its answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

import optfair as of
from optfair.core.adopt import declaration
from optfair.core.problem_class import Structure
from optfair.errors import DeclarationError
from optfair.numbers import check_vector

CHAIN = Structure("chain", ("misfit", "order"), frozenset(), "part of the chain")


class IsotonicRegression(of.Problem):
    r"""Increasing numbers nearest to observed ones: min ||x - y||^2, x_1 <= ... <= x_n."""

    title = "IsotonicRegression"
    structures = (CHAIN,)

    def __init__(self, observed: Any) -> None:
        super().__init__({"observed": check_vector(observed, "observed")})

    def declare(self) -> of.core.Declaration:
        y = self.data["observed"]
        x = cp.Variable(y.size, name="fitted")
        return declaration(
            "minimize",
            {"misfit": (cp.sum_squares(x - y), r"\|x - y\|^2")},
            {"order": (x[:-1] <= x[1:], r"x_i \le x_{i+1}")},
        )


@dataclass(frozen=True)
class StepsAtMost(of.Rule):
    """No step is larger than this."""

    largest: float

    def bind(self, problem: of.Problem) -> Any:
        if "fitted" not in problem.variables:
            raise DeclarationError("no steps to bound", remedy="use it with IsotonicRegression")
        x = problem["fitted"]
        return x[1:] - x[:-1] <= self.largest


def steps_at_most(largest: float) -> StepsAtMost:
    """Return the rule."""
    return StepsAtMost(largest)


def largest_step(fitted: Any) -> float:
    """Return the largest step."""
    return float(np.diff(fitted).max())
