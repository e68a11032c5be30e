"""Groups sent over a linear score: their moments, what every model of them takes, and how far a group gets that cannot reach."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Signature, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import cvxpy as cp
import numpy as np
from scipy.special import expit

from optfair.core.certificate import BEYOND, Certificate, Verdict
from optfair.core.composition import named_term, objective_term
from optfair.core.expressions import Values
from optfair.core.parameters import Datum
from optfair.core.solution import Solution
from optfair.core.term import family
from optfair.errors import DataError, DeclarationError, Infeasible, OptfairError, nearest
from optfair.features.feature_problem import FeatureProblem, feature_names
from optfair.features.linear_score import LinearScore
from optfair.numbers import LARGEST, Floats, check_matrix, floats, real

if TYPE_CHECKING:
    from optfair.methods.group_counterfactuals.map_problem import MapProblem, Piece

# Mean and covariance of a group: all that the cost of an affine map depends on.

# What the mean of equal numbers leaves of their differences, relative to the numbers.
ROUNDING = 16 * np.finfo(float).eps


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Mean μ, covariance Σ and a root L with :math:`\Sigma = L L^T`.

    Parameters
    ----------
    mean : array (d,)
        μ.
    covariance : array (d, d)
        Σ, symmetric and positive semidefinite.
    root : array (d, r)
        L, with as many columns as Σ has rank.
    """

    mean: Floats
    covariance: Floats
    root: Floats

    @property
    def singular(self) -> bool:
        """Whether the group lies in a plane of fewer dimensions than there are features."""
        return bool(self.root.shape[1] < self.mean.size)

    @property
    def deviations(self) -> Floats:
        """Standard deviation of each feature (d,)."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    @classmethod
    def of_rows(cls, centered: Floats, mean: Floats) -> Moments:
        """Return the moments of rows whose mean was taken off; the covariance has weight 1/n."""
        return cls.given(mean, centered.T @ centered / centered.shape[0])

    @classmethod
    def given(cls, mean: Any, covariance: Any) -> Moments:
        """Return the moments somebody gave.

        Raises
        ------
        DataError
            Shapes that do not fit, entries that are not finite, a covariance that is not
            symmetric or has a negative eigenvalue.
        """
        mu = check_matrix(np.reshape(np.asarray(mean, dtype=object), (1, -1)), "mean")[0]
        # squares of data, which may be larger than data are
        sigma = floats(covariance, "covariance", infinite=True)
        d = mu.size
        if sigma.shape != (d, d) or not np.isfinite(sigma).all():
            raise DataError(
                f"covariance of shape {sigma.shape} is no finite matrix of {d} features",
                remedy=f"give {d} x {d} numbers",
            )
        size = float(np.abs(sigma).max())
        if float(np.abs(sigma - sigma.T).max()) > 1e-9 * size:
            raise DataError("covariance is not symmetric", remedy="give (S + S.T) / 2")
        sigma = (sigma + sigma.T) / 2
        eigenvalues = np.linalg.eigvalsh(sigma)
        if eigenvalues[0] < -1e-9 * max(size, 1e-300):
            raise DataError(
                f"covariance has the negative eigenvalue {eigenvalues[0]:.3g}",
                remedy="give a positive semidefinite matrix",
            )
        flat = np.sqrt(np.maximum(np.diag(sigma), 0.0)) <= ROUNDING * np.abs(mu)
        sigma[flat], sigma[:, flat] = 0.0, 0.0  # of equal numbers, whose mean is rounded
        root = _root(sigma)
        for array in (mu, sigma, root):
            array.flags.writeable = False
        return cls(mu, sigma, root)


def _root(sigma: Floats) -> Floats:
    """Return L with Σ = L Lᵀ, of full column rank.

    What rounding leaves of a zero eigenvalue is no direction of the group. It is told apart in
    standard deviations: a feature in small units has as much extent as one in large units.
    """
    deviations = np.sqrt(np.maximum(np.diag(sigma), 0.0))
    units = np.where(deviations > 0.0, deviations, 1.0)
    eigenvalues, vectors = np.linalg.eigh(sigma / np.outer(units, units))
    if eigenvalues[0] < -1e-9 * eigenvalues[-1]:  # small features are rounding of large ones
        units = np.ones_like(units)
        eigenvalues, vectors = np.linalg.eigh(sigma)
    kept = eigenvalues > 10 * units.size * np.finfo(float).eps * max(eigenvalues[-1], 0.0)
    return np.asarray(units[:, None] * vectors[:, kept] * np.sqrt(eigenvalues[kept]))


# What a map does in directions in which its group has no extent, and its cost says nothing.

# Eigenvalues this near to a bound are at it, relative to the size of the matrix.
AT_BOUND = 1e-8
# Projections end when a round changes nothing more than this.
STILL, ROUNDS = 1e-12, 500
# Relative violation that is let pass, where the solution itself has less.
FEASIBLE = 1e-9


def nearest_to_identity(A: Floats, root: Floats, K: float | None, k: float | None) -> Floats:
    r"""Return the matrix nearest to I among those that move the group as A does.

    Let R be a basis of the range of Σ and N one of its null space. Cost and members depend on
    A R only; given that, the symmetric block :math:`B = N^T A N` is free but for the Loewner
    bounds. By Schur complements with :math:`D = R^T A R` and :math:`E = N^T A R`

    .. math::
        \tfrac1k I + E (D - \tfrac1k I)^+ E^T \preceq B \preceq K I - E (K I - D)^+ E^T

    and the B nearest to I in the Frobenius norm is found by Dykstra's projections onto both.

    Parameters
    ----------
    A : array (d, d)
        Symmetric, within the bounds.
    root : array (d, r)
        L with Σ = L Lᵀ, of full column rank.
    K, k : float or None
        Loewner bounds; without k the matrix is positive semidefinite.
    """
    d, r = root.shape
    basis = np.linalg.svd(root, full_matrices=True)[0]
    R, N = basis[:, :r], basis[:, r:]
    D, E = R.T @ A @ R, N.T @ A @ R
    least = 0.0 if k is None else 1.0 / k
    low = least * np.eye(d - r) + _complement(D - least * np.eye(r), E)
    high = None if K is None else K * np.eye(d - r) - _complement(K * np.eye(r) - D, E)
    B = N.T @ A @ N
    return np.asarray(A + N @ (_between(low, high) - B) @ N.T)


def _complement(D: Floats, E: Floats) -> Floats:
    values, vectors = np.linalg.eigh((D + D.T) / 2)
    inside = values > AT_BOUND * max(1.0, float(np.abs(values).max(initial=0.0)))
    turned = E @ vectors[:, inside]
    return np.asarray((turned / values[inside]) @ turned.T)


def _between(low: Floats, high: Floats | None) -> Floats:
    """Return the matrix nearest to I between two others, by Dykstra's projections."""
    B = np.eye(len(low))
    if high is None:
        return low + _positive(B - low)
    up, down = np.zeros_like(B), np.zeros_like(B)
    for _ in range(ROUNDS):
        above = low + _positive(B + up - low)
        up = B + up - above
        last, B = B, high - _positive(high - above - down)
        down = above + down - B
        if max(np.abs(B - last).max(), np.abs(B - above).max()) <= STILL * (1.0 + np.abs(B).max()):
            break
    return B


def _positive(S: Floats) -> Floats:
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def as_far_as_feasible(problem: MapProblem, values: Values, wanted: Values) -> Values:
    """Return the point on the way from one to another that the constraints still allow.

    Both must send the members to the same points, or the first is returned; then terms of one
    row per member need not be asked.
    """
    if not all(_alike(piece, values, wanted) for piece in problem.pieces):
        return values
    changed = {name for name in wanted if wanted[name] is not values[name]}
    terms = [t for t in problem.constraints.values() if t.rows is None and changed & t.scope]

    def at(share: float) -> dict[str, Any]:
        moved = {n: (1.0 - share) * values[n] + share * wanted[n] for n in changed}
        return {**values, **moved}

    def allowed(share: float) -> bool:
        point = at(share)
        return all(
            t.relative_violation(point) <= max(FEASIBLE, t.relative_violation(values))
            for t in terms
        )

    if allowed(1.0):
        return at(1.0)
    inside, outside = 0.0, 1.0
    while outside - inside > 1e-9:
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if allowed(middle) else (inside, middle)
    return at(inside)


def _alike(piece: Piece, values: Values, wanted: Values) -> bool:
    """Whether two maps send the members to the same points, feature by feature in its own size."""
    (mean, A), (other, B) = piece.read(values), piece.read(wanted)
    start = np.abs(piece.moments.mean) * ROUNDING
    turned = np.abs(piece.centered @ A.T).max(axis=0, initial=0.0)
    apart = np.abs(piece.centered @ (B - A).T + (other - mean)).max(axis=0, initial=0.0)
    return bool((apart <= FEASIBLE * turned + np.abs(A) @ start + start).all())


# Name of the rows that send members to the target.
ROWS = "classification"
# Variance of equal numbers, beside the square of their mean: rounding.
NOISE = 1e-28
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
        if (size := self._independent_cost()) >= BEYOND:
            raise DataError(
                f"moving members to the target costs about {size:.1e}",
                f"numbers from {BEYOND:.0e} on count as no optimum",
                "state rows and score in larger units, as X / 1e6, or standardize the columns",
            )

    def _independent_cost(self) -> float:
        """Return what moving each member alone to the target costs at most, exactly where that is much."""
        w, costs = self.normal, self.feature_costs
        apart = abs(self.level - float(w @ self.means)) + float(np.abs(w) @ np.sqrt(self.variances))
        most = apart**2 / float(np.square(w) @ (1.0 / costs))
        if most < BEYOND:
            return most
        points = self.points if len(self.points) else self.means[None]
        short = np.maximum(self.level - points @ w, 0.0)
        return most * float(np.square(short / apart).mean())

    @property
    @abstractmethod
    def points(self) -> Floats:
        """Members of the group (n, d)."""

    movable = MappingProxyType({"K": "sides", "k": ""})  # 1/k is a side, k is not

    def with_arguments(self, changed: Mapping[str, Any]) -> Any:
        """Return a model of this kind alone with other bounds on distances."""
        bounds = {n: checked_bound(changed[n], n, self.takes[n]) for n in changed}
        made = object.__new__(type(self))
        super(GroupProblem, made).__init__({**self.data, **bounds})
        return made

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

    normal = Datum[Floats]("Vector w of the target w·z >= t.")
    level = Datum[float]("Number t of the target w·z >= t.")

    @property
    def constant(self) -> float:
        """What the score of the target class is beyond w·z: the intercept, or its negative."""
        score: LinearScore = self.data["score"]
        return float(np.sign(self.normal @ score.coef)) * score.intercept

    feature_costs = Datum[Floats]("Weight of each feature in the cost (d,).", "costs")

    @property
    @abstractmethod
    def variances(self) -> Floats:
        """Variance of each feature in the group (d,)."""

    @property
    @abstractmethod
    def means(self) -> Floats:
        """Mean of each feature in the group (d,)."""

    @property
    def objective_unit(self) -> float:
        """Weighted spread of the group, at most 1: gaps mean the same in any units.

        Of one member, or equal ones, the cost of moving them to the target.
        """
        costs, mean, w = self.feature_costs, self.means, self.normal
        size = float(costs @ self.variances)
        if size <= NOISE * float(costs @ np.square(mean)):
            size = float(np.square(self.level - w @ mean) / (np.square(w) @ (1.0 / costs)))
        return min(1.0, size) or 1.0

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
    c = floats(costs, "feature_costs", infinite=True)
    if c.shape not in ((), (d,)) or not ((c > 0) & (c <= 1e30)).all():
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
    bound = np.inf if value is None else real(value)
    if not bound >= least or LARGEST < bound < np.inf:
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
    problem : GroupProblem
        With the level that was asked for.
    solution : Solution
        Of the problem whose objective is the level.
    """

    problem: GroupProblem
    solution: Solution
    of_objective = False

    @property
    def level(self) -> float:
        """What was asked for."""
        return self.problem.level

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
        reasons = self.solution.certificate.faults(level_problem(self.problem))
        if not self.solution.bound < self.level:
            reasons += (f"levels up to {self.solution.bound:.6g} are not excluded",)
        return Verdict(not reasons, reasons)

    def __str__(self) -> str:
        return f"no level above {self.solution.bound:.10g}, asked for is {self.level:.10g}"


def level_problem(problem: Any) -> Any:
    """Return the problem of the largest t that the constraints other than the target allow."""
    aim = problem.with_variables(target=cp.Variable(name="target"))
    level = aim["target"]
    rows = {name: named_term(aim, name, row) for name, row in aim.scored_at_least(level).items()}
    others = {k: t for k, t in problem.constraints.items() if family(k) != ROWS}
    goal = objective_term("target", level, aim.names, "maximize")
    return aim.with_terms({"target": goal}, {**rows, **others})._child(sense="maximize")


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
    solution: Solution = level_problem(problem).solve()
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
    proof = OutOfReach(problem, best)
    if not proof.verify():
        return error
    reached, asked = best.objective + problem.constant, problem.level + problem.constant
    word, option = "score", "threshold"
    if problem.data["score"].link:
        reached, asked = (float(expit(s)) for s in (reached, asked))
        word, option = "probability", "probability"
    said = f"the largest attainable {word} is {reached:.6g}, asked for is {asked:.6g}"
    below = np.floor(reached * 1e4) / 1e4
    remedy = f"ask for {option} <= {below:g}, or soften what keeps it down"
    # an interior point may mix conflicts; the bound on the target names what it is made of
    known = error.certificate is not None and not set(proof.conflict) < set(error.conflict)
    names = error.conflict if known else proof.conflict
    how = f"{said}; {error.evidence}" if known else f"{said}, with a bound that is verified"
    return Infeasible.of(error.certificate if known else proof, names, how, remedy)
