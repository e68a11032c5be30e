r"""Families of maps in parameters within a box, for searches that know nothing of the score.

A map is :math:`g(x) = \bar x + \delta + A(x - \bar x)`: what moves the mean is apart from what
deforms the group. Every point of the box is a map whose A is symmetric with eigenvalues in
:math:`[1/K, K]`, so no constraint is spent on it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


# Pairs whose distances are compared during a search; more are sampled.
MOST_PAIRS = 80_000
# Entries of a temporary array.
CHUNK = 4_000_000


@dataclass(frozen=True, eq=False)
class Group:
    """Members, and what a search needs of them.

    Attributes
    ----------
    members : array (n, d)
    center : array (d,)
        Their mean.
    covariance : array (d, d)
        Divided by n.
    directions : array (pairs, d)
        Unit vectors between different members: of all pairs, or of as many drawn ones.
    firsts, seconds : array (pairs,) of int
        The pairs.
    lengths : array (pairs,)
        Their distances.
    """

    members: Floats
    center: Floats
    covariance: Floats
    directions: Floats
    firsts: NDArray[np.intp]
    seconds: NDArray[np.intp]
    lengths: Floats

    @classmethod
    def of(cls, members: Floats, rng: np.random.Generator) -> Group:
        """Return the group of some members."""
        n = members.shape[0]
        if n * (n - 1) // 2 <= MOST_PAIRS:
            firsts, seconds = np.triu_indices(n, 1)
        else:
            firsts = rng.integers(0, n, MOST_PAIRS)
            seconds = (firsts + rng.integers(1, n, MOST_PAIRS)) % n
        apart = members[firsts] - members[seconds]
        lengths = np.linalg.norm(apart, axis=1)
        kept = lengths > 0
        center = members.mean(axis=0)
        centred = members - center
        return cls(
            members,
            center,
            centred.T @ centred / n,
            apart[kept] / lengths[kept, None],
            firsts[kept],
            seconds[kept],
            lengths[kept],
        )


class Family(Protocol):
    """Maps in parameters within a box; all methods take a whole population (P, p)."""

    name: str
    lower: Floats
    upper: Floats

    def images(self, x: Floats) -> Floats:
        """Return the counterfactuals (P, n, d)."""

    def cost(self, x: Floats) -> Floats:
        """Return the mean squared distances (P,)."""

    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        """Return the largest and the smallest ratio of distances (P,), image / original."""

    def pressed(self, shift: Floats, log: float) -> Floats:
        """Return the parameters (p,) of a map that moves the mean and presses the group.

        The group is pressed together by e^log along the shift, as far as the family can.
        """

    def maps(self, x: Floats) -> tuple[Floats, Floats]:
        """Return A (P, d, d) and b (P, d); empty arrays for what is no map."""


class _Affine(ABC):
    """What the affine families share; the first parameters say A, the last d the shift."""

    name: str
    lower: Floats
    upper: Floats

    def __init__(self, group: Group, reach: Floats, K: float, count: int) -> None:
        self.group = group
        log = np.full(count, np.log(K))
        self.count = count
        self.lower = np.concatenate([-log, -reach])
        self.upper = np.concatenate([log, reach])

    @abstractmethod
    def matrices(self, x: Floats) -> Floats:
        """Return A of every parameter vector (p, d, d)."""

    def images(self, x: Floats) -> Floats:
        g = self.group
        moved = np.matmul((g.members - g.center)[None], self.matrices(x))
        return np.asarray(moved + (g.center + x[:, self.count :])[:, None, :])

    def cost(self, x: Floats) -> Floats:
        shift = x[:, self.count :]
        change = self.matrices(x) - np.eye(shift.shape[1])
        deformed = np.einsum("pij,jk,pik->p", change, self.group.covariance, change, optimize=True)
        return np.asarray(np.einsum("pj,pj->p", shift, shift) + deformed)

    @abstractmethod
    def logarithm(self, S: Floats) -> Floats:
        """Return the parameters of exp(S), or of what the family has instead."""

    def pressed(self, shift: Floats, log: float) -> Floats:
        S = log * np.outer(shift, shift) / max(float(shift @ shift), 1e-300)
        return np.asarray(np.concatenate([self.logarithm(S), shift]))

    def maps(self, x: Floats) -> tuple[Floats, Floats]:
        A = self.matrices(x)
        g = self.group
        return A, g.center + x[:, self.count :] - A @ g.center


class _Spectral(_Affine):
    """A = U diag(e^u) U^T in a fixed basis: u of one entry (scaled) or one per direction."""

    def __init__(self, name: str, group: Group, reach: Floats, K: float) -> None:
        d = group.center.size
        self.name = name
        self.basis = np.eye(d)
        if name == "commutative":
            self.basis = np.linalg.eigh(group.covariance)[1]
        super().__init__(group, reach, K, 1 if name == "scaled" else d)
        # |A e|^2 = sum_j a_j^2 (U^T e)_j^2
        self.squares = np.square(group.directions @ self.basis)

    def _values(self, x: Floats) -> Floats:
        values = np.exp(x[:, : self.count])
        return np.asarray(np.broadcast_to(values, (x.shape[0], self.group.center.size)))

    def matrices(self, x: Floats) -> Floats:
        return np.asarray(np.matmul(self.basis * self._values(x)[:, None, :], self.basis.T))

    def logarithm(self, S: Floats) -> Floats:
        along = np.einsum("ji,jk,ki->i", self.basis, S, self.basis)
        return np.array([np.trace(S)]) if self.count == 1 else np.asarray(along)

    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        return _extremes(np.square(self._values(x)), self.squares)


class _Full(_Affine):
    """A = exp(S) for a symmetric S, whose eigenvalues are cut to [-log K, log K]."""

    name = "psd"

    def __init__(self, group: Group, reach: Floats, K: float) -> None:
        d = group.center.size
        self.rows, self.columns = np.triu_indices(d)
        super().__init__(group, reach, K, self.rows.size)
        self.log = np.log(K)
        # |A e|^2 = <A'A, e e'>, off-diagonal entries twice
        e = group.directions
        twice = np.where(self.rows == self.columns, 1.0, 2.0)
        self.products = e[:, self.rows] * e[:, self.columns] * twice

    def matrices(self, x: Floats) -> Floats:
        d = self.group.center.size
        S = np.zeros((x.shape[0], d, d))
        S[:, self.rows, self.columns] = S[:, self.columns, self.rows] = x[:, : self.count]
        values, vectors = np.linalg.eigh(S)
        values = np.exp(np.clip(values, -self.log, self.log))
        return np.asarray(np.matmul(vectors * values[:, None, :], np.swapaxes(vectors, 1, 2)))

    def logarithm(self, S: Floats) -> Floats:
        return np.asarray(S[self.rows, self.columns])

    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        A = self.matrices(x)
        gram = np.matmul(np.swapaxes(A, 1, 2), A)
        return _extremes(gram[:, self.rows, self.columns], self.products)


class _Members:
    """Every member goes where it likes: n·d parameters and no map, the paper's baseline."""

    name = "members"

    def __init__(self, group: Group, reach: Floats, K: float) -> None:
        from scipy.spatial.distance import pdist

        self.group = group
        n = group.members.shape[0]
        self.upper = np.tile(reach, n)
        self.lower = -self.upper
        self.distances = pdist
        # all pairs stand in the order of SciPy; drawn ones do not
        self.kept = pdist(group.members) > 0 if n * (n - 1) // 2 <= MOST_PAIRS else None

    def _moves(self, x: Floats) -> Floats:
        return np.asarray(x.reshape(x.shape[0], *self.group.members.shape))

    def images(self, x: Floats) -> Floats:
        return np.asarray(self.group.members + self._moves(x))

    def cost(self, x: Floats) -> Floats:
        return np.asarray(np.square(x).sum(axis=1) / self.group.members.shape[0])

    def ratios(self, x: Floats) -> tuple[Floats, Floats]:
        g = self.group
        high, low = np.ones(x.shape[0]), np.ones(x.shape[0])
        if g.lengths.size:
            for p, Z in enumerate(self.images(x)):
                if self.kept is not None:
                    apart = self.distances(Z)[self.kept]
                else:
                    apart = np.linalg.norm(Z[g.firsts] - Z[g.seconds], axis=1)
                ratio = apart / g.lengths
                high[p], low[p] = ratio.max(), ratio.min()
        return high, low

    def pressed(self, shift: Floats, log: float) -> Floats:
        return np.asarray(np.tile(shift, self.group.members.shape[0]))

    def maps(self, x: Floats) -> tuple[Floats, Floats]:
        d = self.group.center.size
        return np.empty((0, d, d)), np.empty((0, d))


FAMILIES = ("psd", "diagonal", "commutative", "scaled", "members")


def family_of(name: str, group: Group, reach: Floats, K: float) -> Family:
    """Return a family on a group.

    Parameters
    ----------
    name : str
        One of `FAMILIES`.
    group : Group
        Members.
    reach : array (d,)
        Bounds of the shift.
    K : float
        Bound of the eigenvalues and of their inverses.
    """
    if name == "psd":
        return _Full(group, reach, K)
    if name == "members":
        return _Members(group, reach, K)
    return _Spectral(name, group, reach, K)


def _extremes(weights: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Return the largest and smallest root of weights @ squares.T, without keeping it."""
    count = weights.shape[0]
    if squares.shape[0] == 0:  # all members are equal
        return np.ones(count), np.ones(count)
    high, low = np.zeros(count), np.full(count, np.inf)
    step = max(1, CHUNK // count)
    for start in range(0, squares.shape[0], step):
        found = weights @ squares[start : start + step].T
        np.maximum(high, found.max(axis=1), out=high)
        np.minimum(low, found.min(axis=1), out=low)
    return np.sqrt(high), np.sqrt(np.maximum(low, 0.0))
