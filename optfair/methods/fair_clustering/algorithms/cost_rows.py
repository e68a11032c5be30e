"""The cost of putting each row into each cluster, produced block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from optfair.methods.fair_clustering.separable_cost import SeparableCost

Floats = NDArray[np.float64]

__all__ = ["CostRows"]

# Costs of up to this many arcs (128 MB) are kept; beyond it they are recomputed in each pass.
KEEP = 16_000_000
# Rows per block otherwise.
CHUNK = 65_536


class CostRows:
    """Costs with clusters along the first axis and rows ordered by group.

    Minima over clusters then run along contiguous memory, and adding one price vector per
    group is a broadcast instead of a gather.

    Parameters
    ----------
    cost : SeparableCost
        Costs of the declared problem, rows in the user's order.
    groups : array (n,) of int
        Group index of each row.
    weights : array (n,)
        Weights, total 1.
    rows : array of int, optional
        Use these rows only; ``weights`` then belong to them.
    """

    def __init__(
        self,
        cost: SeparableCost,
        groups: NDArray[np.intp],
        weights: Floats,
        rows: NDArray[np.intp] | None = None,
    ) -> None:
        rows = np.arange(groups.size) if rows is None else rows
        order = np.argsort(groups[rows], kind="stable")
        self.rows = rows[order]
        self.groups = groups[self.rows]
        self.weights = weights[order] if weights.size == rows.size else weights[self.rows]
        self.size, self.clusters = self.rows.size, cost.clusters
        self.group_count = int(groups.max()) + 1
        bounds = np.searchsorted(self.groups, np.arange(self.group_count + 1))
        self._bounds = bounds
        self._pieces = [
            (g, start, min(start + CHUNK, int(bounds[g + 1])))
            for g in range(self.group_count)
            for start in range(int(bounds[g]), int(bounds[g + 1]), CHUNK)
        ]
        self.cost, self.labels = cost, groups
        self._kept: list[Floats] | None = None
        if self.size * self.clusters <= KEEP:
            self._kept = [self._compute(start, stop) for _, start, stop in self._pieces]

    def _compute(self, start: int, stop: int) -> Floats:
        return self.cost.columns(self.rows[start:stop])

    def blocks(self) -> Iterator[tuple[int, int, int, Floats]]:
        """Yield (group, start, stop, costs K x m); the costs must not be written to."""
        for index, (g, start, stop) in enumerate(self._pieces):
            yield g, start, stop, self._kept[index] if self._kept else self._compute(start, stop)

    def members(self, group: int) -> NDArray[np.intp]:
        """Return the positions of the rows of one group."""
        return np.arange(self._bounds[group], self._bounds[group + 1])

    def gather(self, positions: NDArray[np.intp]) -> Floats:
        """Return the costs (K x m) of rows given by their position in this ordering."""
        return self.cost.columns(self.rows[positions])
