"""What a pass over log densities returns: a few numbers that add up over blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.intp]

# Rows per block: a block of 20 clusters stays in the cache.
CHUNK = 8_192


@dataclass(frozen=True, eq=False)
class MassPass:
    r"""Value, masses and curvature of a pass at prices Λ; passes over blocks of rows add up.

    .. math::
        F = \sum_i w_i \log\sum_k e^{\ell_{ik} - \Lambda_{g_i k}}, \qquad
        M_{gk} = \sum_{i \in g} w_i R_{ik} = -\partial F / \partial\Lambda_{gk}, \qquad
        H_g = \mathrm{diag}(M_g) - \sum_{i \in g} w_i R_i R_i^T

    Attributes
    ----------
    value : float
        F.
    masses : array (G, K)
        M.
    curvature : array (G, K, K) or None
        Blocks of the Hessian of F; None when it was not asked for.
    """

    value: float
    masses: Floats
    curvature: Floats | None = None

    def __add__(self, other: MassPass) -> MassPass:
        both = self.curvature is not None and other.curvature is not None
        return MassPass(
            self.value + other.value,
            self.masses + other.masses,
            np.asarray(self.curvature) + np.asarray(other.curvature) if both else None,
        )


#: (prices (G, K), whether the curvature is wanted) -> the pass over all rows
MassOracle = Callable[[Floats, bool], MassPass]


class LogRows:
    """Log densities of rows in memory; calling it makes a pass over them.

    Parameters
    ----------
    log_prob : array (n, K)
        Log joint densities or log responsibilities; a number per row may be added.
    labels : array (n,) of int
        Group index of each row.
    weights : array (n,)
        Weights, total 1.
    groups : int
        Number of groups G.
    """

    def __init__(self, log_prob: Floats, labels: Integers, weights: Floats, groups: int) -> None:
        self.log_prob, self.labels, self.weights, self.groups = log_prob, labels, weights, groups

    def __call__(self, prices: Floats, curvature: bool = True) -> MassPass:
        """Return value, masses and curvature at given prices."""
        return mass_pass(self.log_prob, self.labels, self.weights, prices, curvature=curvature)


def mass_pass(
    log_prob: Floats,
    labels: Integers,
    weights: Floats,
    prices: Floats,
    *,
    curvature: bool = True,
) -> MassPass:
    """Return the `MassPass` of some rows: the map of a map-reduce, whose reduce is ``+``.

    Parameters
    ----------
    log_prob : array (m, K)
        Log densities of the rows.
    labels, weights : arrays (m,)
        Group index and weight of each row; weights of all rows of all blocks have total 1.
    prices : array (G, K)
        Prices Λ of the masses.
    curvature : bool
        Whether the blocks of the Hessian are wanted.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.log([[0.5, 0.5], [0.2, 0.8]])
    >>> found = mass_pass(rows, np.array([0, 1]), np.array([0.5, 0.5]), np.zeros((2, 2)))
    >>> found.masses.round(12).tolist()
    [[0.25, 0.25], [0.1, 0.4]]
    """
    blocks = ((g, S, weights[rows]) for g, rows, S in _columns(log_prob, labels, len(prices)))
    return pass_over(blocks, prices, curvature=curvature)


def pass_over(
    blocks: Iterable[tuple[int, Floats, Floats]], prices: Floats, *, curvature: bool = True
) -> MassPass:
    """Return the `MassPass` of blocks (group, log densities (K, m), weights); they are used up.

    Sums over clusters run along contiguous memory.
    """
    G, K = prices.shape
    value, masses = 0.0, np.zeros((G, K))
    curved = np.zeros((G, K, K)) if curvature else None
    for g, S, w in blocks:
        total = _softened(S, prices[g])
        value += float(w @ total)
        scaled = S * w
        masses[g] += scaled.sum(axis=1)
        if curved is not None:
            curved[g] -= scaled @ S.T
    if curved is not None:
        diagonal = np.arange(K)
        curved[:, diagonal, diagonal] += masses
    return MassPass(value, masses, curved)


def group_softmax(log_prob: Floats, labels: Integers, prices: Floats) -> Floats:
    r"""Return the responsibilities at given prices (m x K).

    .. math:: R_{ik} \propto \exp(\ell_{ik} - \Lambda_{g_i k})

    Parameters
    ----------
    log_prob : array (m, K)
        Log densities of any rows, also of rows the prices were not made from.
    labels : array (m,)
        Group index of each row.
    prices : array (G, K)
        Prices Λ of the masses.
    """
    out = np.empty(log_prob.shape)
    for g, rows, S in _columns(log_prob, labels, len(prices)):
        _softened(S, prices[g])
        out[rows] = S.T
    return out


def group_log_sums(log_prob: Floats, labels: Integers, prices: Floats) -> Floats:
    r"""Return the logarithm of each row's sum at given prices (m,).

    .. math:: \log\textstyle\sum_k \exp(\ell_{ik} - \Lambda_{g_i k})
    """
    out = np.empty(labels.size)
    for g, rows, S in _columns(log_prob, labels, len(prices)):
        out[rows] = _softened(S, prices[g])
    return out


def _columns(
    log_prob: Floats, labels: Integers, groups: int
) -> Iterator[tuple[int, Integers, Floats]]:
    """Yield (group, rows, log densities (K, m)), clusters along the first axis."""
    for start in range(0, labels.size, CHUNK):
        here = labels[start : start + CHUNK]
        for g in range(groups):
            rows = np.flatnonzero(here == g) + start
            if rows.size:
                yield g, rows, np.ascontiguousarray(log_prob[rows].T)


def _softened(S: Floats, prices: Floats) -> Floats:
    """Turn log densities (K, m) into responsibilities in place and return their log sums (m,)."""
    S -= prices[:, None]
    top = S.max(axis=0)
    S -= top
    np.exp(S, out=S)
    total = S.sum(axis=0)
    S /= total
    return np.asarray(top + np.log(total))
