"""Fair clustering via alignment, FCA and FCA-C, as its paper prints it; for comparison."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, SolverFailure
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.coupling import KantorovichCoupling
from optfair.numbers import Floats, Indices, real

# Entries of an entropic plan below this share of the mean entry are left out.
NEGLIGIBLE = 1e-3


@dataclass(frozen=True, eq=False)
class AlignmentRun:
    """The best iteration of a run, by hard cost as in the paper.

    Attributes
    ----------
    centers : array (K, d)
        Centers.
    assignment : array (n, K)
        Soft assignment, eq. (6).
    plan : scipy.sparse.csr_array (n0, n1)
        Coupling of the two groups, block by block.
    history : tuple of float
        Hard cost of every iteration; it may rise.
    status : {"converged", "max_iter", "time_limit", "interrupted"}
        Why it stopped.
    seconds : float
        Wall time.
    """

    centers: Floats
    assignment: Floats
    plan: sp.csr_array
    history: tuple[float, ...]
    status: str
    seconds: float


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs with mass: rows of each group, mass (total 1), and whether each is in W."""

    first: Indices
    second: Indices
    mass: Floats
    free: NDArray[np.bool_]


def printed_alignment(
    X: Floats,
    groups: Indices,
    centers: Floats,
    *,
    free_share: float = 0.0,
    partition_size: int = 1024,
    coupling: str = "network-simplex",
    regularization: float = 0.01,
    max_iter: int = 100,
    tol: float = 1e-6,
    time_limit: float | None = None,
    rng: np.random.Generator,
    callback: Callable[[int, float], None] | None = None,
) -> AlignmentRun:
    r"""Run FCA (``free_share`` 0) or FCA-C as printed, on two groups.

    Every iteration couples the groups within random blocks at the cost
    :math:`2\pi_0\pi_1\|x_i - x_j\|^2 + \min_k \|\pi_0 x_i + \pi_1 x_j - \mu_k\|^2` and moves the
    centers by k-means on the aligned points. In FCA-C the share ε of the pairs with the
    largest such cost, the set W, costs :math:`\min_k \pi_0 \|x_i - \mu_k\|^2 + \min_k \pi_1
    \|x_j - \mu_k\|^2` instead and is clustered row by row. W follows the centers that were
    moved, before rows are assigned. Its quantile is taken in each block, over all pairs there:
    a reading of §4.3, which couples block by block and does not say. The iteration of least
    hard cost is returned.

    Parameters
    ----------
    X : array (n, d)
        Rows.
    groups : array (n,) of 0 and 1
        Group of each row.
    centers : array (K, d)
        Start.
    free_share : float in [0, 1]
        ε, the share of pairs in W.
    partition_size : int
        Rows per block, both groups together; blocks are drawn once.
    coupling : {"network-simplex", "sinkhorn"}
        Exact transport in each block, or the entropic approximation.
    regularization : float
        λ of the approximation.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop when the centers move by at most this, relative to their spread.
    time_limit : float, optional
        Wall seconds, checked between blocks.
    rng : Generator
        Draws the blocks.
    callback : callable, optional
        Called with the number of the iteration and its hard cost.

    Returns
    -------
    AlignmentRun

    Raises
    ------
    SolverFailure
        An entropic coupling that does not converge; see `entropic_plan`.

    References
    ----------
    Kim, Lee, Park, Kim: Fair Clustering via Alignment, ICML 2025, Algorithms 1 and 2, §4.3.
    """
    begin = time.perf_counter()
    deadline = np.inf if time_limit is None else begin + time_limit
    sides = [np.flatnonzero(groups == g) for g in (0, 1)]
    blocks = _blocks(sides, partition_size, rng)
    pi0 = len(sides[0]) / len(X)
    scale = float(np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())) or 1.0
    best: tuple[float, Floats, Floats, _Pairs] | None = None
    history: list[float] = []
    status = "max_iter"
    try:
        for iteration in range(1, max_iter + 1):
            pairs = _coupled(
                X,
                blocks,
                centers,
                pi0,
                free_share,
                coupling,
                regularization,
                deadline,
                best is None,
            )
            if pairs is None:
                status = "time_limit"
                break
            moved = _moved(X, pairs, centers, pi0)
            shift = float(np.sqrt(((moved - centers) ** 2).sum(axis=1).max())) / scale
            centers = moved
            if free_share > 0:
                pairs = replace(pairs, free=_parted(X, blocks, pairs, centers, pi0, free_share))
            A = _assignment(X, pairs, centers, pi0)
            labels = A.argmax(axis=1)
            cost = float(((X - centers[labels]) ** 2).sum(axis=1).mean())
            history.append(cost)
            if callback is not None:
                callback(iteration, cost)
            if best is None or cost < best[0]:
                best = (cost, centers, A, pairs)
            if shift <= tol:
                status = "converged"
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        status = "interrupted"
    if best is None:  # the first iteration ignores the deadline
        raise SolverFailure("no iteration was run", remedy="give more time")
    _, centers, A, pairs = best
    place = np.empty(len(X), dtype=np.intp)
    for side in sides:
        place[side] = np.arange(side.size)
    plan = sp.csr_array(
        (pairs.mass, (place[pairs.first], place[pairs.second])),
        shape=(sides[0].size, sides[1].size),
    )
    return AlignmentRun(centers, A, plan, tuple(history), status, time.perf_counter() - begin)


def _blocks(
    sides: list[Indices], partition_size: int, rng: np.random.Generator
) -> list[tuple[Indices, Indices]]:
    """Split each group at random into equally many parts of about equal size."""
    rows = sides[0].size + sides[1].size
    count = min(max(1, round(rows / partition_size)), sides[0].size, sides[1].size)
    first, second = (np.array_split(rng.permutation(side), count) for side in sides)
    return list(zip(first, second, strict=True))


def _coupled(
    X: Floats,
    blocks: list[tuple[Indices, Indices]],
    centers: Floats,
    pi0: float,
    free_share: float,
    coupling: str,
    regularization: float,
    deadline: float,
    first_iteration: bool,
) -> _Pairs | None:
    """Couple each block at the printed cost (phase 1), with W by the centers it is given."""
    parts = []
    for i, j in blocks:
        if time.perf_counter() > deadline and not first_iteration:
            return None
        cost = _cost_together(X[i], X[j], centers, pi0)
        free = np.zeros(cost.shape, dtype=bool)
        if free_share > 0:
            free = cost > np.quantile(cost, 1.0 - free_share)
            apart = np.add.outer(
                pi0 * _distances(X[i], centers).min(axis=0),
                (1.0 - pi0) * _distances(X[j], centers).min(axis=0),
            )
            cost = np.where(free, apart, cost)
        if coupling == "sinkhorn":
            plan = entropic_plan(cost, regularization)
            keep = np.nonzero(plan > NEGLIGIBLE / plan.size)
        else:
            plan = KantorovichCoupling(cost=cost).solve()["plan"]
            keep = np.nonzero(plan)
        mass = plan[keep]
        parts.append((i[keep[0]], j[keep[1]], mass / (mass.sum() * len(blocks)), free[keep]))
    return _Pairs(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _cost_together(first: Floats, second: Floats, centers: Floats, pi0: float) -> Floats:
    """Return the printed cost η of every pair of two sets of rows."""
    return KantorovichCoupling(
        first, second, centers=centers, shares=(pi0, 1.0 - pi0), transport_weight="paper"
    ).cost


def _parted(
    X: Floats,
    blocks: list[tuple[Indices, Indices]],
    pairs: _Pairs,
    centers: Floats,
    pi0: float,
    free_share: float,
) -> NDArray[np.bool_]:
    """Return which pairs are in W by the centers given (phase 3)."""
    block, place = np.empty(len(X), dtype=np.intp), np.empty(len(X), dtype=np.intp)
    for number, sides in enumerate(blocks):
        for side in sides:
            block[side], place[side] = number, np.arange(side.size)
    free = np.empty(pairs.mass.size, dtype=bool)
    for number, (i, j) in enumerate(blocks):
        cost = _cost_together(X[i], X[j], centers, pi0)
        own = np.flatnonzero(block[pairs.first] == number)
        eta = cost[place[pairs.first[own]], place[pairs.second[own]]]
        free[own] = eta > np.quantile(cost, 1.0 - free_share)
    return free


def _distances(points: Floats, centers: Floats) -> Floats:
    return SeparableCost("sqeuclidean", points, centers).columns(slice(None))


def _aligned(X: Floats, pairs: _Pairs, pi0: float) -> Floats:
    together = ~pairs.free
    return np.asarray(
        pi0 * X[pairs.first[together]] + (1.0 - pi0) * X[pairs.second[together]], dtype=float
    )


def _moved(X: Floats, pairs: _Pairs, centers: Floats, pi0: float) -> Floats:
    """Run k-means to convergence on aligned points, and on the rows of W by themselves."""
    from sklearn.cluster import KMeans

    together, free = ~pairs.free, pairs.free
    points = [_aligned(X, pairs, pi0)]
    mass = [pairs.mass[together]]
    if free.any():
        points += [X[pairs.first[free]], X[pairs.second[free]]]
        mass += [pi0 * pairs.mass[free], (1.0 - pi0) * pairs.mass[free]]
    weights = np.concatenate(mass)
    fitted = KMeans(len(centers), init=centers, n_init=1, max_iter=300)
    fitted.fit(np.concatenate(points), sample_weight=weights * weights.size)
    return np.asarray(fitted.cluster_centers_)


def _assignment(X: Floats, pairs: _Pairs, centers: Floats, pi0: float) -> Floats:
    """Return the soft assignment of eq. (6): each row's pairs vote with their mass."""
    A = np.zeros((len(X), len(centers)))
    together, free = ~pairs.free, pairs.free
    shared = _distances(_aligned(X, pairs, pi0), centers).argmin(axis=0)
    for rows in (pairs.first, pairs.second):
        np.add.at(A, (rows[together], shared), pairs.mass[together])
        if free.any():
            own = _distances(X[rows[free]], centers).argmin(axis=0)
            np.add.at(A, (rows[free], own), pairs.mass[free])
    return np.asarray(A / A.sum(axis=1, keepdims=True))


# Entropic transport: an approximation of the Kantorovich problem, never a solution of it.

# Error of the column marginal (summed, total mass 1) at which the steps stop, and the largest
# that is returned.
SMALL, LARGEST = 1e-6, 1e-2
# λ is lowered by this factor from the size of the cost, with so many steps at each value; at the
# last one so many times the steps asked for are run where the error is still too large.
FACTOR, STEPS, MORE = 4.0, 100, 10
# Size of a scaling factor at which it is taken into the potentials.
TINY = 1e-50


def check_regularization(regularization: float) -> float:
    """Return λ, or say that it is not a positive number.

    Raises
    ------
    DeclarationError
    """
    value = real(regularization)
    if not 0.0 < value <= 1e15:
        raise DeclarationError(
            f"regularization={regularization!r} is not a positive number",
            remedy="give e.g. 0.01, in units of the cost",
        )
    return value


def entropic_plan(cost: Floats, regularization: float, *, max_iter: int = 1_000) -> Floats:
    r"""Return the plan of entropic transport between uniform marginals.

    .. math:: \min_\Gamma\; \langle C, \Gamma\rangle + \lambda \textstyle\sum_{ij}
              \Gamma_{ij} (\log \Gamma_{ij} - 1)
              \quad\text{s.t.}\quad \Gamma 1 = 1/n_0,\; \Gamma^T 1 = 1/n_1

    An approximation of the problem with λ = 0: every pair gets some mass. The row marginal
    holds exactly, the column marginal up to an error (summed over columns) of 1e-6, or of what
    ``max_iter`` steps reach, at most 1e-2. Where λ is small beside the cost it is lowered to its
    value step by step, and more steps are run.

    Parameters
    ----------
    cost : array (n0, n1)
        Cost matrix C.
    regularization : float
        λ > 0, in units of the cost.
    max_iter : int
        Largest number of Sinkhorn steps at this λ; ten times as many where the error is above
        1e-2.

    Returns
    -------
    array (n0, n1)

    Raises
    ------
    DeclarationError
        λ that is not positive.
    DataError
        A cost that is not finite.
    SolverFailure
        An error of the column marginal above 1e-2: such a plan does not couple the groups.

    Examples
    --------
    >>> import numpy as np
    >>> entropic_plan(np.array([[0.0, 1.0], [1.0, 0.0]]), 0.1).round(3)
    array([[0.5, 0. ],
           [0. , 0.5]])

    References
    ----------
    Cuturi: Sinkhorn Distances, NIPS 2013.
    """
    strength = check_regularization(regularization)
    if not np.isfinite(cost).all():
        raise DataError("the cost has entries that are not finite", remedy="rescale the rows")
    # a shift of rows and columns changes no plan, and no row or column then underflows at once
    shifted = cost - cost.min(axis=1, keepdims=True)
    shifted = shifted - shifted.min(axis=0)
    plan = _entropic_mass(shifted, strength, max_iter)
    error = column_error(plan)
    if not error <= LARGEST:
        raise SolverFailure(
            f"Sinkhorn did not converge at regularization={strength:g}",
            f"{error:.2%} of the mass is in the wrong columns of the coupling; the mean cost is"
            f" {cost.mean():.3g}",
            "give a larger regularization, e.g. 0.01 of the mean cost, or"
            ' coupling="network-simplex", which is exact',
        )
    return plan


def column_error(plan: Floats) -> float:
    """Return the error of a plan's column marginal, summed; the plan has mass 1."""
    return float(np.abs(plan.sum(axis=0) - 1.0 / plan.shape[1]).sum())


def _entropic_mass(cost: Floats, regularization: float, max_iter: int) -> Floats:
    """Run Sinkhorn's steps from λ near the size of the cost down to the one asked for."""
    potentials = np.zeros(cost.shape[0]), np.zeros(cost.shape[1])
    values = [regularization]
    while values[-1] * FACTOR < cost.max():
        values.append(values[-1] * FACTOR)
    # not POT's: it reports underflow by a warning, which only filters of the process silence
    with np.errstate(all="ignore"):
        for value in values[:0:-1]:
            potentials = _stepped(cost, potentials, value, STEPS, STEPS)
        f, g = _stepped(cost, potentials, regularization, max_iter, MORE * max_iter)
        plan = _kernel(cost, f, g, regularization)
        return np.asarray(plan * (1.0 / (plan.shape[0] * plan.sum(axis=1)))[:, None])


def _stepped(
    cost: Floats, potentials: tuple[Floats, Floats], value: float, few: int, many: int
) -> tuple[Floats, Floats]:
    """Step until the column marginal holds: to ``SMALL``, after ``few`` steps to ``LARGEST``."""
    n0, n1 = cost.shape
    (f, g), u, v = potentials, np.ones(n0), np.ones(n1)
    kernel = _kernel(cost, f, g, value)
    for step in range(many):
        columns = kernel.T @ u
        if step % 10 == 9:
            error = np.abs(v * columns - 1.0 / n1).sum()
            if not error > (SMALL if step < few else LARGEST / 2):  # also when not a number
                break
        v = 1.0 / (n1 * columns)
        u = 1.0 / (n0 * (kernel @ v))
        sizes = u.min(), v.min(), 1.0 / u.max(), 1.0 / v.max()
        if min(sizes) < TINY:  # take the factors into the potentials before they underflow
            f, g, u, v = f + value * np.log(u), g + value * np.log(v), np.ones(n0), np.ones(n1)
            kernel = _kernel(cost, f, g, value)
    return f + value * np.log(u), g + value * np.log(v)


def _kernel(cost: Floats, f: Floats, g: Floats, value: float) -> Floats:
    return np.asarray(np.exp((f[:, None] + g - cost) / value))
