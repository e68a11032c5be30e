"""How far apart clusters are, in distances of rows to their counterfactuals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, NotInstalled, nearest

Floats = NDArray[np.float64]

__all__ = ["ClusterSeparability"]

STATISTICS = {"median": np.median, "mean": np.mean, "min": np.min, "max": np.max}
# Pairs of clusters listed in a print.
SHOWN = 8


@dataclass(frozen=True, eq=False, repr=False)
class ClusterSeparability:
    r"""Distances of rows to their nearest counterfactual in each other cluster.

    .. math:: d_{it} = \min \{ \|z - x_i\| : z \in t \}, \qquad
        S_{st} = \operatorname{median}_{i \in s} d_{it}

    A cluster whose rows are close to another one is weakly separated from it: small changes
    of the features would move its rows over. S is not symmetric.

    Attributes
    ----------
    source : int array (n,)
        Cluster of each row.
    distances : array (n, K)
        Distance of each row to each cluster: NaN in its own, infinite where there is none.
    gap : float
        Largest relative gap to the bound that is proved for each distance.
    units : str
        What the distances are.
    """

    source: NDArray[np.intp]
    distances: Floats
    gap: float
    units: str = "distance"

    @property
    def clusters(self) -> int:
        """Number of clusters K."""
        return int(self.distances.shape[1])

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Rows of each cluster (K,)."""
        return np.bincount(self.source, minlength=self.clusters)

    def pair(self, source: int, target: int) -> Floats:
        """Return the distances of the rows of one cluster to another, where there are any."""
        for k in (source, target):
            if not 0 <= int(k) < self.clusters:
                raise DataError(f"no cluster {k}", remedy=f"give one of 0 to {self.clusters - 1}")
        values = self.distances[self.source == source, target]
        return np.asarray(values[np.isfinite(values)])

    def matrix(self, statistic: Any = "median") -> Floats:
        """Return a statistic of the distances of each pair of clusters.

        Parameters
        ----------
        statistic : {"median", "mean", "min", "max"} or float
            Or a quantile between 0 and 1.

        Returns
        -------
        array (K, K)
            From the cluster of the row to the other; NaN on the diagonal and where no row
            reaches the other cluster.

        Raises
        ------
        DataError
            Unknown statistic.
        """
        if isinstance(statistic, str):
            if statistic not in STATISTICS:
                remedy = nearest(statistic, STATISTICS)
                raise DataError(f"unknown statistic {statistic!r}", remedy=remedy)
            of: Any = STATISTICS[statistic]
        else:
            share = float(statistic)
            if not 0.0 <= share <= 1.0:
                raise DataError(f"{share} is no quantile", remedy="give a number from 0 to 1")
            of = lambda values: np.quantile(values, share)
        K = self.clusters
        found = np.full((K, K), np.nan)
        for s in range(K):
            for t in range(K):
                values = self.pair(s, t) if s != t else np.empty(0)
                if values.size:
                    found[s, t] = float(of(values))
        return found

    def reached(self) -> Floats:
        """Return the share of the rows of each cluster that can reach each other one (K, K)."""
        K = self.clusters
        found = np.full((K, K), np.nan)
        for s in np.flatnonzero(self.sizes):
            found[s] = np.isfinite(self.distances[self.source == s]).mean(axis=0)
            found[s, s] = np.nan
        return found

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per pair of clusters, the closest first.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        try:
            import pandas as pd
        except ImportError as e:
            raise NotInstalled(
                "pandas is not installed", str(e), "pip install pandas, or use the arrays"
            ) from None
        reached = self.reached()
        rows = []
        for s, t, median in self._closest():
            low, first, _, third, high = np.quantile(self.pair(s, t), [0.0, 0.25, 0.5, 0.75, 1.0])
            rows.append(
                {
                    "source": s,
                    "target": t,
                    "rows": int(self.sizes[s]),
                    "reached": float(reached[s, t]),
                    "min": low,
                    "25%": first,
                    "median": median,
                    "75%": third,
                    "max": high,
                }
            )
        return pd.DataFrame(rows)

    def _closest(self) -> list[tuple[int, int, float]]:
        matrix = self.matrix()
        pairs = [(int(s), int(t), float(matrix[s, t])) for s, t in np.argwhere(~np.isnan(matrix))]
        return sorted(pairs, key=lambda p: p[2])

    def __repr__(self) -> str:
        lines = [
            f"Separability of {self.clusters} clusters, {self.source.size} rows: "
            f"{self.units} to the nearest counterfactual, largest gap {self.gap:.1e}",
            "  closest pairs   median  (25% to 75%)",
        ]
        closest = self._closest()
        for s, t, median in closest[:SHOWN]:
            low, high = np.quantile(self.pair(s, t), [0.25, 0.75])
            lines.append(f"  {s:>4} to {t:<4}  {median:>9.4g}  ({low:.4g} to {high:.4g})")
        if len(closest) > SHOWN:
            lines.append(f"  ... and {len(closest) - SHOWN} more")
        return "\n".join(lines)
