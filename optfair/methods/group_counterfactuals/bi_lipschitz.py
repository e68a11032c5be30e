"""The nonconvex bi-Lipschitz problem: declared, bounded from below, and searched for the best point."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from optfair.backends.registry import profile, profiles
from optfair.core.certificate import NonconvexityWitness
from optfair.core.composition import model_goal, model_term, rows_term
from optfair.core.parameters import Datum
from optfair.core.problem import Declaration, Problem
from optfair.core.solution import Solution, Status
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import (
    ClassError,
    DataError,
    DeclarationError,
    OptfairError,
    SizeLimited,
    kind_of,
)
from optfair.features.feature_problem import FeatureProblem
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.group_problem import BOTH
from optfair.methods.group_counterfactuals.members import GroupCounterfactuals
from optfair.numbers import (
    Floats,
    Indices,
    check_mapping,
    check_names,
    check_seconds,
    check_seed,
    check_text,
    checked,
    floats,
)


class BiLipschitzCounterfactuals(GroupCounterfactuals):
    r"""The cheapest counterfactuals that neither stretch nor shrink distances too much.

    .. math::
        \min_Z\; \tfrac1n \sum_i \|z_i - x_i\|^2 \quad\text{s.t.}\quad v^T z_i \ge t,\qquad
        \tfrac1{k^2} \|x_i - x_j\|^2 \le \|z_i - z_j\|^2 \le K^2 \|x_i - x_j\|^2
        \;\text{ for all } i < j

    Class: nonconvex QCQP. Z and its mirror image :math:`2c - Z` are both feasible for a
    center c far enough on the side of the target, and their midpoint puts every member on c. A
    local solver gives a value, `GramBound` a bound; `bi_lipschitz_baseline` puts both together.

    Parameters
    ----------
    X, score, probability, threshold, target_class, feature_costs
        As in `IndependentCounterfactuals`.
    K : float
        Largest factor by which a distance may grow, at least 1.
    k : float
        Largest factor by which a distance may shrink, at least 1.

    Attributes
    ----------
    variables : ``counterfactuals`` (n, d), in units of the features
    pairs : MemberPairs
        Pairs in the order of the rows of ``stretching`` and ``shrinking``.

    Raises
    ------
    DataError, DeclarationError
        Rows, score, target, weights or factors that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [-2.0, 0.0]]
    >>> p = of.group_counterfactuals.BiLipschitzCounterfactuals(X, score=([1.0, 0.0], -1.0), K=1.0, k=1.0)
    >>> p.problem_class, p.certificate.verify()
    (nonconvex QCQP, verified)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, eq. (8) and
    Proposition A.2.
    """

    takes = BOTH
    needs: ClassVar[tuple[str, ...]] = ("K", "k")
    instead: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("K", "k"), "distances may grow by K and shrink by k; 1 keeps them"
    )

    def pair_terms(self, Z: Any) -> tuple[ConstraintTerm, ...]:
        """Return the quadratics of the pairs, one row each, in a unit near the largest distance."""
        if self.points.shape[0] < 2:
            return ()
        pairs, K, k = self.pairs, float(self.data["K"]), float(self.data["k"])
        unit = np.exp2(np.round(np.log2(pairs.distances.max() or 1.0)))
        squares = np.square(pairs.distances / unit)

        every = pairs.differences(np.arange(pairs.count)) / unit
        spread = cp.sum(cp.square(every @ Z), axis=1)
        grown = r"\|z_i - z_j\|^2 \le K^2 \|x_i - x_j\|^2"
        shrunk = r"\|z_i - z_j\|^2 \ge k^{-2} \|x_i - x_j\|^2"
        return (
            model_term("stretching", spread <= K**2 * squares, grown),
            model_term("shrinking", spread >= squares / k**2, shrunk),
        )

    def feasible_point(self) -> dict[str, Floats]:
        """Return a point that satisfies the model's own constraints: all members moved alike."""
        return {"counterfactuals": self.shifted(self.points)}

    def find_witness(self) -> NonconvexityWitness | None:
        """Return the group moved to the target and a mirror image of it.

        First about a center beyond the target: the midpoint is one point for all members. Then
        about its own axis along v, which keeps every score: the midpoint keeps that direction
        only. None where further constraints exclude both: the class is then unverified.
        """
        if self.points.shape[0] < 2:
            return None
        first = self.shifted(self.points)
        inner = first - first.mean(axis=0)
        along = np.outer(inner @ self.normal, self.normal) / float(self.normal @ self.normal)
        for second in (self.shifted(-self.points), first - 2.0 * (inner - along)):
            witness = NonconvexityWitness(
                self, "shrinking", {"counterfactuals": first}, {"counterfactuals": second}
            )
            if witness.verify():
                return witness
        return None


OWN = ("classification", "stretching", "shrinking")
ENDS = r"\le K^2 d_{ij}^2", r"\ge k^{-2} d_{ij}^2"


class GramBound(FeatureProblem):
    r"""Bound the bi-Lipschitz problem from below by relaxing the rank of a Gram matrix.

    .. math::
        \min_{Z, Y}\; \tfrac{1}{n} (\operatorname{tr} Y - 2 \langle X, Z\rangle + \|X\|^2)
        \;\;\text{s.t.}\;\; \begin{pmatrix} Y & Z \\ Z^T & I \end{pmatrix} \succeq 0,\;
        v^T z_i \ge t,\;
        \tfrac{d_{ij}^2}{k^2} \le Y_{ii} + Y_{jj} - 2 Y_{ij} \le K^2 d_{ij}^2

    With :math:`Y = Z Z^T` this is the problem itself: the squared distances are linear in the
    Gram matrix of :math:`z_1, \dots, z_n, e_1, \dots, e_d`. That its rank is d is dropped, so
    members may leave the space of the features, and the optimum is a bound. Y is of the points
    minus the mean of X, in units of their mean squared size, so that its entries are near 1.
    With feature costs c the part :math:`\min_j c_j` goes through Y, the rest is a convex
    quadratic of Z.

    Class: SDP of order n + d, for small groups; the pairs are generated as they are violated.

    Parameters
    ----------
    problem : BiLipschitzCounterfactuals
        What is bounded. Further convex constraints on its counterfactuals are kept.

    Attributes
    ----------
    variables : ``counterfactuals`` (n, d), ``gram`` (n, n) symmetric

    Raises
    ------
    DeclarationError
        Not a bi-Lipschitz problem, or one of its own constraints was removed.
    ClassError
        A further constraint is not convex, or a variable is integer.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [-2.0, 0.0]]
    >>> p = of.group_counterfactuals.BiLipschitzCounterfactuals(X, score=([1.0, 0.0], -1.0), K=1.0, k=1.0)
    >>> bound = GramBound(p)
    >>> bound.problem_class, round(bound.solve().objective, 5)
    (SDP, 6.0)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, eq. (8); the
    relaxation is that of Euclidean distance matrices, as in Alfakih, Khandani, Wolkowicz (1999).
    """

    def __init__(self, problem: BiLipschitzCounterfactuals) -> None:
        check_bi_lipschitz(problem)
        kept = [t for t in problem.constraints.values() if t.name not in OWN]
        for t in kept:
            if not t.evidence.problem_class.convex:
                raise ClassError(
                    f"{t.name!r} is not known to be convex",
                    str(t.evidence),
                    "remove it: without it the bound is lower, but still a bound",
                )
        own = OWN if len(problem.points) > 1 else OWN[:1]
        lacking = [n for n in own if n not in problem.constraints]
        if lacking:
            raise DeclarationError(
                f"{lacking[0]!r} was removed from the problem",
                "the bound is for all three of its constraints",
                "declare it again",
            )
        if problem.integers:
            raise ClassError(
                f"{sorted(problem.integers)[0]!r} is integer", remedy="bound the continuous problem"
            )
        super().__init__({"problem": problem, "further": tuple(kept), "features": problem.features})

    original = Datum[BiLipschitzCounterfactuals]("The problem that is bounded.", "problem")

    @property
    def objective_unit(self) -> float:
        """That of the original, or the cost of an entry of 1, whose rounding is left at a target."""
        p = self.original
        return max(p.objective_unit, float(p.feature_costs.min()) * self._frame()[1] ** 2)

    def lift(self, counterfactuals: Any) -> dict[str, Floats]:
        """Return the point of this problem that a point of the original is."""
        Z = np.asarray(counterfactuals, dtype=float)
        center, size = self._frame()
        inner = (Z - center) / size
        return {"counterfactuals": Z, "gram": inner @ inner.T}

    def _frame(self) -> tuple[Floats, float]:
        X = self.original.points
        center = X.mean(axis=0)
        size = float(np.sqrt(np.square(X - center).sum(axis=1).mean()))
        return center, size or 1.0

    def declare(self) -> Declaration:
        """Declare counterfactuals and Gram matrix; the pairs are rows."""
        p = self.original
        n, _ = p.points.shape
        Z = p["counterfactuals"]
        Y = cp.Variable((n, n), name="gram", symmetric=True)
        terms = [p.constraints["classification"], self._semidefinite(Z, Y)]
        if n > 1:
            terms += self._pair_terms(Y)
        return Declaration(
            {"counterfactuals": Z, "gram": Y},
            objective=self._cost(Z, Y),
            constraints=(*terms, *self.data["further"]),
        )

    def _cost(self, Z: Any, Y: Any) -> tuple[ObjectiveTerm, ...]:
        p = self.original
        X, c = p.points, p.feature_costs
        center, size = self._frame()
        least, n = float(c.min()), X.shape[0]
        shape = (X - center) / size
        unit = least * size**2 / n

        moved = cp.sum(cp.multiply(shape, (Z - center[None, :]) / size))
        goals = [
            model_goal(
                "transport cost",
                unit * (cp.trace(Y) - 2.0 * moved + float(np.sum(shape**2))),
                r"\tfrac1n (\operatorname{tr} Y - 2 \langle X, Z \rangle + \|X\|^2)",
            )
        ]
        rest = c - least
        if rest.any():
            latex = r"\tfrac1n \textstyle\sum_{ij} (c_j - \min c) (z_{ij} - x_{ij})^2"
            squares = cp.sum_squares(cp.multiply(np.sqrt(rest)[None, :], Z - X)) / n
            goals.append(model_goal("feature costs", squares, latex))
        return tuple(goals)

    def _semidefinite(self, Z: Any, Y: Any) -> ConstraintTerm:
        center, size = self._frame()
        moved = (Z - center[None, :]) / size
        whole = cp.bmat([[Y, moved], [moved.T, np.eye(moved.shape[1])]])
        latex = r"\begin{pmatrix} Y & Z \\ Z^T & I \end{pmatrix} \succeq 0"
        return model_term("gram of points", whole >> 0, latex)

    def _pair_terms(self, Y: Any) -> list[ConstraintTerm]:
        p = self.original
        pairs, K, k = p.pairs, float(p.data["K"]), float(p.data["k"])
        squares = np.square(pairs.distances / self._frame()[1])

        def apart(index: Indices) -> Any:
            i, j = pairs.ends(index)
            return cp.diag(Y)[i] + cp.diag(Y)[j] - 2.0 * Y[i, j]

        largest = float(squares.max(initial=0.0))
        grown, shrunk = (f"Y_{{ii}} + Y_{{jj}} - 2 Y_{{ij}} {end}" for end in ENDS)
        below = lambda index: apart(index) <= K**2 * squares[index]
        above = lambda index: apart(index) >= squares[index] / k**2
        return [
            rows_term("stretching", below, pairs.count, grown, scale=K**2 * largest),
            rows_term("shrinking", above, pairs.count, shrunk, scale=largest / k**2),
        ]

    def feasible_point(self) -> dict[str, Floats]:
        """Return the group moved to the target as one."""
        return self.lift(self.original.feasible_point()["counterfactuals"])

    # rules write the same constraints here as on the original
    fixed = GroupCounterfactuals.fixed
    within = GroupCounterfactuals.within
    moves = GroupCounterfactuals.moves


def check_bi_lipschitz(problem: Any) -> None:
    """Raise unless a problem is one of bi-Lipschitz counterfactuals."""
    if not isinstance(problem, BiLipschitzCounterfactuals):
        raise DeclarationError(
            f"{kind_of(problem)} is no bi-Lipschitz problem",
            remedy="give a BiLipschitzCounterfactuals problem",
        )


PAIRS = OWN[1:]
# Orders of the Gram matrix up to which the semidefinite bound takes seconds.
LARGEST_GRAM = 80
FEASIBLE = 1e-7


@dataclass(frozen=True, eq=False)
class BoundedValue:
    """A feasible point of a nonconvex problem, and how far it may be from the best one.

    Attributes
    ----------
    counterfactuals : array (n, d)
        The best point found; it satisfies the declared constraints.
    value : float
        Its transport cost.
    bound : float
        No feasible point costs less.
    gap : float
        (value - bound) / value; 0 for a value of 0.
    found_by, bound_by : str
        Who found the point, who gave the bound.
    seconds : float
        Wall time.
    notes : tuple of str
        What was tried without success, and why.
    """

    counterfactuals: Floats
    value: float
    bound: float
    gap: float
    found_by: str
    bound_by: str
    seconds: float
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"value {self.value:.6g} ({self.found_by}), bound {self.bound:.6g} ({self.bound_by}),"
            f" gap {self.gap:.1%}"
        )


@checked(
    start=floats,
    local=check_names,
    solver=check_text,
    time_limit=check_seconds,
    seed=check_seed,
    options=check_mapping,
)
def bi_lipschitz_baseline(
    problem: BiLipschitzCounterfactuals,
    *,
    start: Any = None,
    local: Sequence[str] | None = None,
    solver: str | None = None,
    time_limit: float | None = None,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
) -> BoundedValue:
    """Find a point and a bound for bi-Lipschitz counterfactuals.

    Points: the group moved as one, the map of `PSDMap` where its image is feasible, ``start``,
    and what local solvers make of the best of them. Bounds: the problem without its pairs, the
    semidefinite `GramBound` for groups of up to about 70 members, and branch and bound when a
    solver is named. That solver gets bounds on the variables that the best point implies.

    Parameters
    ----------
    problem : BiLipschitzCounterfactuals
        May carry further convex constraints.
    start : array-like (n, d), optional
        A feasible point.
    local : sequence of str, optional
        Local solvers; every one installed by default, none for an empty sequence.
    solver : str, optional
        A global solver.
    time_limit : float, optional
        Wall seconds; local solvers together get half of what is left, the global one the rest.
        The bounds that are proved are always computed.
    seed : int, optional
        Seed of the solvers.
    options : dict, optional
        Further options of the global solver by its own names.

    Returns
    -------
    BoundedValue

    Raises
    ------
    DeclarationError
        Not a bi-Lipschitz problem, or a solver that does not fit.
    DataError
        A start that breaks a constraint, or no feasible point found.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0, 0.0], [-2.0, 0.0]]
    >>> p = of.group_counterfactuals.BiLipschitzCounterfactuals(X, score=([1.0, 0.0], -1.0), K=2.0, k=1.0)
    >>> found = bi_lipschitz_baseline(p, local=())
    >>> found.value >= found.bound, round(found.bound, 4)
    (True, 6.0)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Section 4.1 and
    appendix C.8.
    """
    check_bi_lipschitz(problem)
    if solver is not None:
        profile(solver)
    begin = time.perf_counter()
    names = _local_solvers(problem, local)
    search = _Search(problem, None if time_limit is None else begin + time_limit, seed)
    search.begin(start)
    search.bound_from_below()
    for i, name in enumerate(names):
        share = (len(names) - i) * (2.0 if solver is not None else 1.0)
        search.improve(name, share)
    if solver is not None:
        search.globally(solver, options)
    return search.result(time.perf_counter() - begin)


def _local_solvers(problem: Problem, named: Sequence[str] | None) -> list[str]:
    known = profiles()
    able = [n for n, p in known.items() if p.nonconvex == "local" and p.accepts(problem)]
    if named is None:
        return [n for n in able if known[n].installed]
    wrong = [n for n in named if n not in able]
    if wrong:
        raise DeclarationError(
            f"{wrong[0]!r} is no local solver for this problem", remedy=f"one of {', '.join(able)}"
        )
    return list(named)


class _Search:
    """The best point and the best bound so far."""

    def __init__(
        self, problem: BiLipschitzCounterfactuals, deadline: float | None, seed: int | None
    ) -> None:
        self.problem, self.deadline, self.seed = problem, deadline, seed
        self.point: Floats | None = None
        self.value, self.bound = np.inf, -np.inf
        self.found_by = self.bound_by = ""
        self.notes: list[str] = []

    def offer(self, Z: Any, who: str) -> bool:
        """Take a point if it is feasible and better; whether it is feasible."""
        point = {"counterfactuals": np.array(Z, dtype=float)}
        off = {n: t.relative_violation(point) for n, t in self.problem.constraints.items()}
        worst = max(off, key=lambda name: off[name])
        if not off[worst] <= FEASIBLE:
            self.notes.append(f"{who}: its point breaks {worst!r} by {off[worst]:.1e}")
            return False
        value = self.problem.objective_value(point)
        if value < self.value:
            self.point, self.value, self.found_by = point["counterfactuals"], value, who
        return True

    def begin(self, start: Any) -> None:
        """Collect the points that cost nothing to find."""
        p = self.problem
        if start is not None:
            if np.shape(start) != p.points.shape:
                raise DataError(
                    f"start has shape {np.shape(start)}, the group {p.points.shape}",
                    remedy="give one counterfactual per member",
                )
            if not self.offer(start, "start"):
                raise DataError(
                    "the start is not feasible", self.notes[-1], "give a feasible point, or none"
                )
        self.offer(p.feasible_point()["counterfactuals"], "moved as one")
        K, k = float(p.data["K"]), float(p.data["k"])
        try:
            maps = PSDMap(
                p.points,
                score=p.data["score"],
                threshold=p.level + p.constant,
                target_class=p.data["target_class"],
                K=K,
                k=k,
                feature_costs=p.feature_costs,
            )
            self.offer(maps.map(maps.solve()).transform(p.points), maps.title)
        except OptfairError as e:
            self.notes.append(f"PSDMap: {e.cause}")

    def bound_from_below(self) -> None:
        """Solve the convex relaxations."""
        p = self.problem
        pairs = [name for name in PAIRS if name in p.constraints]
        self._bounded(p.without(*pairs) if pairs else p, "without pairs")
        order = sum(p.points.shape)
        if pairs and order <= LARGEST_GRAM:
            self._bounded(GramBound(p), "GramBound")
        elif pairs:
            self.notes.append(f"GramBound: not tried, its matrix has order {order}")

    def _asked(self, problem: Problem, who: str, *solver: str, **options: Any) -> Solution | None:
        """Return a solution, or note why there is none."""
        try:
            return problem.solve(*solver, **options)
        except OptfairError as e:
            if isinstance(e, SizeLimited) and "options" in options:
                raise
            self.notes.append(f"{who}: {e.cause}")
            return None

    def _bounded(self, relaxation: Problem, who: str) -> None:
        s = self._asked(relaxation, who)
        if s is not None and s.is_optimal(1e-6) and s.bound > self.bound:
            self.bound, self.bound_by = s.bound, who

    def _left(self, share: float) -> dict[str, Any]:
        left = None if self.deadline is None else self.deadline - time.perf_counter()
        return {} if left is None else {"time_limit": max(0.1, left / share)}

    def improve(self, name: str, share: float) -> None:
        """Let a local solver go on from the best point."""
        more = self._left(share)
        s = self._asked(self.problem, name, name, seed=self.seed, warm_start=self._start(), **more)
        if s is not None:
            self.offer(s["counterfactuals"], name)

    def globally(self, name: str, options: dict[str, Any] | None) -> None:
        """Let branch and bound work within the bounds that the best point implies."""
        p = self.problem
        if self.point is None:
            within = p
        else:
            n = len(p.points)
            # a better point moves no member by more than the whole cost allows
            reach = np.sqrt(n * self.value / p.feature_costs) * (1.0 + 1e-9) + 1e-9
            Z = p["counterfactuals"]
            low, high = p.points - reach, p.points + reach
            within = p.with_constraints({"reach": [low <= Z, high >= Z]})
        more = {"options": options or {}, **self._left(1.0)}
        s = self._asked(within, name, name, seed=self.seed, warm_start=self._start(), **more)
        if s is None:
            return
        self.offer(s["counterfactuals"], name)
        bound = min(s.bound, self.value)
        if bound > self.bound:
            self.bound, self.bound_by = bound, name

    def _start(self) -> Solution | None:
        if self.point is None:
            return None
        return Solution(
            problem=self.problem,
            solver=self.found_by,
            version="",
            status=Status("feasible", "feasible", "unknown"),
            objective=self.value,
            bound=-np.inf,
            values={"counterfactuals": self.point},
            multipliers={},
            proof=None,
        )

    def result(self, seconds: float) -> BoundedValue:
        """Return what was found."""
        if self.point is None:
            raise DataError(
                "no feasible point was found",
                "; ".join(self.notes),
                "give a feasible start, or relax the further constraints",
            )
        gap = max(0.0, self.value - self.bound) / self.value if self.value > 0.0 else 0.0
        point = self.point
        point.flags.writeable = False
        who = self.found_by, self.bound_by
        return BoundedValue(point, self.value, self.bound, gap, *who, seconds, tuple(self.notes))
