"""The Kantorovich problem: couple two sets of points at least cost, whole or through centers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.backends.request import Outcome, Request, SolverProfile, stages
from optfair.core.certificate import DualCheck
from optfair.core.expressions import Values
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LP, Evidence, Structure
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import ClassError, DataError, DeclarationError, nearest
from optfair.library.instance import dataset_rows, named_centers
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.numbers import (
    Floats,
    check_matrix,
    check_number,
    check_text,
    check_vector,
    checked,
    floats,
)
from optfair.proofs.rounding import loss
from optfair.rows.frames import in_one_order

WEIGHTS = ("exact", "paper")
# Uniform marginals 1/n0 and 1/n1 are carried as the integers n1 and n0: sums are then exact.
LARGEST_INTEGER = 2**53
ITERATIONS = 50_000_000
# POT's result code of an optimal plan.
OPTIMAL = 1


class KantorovichCoupling(Problem):
    r"""Couple two sets of points at least cost.

    .. math::
        \min_{\Gamma \ge 0}\; \langle C, \Gamma\rangle
        \quad\text{s.t.}\quad \Gamma 1 = a,\; \Gamma^T 1 = b

    Class: LP.

    For fair clustering the cost of a pair is what the two rows cost in their best common
    cluster. With group shares :math:`\pi_0, \pi_1` and centers μ,

    .. math::
        c_{ij} = \min_k (\pi_0 \|x_i - \mu_k\|^2 + \pi_1 \|x_j - \mu_k\|^2)
               = \pi_0 \pi_1 \|x_i - x_j\|^2 + \min_k \|\pi_0 x_i + \pi_1 x_j - \mu_k\|^2 ,

    the exact weight. The paper prints 2π0π1 in eq. (3), (4) and its Algorithm 2, which is a
    different objective and contradicts its Theorem 3.1; ``transport_weight="paper"`` gives it
    for comparison.

    Parameters
    ----------
    first, second : array-like (n0, d), (n1, d), optional
        Points of the two groups.
    centers : array-like (K, d), optional
        Cluster centers.
    cost : array-like (n0, n1), optional
        Any cost matrix, in place of points and centers.
    a, b : array-like (n0,), (n1,), optional
        Marginals, positive and of equal sum; uniform with sum 1 by default.
    shares : (float, float), optional
        Group shares π; the sizes of the groups by default.
    metric, p
        As in `FairAssignment`; the paper's weight needs "sqeuclidean".
    transport_weight : {"exact", "paper"}
        Weight of the squared distance between the two points.

    Attributes
    ----------
    variables : ``plan`` (n0, n1)

    Raises
    ------
    DataError, DeclarationError
        Entries, lengths or marginals that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> p = of.KantorovichCoupling(cost=[[0.0, 1.0], [1.0, 0.0]])
    >>> s = p.solve()
    >>> s.solver, float(s.objective)
    ('pot-network-simplex', 0.0)

    References
    ----------
    Kim, Lee, Park, Kim: Fair Clustering via Alignment, ICML 2025, Theorem 3.1 and eq. (4).
    """

    title = "KantorovichCoupling"
    structures: ClassVar[tuple[Structure, ...]] = (
        Structure(
            "coupling",
            ("transport cost", "row marginal", "column marginal", "nonnegativity"),
            frozenset(),
            "a marginal",
        ),
    )

    @checked(
        first=floats,
        second=floats,
        centers=floats,
        cost=floats,
        a=floats,
        b=floats,
        metric=check_text,
        p=check_number,
        transport_weight=check_text,
    )
    @in_one_order("first", "a")
    @in_one_order("second", "b")
    def __init__(
        self,
        first: Any = None,
        second: Any = None,
        *,
        centers: Any = None,
        cost: Any = None,
        a: Any = None,
        b: Any = None,
        shares: tuple[float, float] | None = None,
        metric: str = "sqeuclidean",
        p: float = 2.0,
        transport_weight: str = "exact",
    ) -> None:
        if transport_weight not in WEIGHTS:
            raise DeclarationError(
                f"unknown transport_weight {transport_weight!r}",
                remedy=nearest(transport_weight, WEIGHTS),
            )
        points = None
        if cost is not None:
            if first is not None or second is not None or centers is not None:
                raise DeclarationError(
                    "give a cost matrix or points with centers, not both", remedy="leave one out"
                )
            matrix = check_matrix(cost, "cost")
            shape = matrix.shape
            compute: Callable[[], Floats] = partial(np.asarray, matrix)
        else:
            if first is None or second is None or centers is None:
                raise DeclarationError(
                    "points are incomplete", remedy="give first, second and centers, or cost"
                )
            if transport_weight == "paper" and metric != "sqeuclidean":
                raise DeclarationError(
                    "the paper's transport weight is defined for squared distances only",
                    f"metric is {metric!r}",
                    "use transport_weight='exact'",
                )
            x0 = check_matrix(first, "first")
            x1 = check_matrix(second, "second", columns=x0.shape[1])
            mu = check_matrix(centers, "centers", columns=x0.shape[1])
            shape = (x0.shape[0], x1.shape[0])
            pi0 = shape[0] / sum(shape) if shares is None else _first_share(shares)
            if not 0.0 < pi0 < 1.0:
                raise DataError(
                    f"shares {shares} are not positive", remedy="give two positive numbers"
                )
            points = (SeparableCost(metric, x0, mu, p), SeparableCost(metric, x1, mu, p), pi0)
            extra = pi0 * (1.0 - pi0) if transport_weight == "paper" else 0.0
            compute = partial(_pair_cost, *points, extra)
        super().__init__(
            {
                "compute": compute,
                "a": _marginal(a, shape[0], "a"),
                "b": _marginal(b, shape[1], "b"),
                "points": points,
                "transport_weight": transport_weight,
                "kept": {},
            }
        )
        if abs(self.data["a"].sum() - self.data["b"].sum()) > 1e-9 * self.data["a"].sum():
            raise DataError(
                "the marginals have different sums",
                f"{self.data['a'].sum():g} and {self.data['b'].sum():g}",
                "rescale one of them",
            )

    @property
    def cost(self) -> Floats:
        """The cost matrix (n0 x n1), computed once."""
        kept = self.data["kept"]
        if "cost" not in kept:
            kept["cost"] = self.data["compute"]()
        return np.asarray(kept["cost"])

    def declare(self) -> Declaration:
        """Declare the plan and its marginals; the cost matrix is not built."""
        a, b = self.data["a"], self.data["b"]
        shape = (a.size, b.size)
        plan = cp.Variable(shape, name="plan")

        def term(name: str, where: str, **rest: Any) -> ConstraintTerm:
            return ConstraintTerm(
                name, frozenset({"plan"}), Evidence(name, "affine", where, LP), **rest
            )

        return Declaration(
            variables={"plan": plan},
            objective=(
                ObjectiveTerm(
                    "transport cost",
                    frozenset({"plan"}),
                    Evidence("transport cost", "affine", "minimize", LP),
                    build=lambda: cp.sum(cp.multiply(self.cost, plan)),
                    latex=r"\langle C, \Gamma \rangle",
                    value=lambda v: float(np.einsum("ij,ij->", self.cost, v["plan"])),
                ),
            ),
            constraints=(
                term(
                    "row marginal",
                    "Zero",
                    build=lambda: cp.sum(plan, axis=1) == a,
                    violation=lambda v: np.abs(np.asarray(v["plan"]).sum(axis=1) - a),
                    shape=(a.size,),
                    scale=float(a.max()),
                    latex=r"\Gamma 1 = a",
                ),
                term(
                    "column marginal",
                    "Zero",
                    build=lambda: cp.sum(plan, axis=0) == b,
                    violation=lambda v: np.abs(np.asarray(v["plan"]).sum(axis=0) - b),
                    shape=(b.size,),
                    scale=float(b.max()),
                    latex=r"\Gamma^T 1 = b",
                ),
                term(
                    "nonnegativity",
                    "Nonpositive",
                    build=lambda: plan >= 0,
                    violation=lambda v: np.maximum(-np.asarray(v["plan"]), 0.0),
                    shape=shape,
                    latex=r"\Gamma \ge 0",
                ),
            ),
        )


def _pair_cost(first: SeparableCost, second: SeparableCost, pi0: float, extra: float) -> Floats:
    """Return c_ij = min_k (π0 D_ik + π1 D_jk) [+ extra |x_i - x_j|²]."""
    D0, D1 = pi0 * first.columns(slice(None)), (1.0 - pi0) * second.columns(slice(None))
    C = np.add.outer(D0[0], D1[0])
    sums = np.empty_like(C)
    for k in range(1, D0.shape[0]):  # K passes over one matrix, never n0 x n1 x d
        np.add.outer(D0[k], D1[k], out=sums)
        np.minimum(C, sums, out=C)
    if extra:
        x, y = first.points, second.points
        shift = x.mean(axis=0)
        x, y = x - shift, y - shift
        squares = np.add.outer((x * x).sum(axis=1), (y * y).sum(axis=1)) - 2.0 * (x @ y.T)
        C += extra * np.maximum(squares, 0.0)
    return np.asarray(C, dtype=float)


def _first_share(shares: Any) -> float:
    pair = check_vector(shares, "shares", 2)
    return float(pair[0] / pair.sum()) if pair.sum() else 0.0


def _marginal(values: Any, size: int, name: str) -> Floats:
    if values is None:
        return np.full(size, 1.0 / size)
    m = floats(values, name)
    if m.shape != (size,) or not np.isfinite(m).all() or (m <= 0).any():
        raise DataError(
            f"marginal {name} does not fit",
            f"shape {m.shape} for {size} points"
            if m.shape != (size,)
            else "it has entries that are not positive numbers",
            "give one positive number per point, and drop points without mass",
        )
    return m


# Kantorovich coupling -> fair assignment with (n0 + n1) K variables, and back.


@dataclass(frozen=True, eq=False)
class FactoredCoupling:
    """The factored problem with the way back.

    Attributes
    ----------
    original : KantorovichCoupling
        What was factored.
    problem : FairAssignment
        Same optimum, (n0 + n1) K variables; rows of the first set come first.
    """

    original: KantorovichCoupling
    problem: FairAssignment

    def recover(self, solution: Solution) -> Any:
        """Return a sparse plan (n0 x n1) of the coupling from a solution of `problem`."""
        n0 = self.original.data["a"].size
        A = np.asarray(solution["assignment"])
        mass = float(self.original.data["a"].sum())
        first = A[:n0] * self.original.data["a"][:, None]
        second = A[n0:] * self.original.data["b"][:, None] * (mass / self.original.data["b"].sum())
        return glue(first, second)


def factor_coupling(problem: KantorovichCoupling) -> FactoredCoupling:
    r"""Return the fair assignment problem with the same optimum.

    Because :math:`c_{ij} = \min_k (\pi_0 D_{ik} + \pi_1 D_{jk})`, an optimal pair meets in a
    cluster: reading that cluster off each pair gives assignments with equal group fractions,
    and gluing the two sides of each cluster gives a plan back. Preserves the optimal value
    (for marginals of sum 1); class LP on both sides.

    Parameters
    ----------
    problem : KantorovichCoupling
        Declared from points and centers with the exact transport weight.

    Returns
    -------
    FactoredCoupling

    Raises
    ------
    ClassError
        The cost does not factor: the paper's weight, a free cost matrix, or further terms.

    Examples
    --------
    >>> import numpy as np
    >>> import optfair as of
    >>> rng = np.random.default_rng(0)
    >>> x, y, mu = rng.normal(size=(6, 2)), rng.normal(size=(9, 2)), rng.normal(size=(3, 2))
    >>> p = of.KantorovichCoupling(x, y, centers=mu)
    >>> f = of.fair_clustering.factor_coupling(p)
    >>> bool(np.isclose(f.problem.solve().objective, p.solve().objective, rtol=1e-12))
    True
    """
    points = problem.data.get("points")
    if points is None:
        raise ClassError(
            "a free cost matrix does not factor through clusters",
            "the factored form needs c_ij = min_k (π0 D_ik + π1 D_jk)",
            "declare the coupling from points and centers",
        )
    if problem.data["transport_weight"] != "exact":
        raise ClassError(
            "the paper's transport weight 2 π0 π1 does not factor",
            "only the exact weight π0 π1 makes the pair cost a minimum over clusters",
            "use transport_weight='exact'",
        )
    lost = problem.structure_refusal("coupling")
    if lost:
        raise ClassError("this coupling has further terms", lost, "factor the plain coupling")
    first, second, pi0 = points
    n0, n1 = first.rows, second.rows
    a, b = problem.data["a"], problem.data["b"]
    weights = np.concatenate([pi0 * a / a.sum(), (1.0 - pi0) * b / b.sum()])
    factored = FairAssignment(
        np.vstack([first.points, second.points]),
        groups=np.repeat([0, 1], [n0, n1]),
        centers=first.centers,
        sample_weight=weights,
        metric=first.metric,
        p=first.p,
    )
    return FactoredCoupling(problem, factored)


def glue(first: Floats, second: Floats) -> Any:
    """Glue the two sides of every cluster by the north-west corner rule.

    Parameters
    ----------
    first, second : arrays (n0, K), (n1, K)
        Mass of each point in each cluster; equal column sums.

    Returns
    -------
    scipy.sparse.csr_array (n0, n1)
        A plan with those marginals: per cluster at most as many entries as the two sides
        have together, minus one; for vertex assignments that is at most n0 + n1 + K in all.
    """
    rows, columns, masses = [], [], []
    for k in range(first.shape[1]):
        i, j = np.flatnonzero(first[:, k]), np.flatnonzero(second[:, k])
        if not i.size or not j.size:  # an empty cluster
            continue
        left, right = np.cumsum(first[i, k]), np.cumsum(second[j, k])
        right *= left[-1] / right[-1]
        ends = np.union1d(left, right)
        length = np.diff(ends, prepend=0.0)
        middle = ends - length / 2.0
        keep = length > 1e-12 * left[-1] / max(i.size, j.size)
        rows.append(i[np.minimum(np.searchsorted(left, middle), i.size - 1)][keep])
        columns.append(j[np.minimum(np.searchsorted(right, middle), j.size - 1)][keep])
        masses.append(length[keep])
    shape = (first.shape[0], second.shape[0])
    return sp.csr_array(
        (np.concatenate(masses), (np.concatenate(rows), np.concatenate(columns))), shape=shape
    )


# From a [data] table, and the smallest problem.


def coupling_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of `KantorovichCoupling`.

    With ``dataset``, the two sets of points are the two groups, in the order of their labels.
    """
    arguments = dict(data)
    if "dataset" not in data:
        return arguments
    X, labels, asked = dataset_rows(arguments)
    centers = named_centers(asked, X)
    names = np.unique(labels)
    if names.size != 2:
        raise DataError(
            f"a coupling joins two groups, {data['groups']!r} has {names.size}",
            ", ".join(map(str, names)),
            "choose a column with two values, or FairAssignment for more groups",
        )
    first, second = (X[labels == name] for name in names)
    return arguments | {"first": first, "second": second, "centers": centers}


def small_coupling() -> KantorovichCoupling:
    """Return a problem with the structure ``coupling``: two points and two points."""
    return KantorovichCoupling(cost=[[0.0, 1.0], [1.0, 0.0]])


# Route of the structure: POT's network simplex, duals repaired, certificate.


def run_network_simplex(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the transport problem and repair its potentials to a dual feasible pair."""
    import ot

    p = cast(KantorovichCoupling, problem)
    request.refuse_options(profile)
    begin = time.perf_counter()
    C = p.cost
    a, b, unit = _integer_masses(p.data["a"], p.data["b"])
    compiled_at = time.perf_counter()
    # no warnings.catch_warnings: it changes the filters of all threads; POT warns of a stop only
    plan, log = ot.emd(a, b, C, numItermax=ITERATIONS, log=True)
    solved_at = time.perf_counter()
    plan = np.asarray(plan, dtype=float) * unit
    # c-transform: the largest u for this v and then the largest v, so u + v <= C holds
    v = np.asarray(log["v"], dtype=float)
    u = (C - v).min(axis=1)
    v = (C - u[:, None]).min(axis=0)
    plan.flags.writeable = u.flags.writeable = v.flags.writeable = False
    proof = TransportProof(p)
    multipliers = {"row marginal": -u, "column marginal": -v, "nonnegativity": _slack(C, u, v)}
    return Outcome(
        "optimal" if log["result_code"] == OPTIMAL else "stalled",
        {"plan": plan},
        multipliers,
        proof,
        stages(begin, compiled_at, solved_at),
    )


def _slack(C: Floats, u: Floats, v: Floats) -> Floats:
    return np.asarray(C - u[:, None] - v)


def _integer_masses(a: Floats, b: Floats) -> tuple[Floats, Floats, float]:
    """Return integer masses and the factor back when both marginals are uniform."""
    n0, n1 = a.size, b.size
    uniform = np.ptp(a) == 0.0 and np.ptp(b) == 0.0
    if uniform and n0 * n1 < LARGEST_INTEGER:
        divisor = np.gcd(n0, n1)
        heavy, light = np.full(n0, float(n1 // divisor)), np.full(n1, float(n0 // divisor))
        return heavy, light, float(a.sum()) / (n0 * float(n1 // divisor))
    return a, b * (a.sum() / b.sum()), 1.0


@dataclass(frozen=True, eq=False)
class TransportProof:
    r"""Potentials with :math:`u_i + v_j \le C_{ij}`: their value is a bound for every plan."""

    problem: KantorovichCoupling
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound; the multipliers of the marginals are -u and -v."""
        C, a, b = self.problem.cost, self.problem.data["a"], self.problem.data["b"]
        u = -np.asarray(multipliers["row marginal"], dtype=float)
        v = -np.asarray(multipliers["column marginal"], dtype=float)
        slack = _slack(C, u, v)
        given = np.asarray(multipliers["nonnegativity"], dtype=float)
        unit = 1.0 + float(np.abs(C).max())
        apart = np.inf
        if given.shape == slack.shape:
            apart = float(np.abs(given - slack).max()) / unit
        plan = np.asarray(values["plan"], dtype=float)
        return DualCheck(
            # potentials that are too high by a rounding are lowered, row by row
            bound=float(a @ u + b @ v + a @ np.minimum(slack.min(axis=1), 0.0))
            - loss(a.size + b.size, float(a @ (np.abs(u) + np.abs(C).max(axis=1)) + b @ np.abs(v))),
            dual=max(0.0, -float(slack.min())) / unit,
            complementarity=float((np.abs(plan) * np.abs(slack)).max()) / unit,
            consistency=apart,
        )
