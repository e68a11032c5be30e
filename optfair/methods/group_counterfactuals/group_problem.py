"""Problems that send a group over a linear score, and how far it gets where that is out of reach."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Signature, signature
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import Certificate, Verdict
from optfair.core.classify import objective_term
from optfair.core.composition import named_term
from optfair.core.solution import Solution
from optfair.core.term import family
from optfair.errors import DataError, DeclarationError, Infeasible, OptfairError, nearest
from optfair.features.feature_problem import FeatureProblem, feature_names
from optfair.features.linear_score import LinearScore
from optfair.numbers import as_number

Floats = NDArray[np.float64]


# Name of the rows that send members to the target.
ROWS = "classification"
# Multipliers below this share of the largest are what a solver leaves of zero.
ACTIVE = 1e-6


# Bounds on how much distances grow and shrink: 1 is an isometry.
BOTH: Mapping[str, float] = {"K": 1.0, "k": 1.0}


class GroupProblem(FeatureProblem):
    """Members of a group that are sent over a linear score, at least cost.

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Members of the group.
    score : LinearScore, (coef, intercept), or fitted linear classifier
        What the target is about; see `LinearScore.of`.
    probability : float in (0, 1), optional
        Probability α that members must reach; 0.5 by default.
    threshold : float, optional
        Score τ that they must reach, in place of ``probability``.
    target_class : label, optional
        Class they must reach; the second by default.
    K, k : float, optional
        Bounds on how much distances grow and shrink, of the models that take them.
    feature_costs : array-like (d,) or dict, optional
        Weight of each feature in the cost; 1 by default.
    """

    #: the bounds on distances that a model takes, and the least value of each
    takes: ClassVar[Mapping[str, float]] = {}
    #: those that must be given, and finite
    needs: ClassVar[tuple[str, ...]] = ()
    #: what to say of a bound that it does not take
    instead: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        X: Any = None,
        *,
        score: Any,
        probability: float | None = None,
        threshold: float | None = None,
        target_class: Any = None,
        K: float | None = None,
        k: float | None = None,
        feature_costs: Any = None,
        **further: Any,
    ) -> None:
        bounds = self._checked_bounds({"K": K, "k": k}, further)
        linear = LinearScore.of(score)
        names = _names(X, linear)
        normal, level = linear.halfspace(target_class, probability=probability, threshold=threshold)
        super().__init__(
            {
                **self.located(X, linear, **further),
                "score": linear,
                "normal": normal,
                "level": level,
                "target_class": target_class,
                "features": names,
                "costs": checked_costs(feature_costs, names),
                **bounds,
            }
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Say which parameters a model has: bounds that it takes, and what `located` asks for."""
        super().__init_subclass__(**kwargs)
        own = signature(GroupProblem.__init__).parameters.values()
        taken = [p for p in own if p.name not in {"self", "further", *(BOTH.keys() - cls.takes)}]
        needed = [p.replace(default=p.empty) if p.name in cls.needs else p for p in taken]
        asked = signature(cls.located).parameters.values()
        more = [p for p in asked if p.kind is p.KEYWORD_ONLY]
        cls.__signature__ = Signature([*needed, *more])  # type: ignore[attr-defined]

    def _checked_bounds(
        self, given: Mapping[str, Any], further: Mapping[str, Any]
    ) -> dict[str, float | None]:
        known = signature(type(self)).parameters
        for name in (*(n for n, value in given.items() if value is not None), *further):
            if name not in known:
                raise DeclarationError(
                    f"{type(self).__name__} takes no {name!r}",
                    self.instead.get(name, ""),
                    nearest(name, known),
                )
        bounds = {n: checked_bound(given[n], n, least) for n, least in self.takes.items()}
        for name in self.needs:
            if bounds[name] is None:
                raise DeclarationError(
                    f"{name}={given[name]!r} bounds nothing",
                    self.instead.get(name, ""),
                    f"give a finite {name} >= {self.takes[name]:g}",
                )
        return bounds

    @abstractmethod
    def located(self, X: Any, score: LinearScore) -> dict[str, Any]:
        """Return where the members are; further parameters of a model are further ones here."""

    @property
    def normal(self) -> Floats:
        """Vector w of the target w·z >= t."""
        return np.asarray(self.data["normal"])

    @property
    def level(self) -> float:
        """Number t of the target w·z >= t."""
        return float(self.data["level"])

    @property
    def feature_costs(self) -> Floats:
        """Weight of each feature in the cost (d,)."""
        return np.asarray(self.data["costs"])

    @property
    @abstractmethod
    def variances(self) -> Floats:
        """Variance of each feature in the group (d,)."""

    @property
    def objective_unit(self) -> float:
        """Weighted spread of the group, at most 1: gaps mean the same in any units."""
        return min(1.0, float(self.feature_costs @ self.variances)) or 1.0

    @abstractmethod
    def scored_at_least(self, level: Any) -> dict[str, Any]:
        """Return the classification with an expression in place of the level, by term name."""

    def explained(self, error: Infeasible) -> Infeasible:
        """Return the error with the largest attainable target, where the target is out of reach."""
        return with_attainable(self, error)


def _names(X: Any, score: LinearScore) -> tuple[str, ...]:
    named = hasattr(X, "columns")
    if not named:
        return score.names or feature_names(None, score.coef.size)
    names = feature_names(X, len(X.columns))
    if score.names is not None and names != score.names:
        raise DataError(
            "the columns of X are not those of the score",
            f"X has {', '.join(names)}; the score has {', '.join(score.names)}",
            "give the columns the score was fitted on, in its order",
        )
    return names


def checked_costs(costs: Any, names: tuple[str, ...]) -> Floats:
    """Return one positive weight per feature from a number, as many numbers, or a dict."""
    d = len(names)
    if costs is None:
        return np.ones(d)
    if isinstance(costs, Mapping):
        unknown = [str(f) for f in costs if str(f) not in names]
        if unknown:
            raise DataError(
                f"feature_costs names {unknown[0]!r}",
                f"the features are {', '.join(names)}",
                "give one of them",
            )
        costs = [costs.get(name, 1.0) for name in names]
    try:
        c = np.asarray(costs, dtype=float)
    except (TypeError, ValueError):
        c = np.full(1, np.nan)
    if c.shape not in ((), (d,)) or not np.isfinite(c).all() or (c <= 0).any():
        raise DeclarationError(
            f"feature_costs={costs!r} are not {d} positive numbers",
            "a feature that costs nothing could move without limit",
            "give one per feature, or a dict by name",
        )
    return np.broadcast_to(c, (d,)).copy()


def checked_bound(value: Any, name: str, least: float = 1.0) -> float | None:
    """Return K or k as a number of at least so much, or None for no bound.

    Raises
    ------
    DeclarationError
        Below it, or not a number. With K or k below 1 a map could not be the identity, and then
        nothing keeps the cost of a group that is already at its target at 0.
    """
    bound = np.inf if value is None else as_number(value)
    if not bound >= least:
        raise DeclarationError(
            f"{name}={value!r} is not at least {least:g}",
            "K bounds how much distances grow and k how much they shrink; 1 is an isometry",
            f"give {name} >= {least:g}, or None for no bound",
        )
    return None if np.isinf(bound) else bound


# How far a target can be reached when it is out of reach.


@dataclass(frozen=True, eq=False, repr=False)
class OutOfReach(Certificate):
    """Proof that no point reaches a level: the largest one that is attainable, with its bound.

    Parameters
    ----------
    solution : Solution
        Of the problem whose objective is the level.
    level : float
        What was asked for.
    """

    solution: Solution
    level: float

    @property
    def conflict(self) -> tuple[str, ...]:
        """Constraints that keep the level down: those with multipliers."""
        sizes = {
            name: float(np.abs(np.asarray(y, dtype=float)).max(initial=0.0))
            for name, y in self.solution.multipliers.items()
        }
        largest = max(sizes.values(), default=0.0)
        return tuple(name for name, size in sizes.items() if size > ACTIVE * largest)

    def verify(self) -> Verdict:
        """Recompute the bound on the level and compare."""
        reasons = self.solution.certificate.verify().reasons
        if not self.solution.bound < self.level:
            reasons += (f"levels up to {self.solution.bound:.6g} are not excluded",)
        return Verdict(not reasons, reasons)

    def __str__(self) -> str:
        return f"no level above {self.solution.bound:.10g}, asked for is {self.level:.10g}"

    __repr__ = __str__


def largest_level(problem: Any) -> Solution:
    """Return the solution with the largest t that the constraints other than the target allow.

    Parameters
    ----------
    problem : GroupProblem
        Its objective does not count.

    Returns
    -------
    Solution
        Its objective is t, in units of the score without its intercept.

    Raises
    ------
    OptfairError
        The other constraints exclude each other, or t has no limit.
    """
    aim = problem.with_variables(target=cp.Variable(name="target"))
    level = aim["target"]
    rows = {name: named_term(aim, name, row) for name, row in aim.scored_at_least(level).items()}
    others = {k: t for k, t in problem.constraints.items() if family(k) != ROWS}
    goal = objective_term("target", level, aim.names, "maximize")
    aim = aim.with_terms({"target": goal}, {**rows, **others})._child(sense="maximize")
    solution: Solution = aim.solve()
    return solution


def with_attainable(problem: GroupProblem, error: Infeasible) -> Infeasible:
    """Return the error with the largest target that is attainable, where that is what fails.

    Parameters
    ----------
    problem : GroupProblem
        What was infeasible.
    error : Infeasible
        What was found; without a certificate, or with one over more constraints, it gets the
        one found here.
    """
    if problem.sense == "maximize":  # asked for here already
        return error
    if error.conflict and ROWS not in map(family, error.conflict):
        return error
    try:
        best = largest_level(problem)
    except OptfairError:
        return error
    proof = OutOfReach(best, problem.level)
    if not proof.verify():
        return error
    score: LinearScore = problem.data["score"]
    at = int(np.argmax(np.abs(score.coef)))
    # the target is that of one class: its score is s or -s
    constant = float(np.sign(problem.normal[at] * score.coef[at])) * score.intercept
    reached, asked = best.objective + constant, problem.level + constant
    word, option = "score", "threshold"
    if score.link:
        reached, asked = (1.0 / (1.0 + np.exp(-s)) for s in (reached, asked))
        word, option = "probability", "probability"
    said = f"the largest attainable {word} is {reached:.6g}, asked for is {asked:.6g}"
    below = np.floor(reached * 1e4) / 1e4
    remedy = f"ask for {option} <= {below:g}, or soften what keeps it down"
    # an interior point may mix conflicts; the bound on the target names what it is made of
    known = error.certificate is not None and not set(proof.conflict) < set(error.conflict)
    names = error.conflict if known else proof.conflict
    return Infeasible(
        f"these constraints exclude each other: {', '.join(map(repr, names))}",
        f"{said}; {error.evidence}" if known else f"{said}, with a bound that is verified",
        remedy,
        certificate=error.certificate if known else proof,
        conflict=names,
    )
