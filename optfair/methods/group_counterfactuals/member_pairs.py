"""All pairs of members of a group, numbered as SciPy's condensed distances are."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["MemberPairs"]


class MemberPairs:
    """Pairs i < j of n members, in the order (0, 1), (0, 2), ..., (1, 2), ...

    Parameters
    ----------
    points : array (n, d)
        The members.

    Examples
    --------
    >>> pairs = MemberPairs(np.array([[0.0], [1.0], [3.0]]))
    >>> pairs.distances.tolist(), [part.tolist() for part in pairs.ends(np.array([1, 2]))]
    ([1.0, 3.0, 2.0], [[0, 1], [2, 2]])
    """

    def __init__(self, points: Floats) -> None:
        self.points = points

    @property
    def count(self) -> int:
        """n(n - 1)/2."""
        n = len(self.points)
        return n * (n - 1) // 2

    @cached_property
    def distances(self) -> Floats:
        """Distances of the pairs."""
        return self.of(self.points)

    def of(self, points: Any) -> Floats:
        """Return the distances of the pairs of other points, in the same order."""
        return np.asarray(pdist(np.asarray(points, dtype=float)))

    @cached_property
    def _starts(self) -> Indices:
        n = self.points.shape[0]
        i = np.arange(n - 1)
        return np.asarray(i * (2 * n - i - 1) // 2, dtype=np.intp)

    def ends(self, index: Indices) -> tuple[Indices, Indices]:
        """Return the members i and j of some pairs."""
        i = np.searchsorted(self._starts, index, side="right") - 1
        return i, index - self._starts[i] + i + 1

    def differences(self, index: Indices) -> Any:
        """Return the sparse matrix that takes points to the differences of some pairs."""
        i, j = self.ends(np.asarray(index, dtype=np.intp))
        k = np.arange(i.size)
        ones = np.ones(i.size)
        entries = np.concatenate([ones, -ones]), (np.tile(k, 2), np.concatenate([i, j]))
        return sp.csr_array(entries, shape=(i.size, self.points.shape[0]))
