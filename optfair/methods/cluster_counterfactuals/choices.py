"""Counterfactuals with one-hot groups: what is left of each choice of categories is solved by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core.certificate import (
    Certificate,
    DualCheck,
    Verdict,
    least_check,
    recomputed,
    unvouched,
)
from optfair.core.expressions import Values
from optfair.core.solution import Solution
from optfair.errors import Infeasible
from optfair.features.feature_problem import Box
from optfair.methods.cluster_counterfactuals.algorithms.polyhedra import weighted
from optfair.methods.cluster_counterfactuals.point_problem import terms_loss
from optfair.methods.cluster_counterfactuals.rules import OneHot
from optfair.numbers import Floats, Indices
from optfair.proofs.definiteness import definiteness
from optfair.proofs.rounding import loss

if TYPE_CHECKING:
    from optfair.methods.cluster_counterfactuals.cluster_counterfactual import (
        ClusterCounterfactual,
    )

ONE_HOT_CHOICES = "one-hot-choices"
# So many choices of categories are gone through, at most: each takes milliseconds.
MOST = 256
# Share of what a matrix charges the categories alone that is sure to be left of it in floats.
LEFT = 1.0 - 1e-6
# A category of each group, by its position in the group.
Choice = tuple[int, ...]


def one_hot_groups(p: ClusterCounterfactual) -> dict[str, Indices]:
    """Return the columns of every one-hot group that is in force, by the name of its rule."""
    return {
        name: p.feature_indices(rule.features)
        for name, rule in {**p.own_rules, **p.rules}.items()
        if isinstance(rule, OneHot) and {f"{name}.copy", f"{name}.one"} <= set(p.constraints)
    }


def choices_loss(p: ClusterCounterfactual) -> str:
    """Return why choices of categories do not leave projections, empty if they do."""
    groups = one_hot_groups(p)
    if not groups:
        return "no features are one-hot"
    count = prod(at.size for at in groups.values())
    if count > MOST:
        return f"there are {count:,} choices of categories, more than {MOST}"
    open_ = sorted({f"{name}.choice" for name in groups} - p.integers)
    if open_:
        return f"{open_[0]!r} is not integer"
    bare = p.without(*groups)
    return terms_loss(bare) or ("" if bare.sides else "no boundary is left")


@dataclass(frozen=True, eq=False)
class Choices:
    """All choices of categories of a counterfactual.

    Attributes
    ----------
    problem : ClusterCounterfactual
        With its one-hot groups.
    groups : dict
        Columns of every group.
    """

    problem: ClusterCounterfactual
    groups: Mapping[str, Indices]

    def __iter__(self) -> Iterator[Choice]:
        return product(*(range(at.size) for at in self.groups.values()))

    def entries(self, choice: Choice) -> dict[str, Floats]:
        """Return the zeros and the one of each group."""
        return {n: np.eye(self.groups[n].size)[k] for n, k in zip(self.groups, choice, strict=True)}

    @cached_property
    def charge(self) -> tuple[Indices, Floats]:
        """Features of the groups, and what they alone are charged: weights, or a matrix."""
        at = np.unique(np.concatenate(list(self.groups.values())))
        W, d = self.problem.metric, self.problem.factual.size
        if W is None or W.ndim == 1:
            return at, np.ones(at.size) if W is None else W[at]
        rest = np.setdiff1d(np.arange(d), at)
        own, both = W[np.ix_(at, at)], W[np.ix_(rest, at)]
        # the least that is left when the other features go where they please, but for a share
        least = LEFT * (own - both.T @ np.linalg.solve(W[np.ix_(rest, rest)], both))
        apart = W.copy()
        apart[np.ix_(at, at)] -= 0.5 * (least + least.T)
        # the difference is rounded: by less than this in any direction
        rounding = 4.0 * d * np.finfo(float).eps * float(np.abs(W).max())
        sure = definiteness(apart - rounding * np.eye(d)).shift == 0.0
        return at, 0.5 * (least + least.T) if sure else np.zeros((at.size, at.size))

    def least(self, choice: Choice) -> float:
        """Return what the features of a choice alone are away from the row, at least."""
        at, charged = self.charge
        away = np.zeros(self.problem.factual.size)
        for name, ones in self.entries(choice).items():
            away[self.groups[name]] = ones - self.problem.factual[self.groups[name]]
        pulled = weighted(away[at], charged)
        size = float(np.abs(away[at]) @ weighted(np.abs(away[at]), np.abs(charged)))
        return max(0.0, float(away[at] @ pulled) - loss(4 * at.size**2, size))

    def left(self, bare: ClusterCounterfactual, choice: Choice) -> ClusterCounterfactual:
        """Return what is left of the problem without its groups when their features are set."""
        held: Any = [
            (int(j), float(v), float(v))
            for name, ones in self.entries(choice).items()
            for j, v in zip(self.groups[name], ones, strict=True)
        ]
        return bare.with_constraints(choice=Box(tuple(held)))


@dataclass(frozen=True, eq=False)
class ChoiceProof:
    """The least of the bounds of all choices; of one that was not solved, what it alone costs.

    Parameters
    ----------
    problem : ClusterCounterfactual
        With its one-hot groups.
    answers : dict
        What came of the choices that were looked at.
    """

    problem: ClusterCounterfactual
    answers: Mapping[Choice, Solution | Infeasible]
    source: str = "every choice of categories, with a bound for each"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound of every choice; choices have multipliers of their own."""
        every = Choices(self.problem, one_hot_groups(self.problem))
        bare = self.problem.without(*every.groups)
        reached, parts = self.problem.objective_value(values), []
        for choice in every:
            answer = self.answers.get(choice)
            if answer is None:
                parts.append(DualCheck(every.least(choice), 0.0, apart=True))
                continue
            part = recomputed(answer, every.left(bare, choice))
            if part.bound >= reached and not part.reported and part.unpaid is None:
                part = replace(part, dual=0.0)  # rough multipliers are charged to the bound
            parts.append(part)
        least = least_check(parts)
        return replace(least, consistency=max(least.consistency, unvouched(multipliers)))


@dataclass(frozen=True, eq=False, repr=False)
class NoCategory(Certificate):
    """Proof that no choice of categories leaves a point in the target.

    Parameters
    ----------
    problem : ClusterCounterfactual
        With its one-hot groups.
    refuted : dict
        Why there is none, for each choice.
    """

    problem: ClusterCounterfactual
    refuted: Mapping[Choice, Infeasible]
    of_objective = False

    def verify(self) -> Verdict:
        """Verify the certificate of each choice, and that none is left out."""
        reasons: tuple[str, ...] = ()
        every = Choices(self.problem, one_hot_groups(self.problem))
        bare = self.problem.without(*every.groups)
        for choice in every:
            error = self.refuted.get(choice)
            if error is None or error.certificate is None:
                reasons += (f"choice {choice} has no certificate",)
            else:
                faults = error.certificate.faults(every.left(bare, choice))
                reasons += tuple(f"choice {choice}: {fault}" for fault in faults)
        return Verdict(not reasons, reasons)

    def __str__(self) -> str:
        return f"{len(self.refuted)} choices of categories, each out of reach"
