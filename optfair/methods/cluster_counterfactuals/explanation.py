"""What an explainer of clusters answers: counterfactuals, singly and in tables, and distances of clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from optfair.core import display
from optfair.errors import DataError, Known, Tabled, data_frame, nearest, needed
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.core.certificate import Optimality
    from optfair.core.solution import Solution


# What an explainer of clusters answers: counterfactuals, singly and in tables.

# Relative size from which a feature counts as changed, and a margin as negative.
SAME = 1e-9
# Features and clusters listed in a print.
SHOWN = 12


def changed_entries(
    factual: Floats, point: Floats, sizes: Floats | float = 1.0
) -> NDArray[np.bool_]:
    """Return which features differ by more than rounding, for numbers of these sizes."""
    apart = np.abs(point - factual) > SAME * (sizes + np.abs(factual))
    return np.asarray(apart)


def rounding(points: Floats, sizes: Floats | float, margin: float) -> Floats:
    """Return by how much a margin may be negative at points (n, d) that are on a boundary."""
    return np.asarray(SAME * margin * (1.0 + np.abs(points / sizes).max(axis=-1)))


@dataclass(frozen=True, eq=False, repr=False)
class Counterfactual(Tabled):
    """The nearest row that belongs to another cluster.

    Attributes
    ----------
    features : tuple of str
        Names of the features.
    factual, point : arrays (d,)
        The row, and its counterfactual.
    source, target : int
        Cluster of the row; cluster of the counterfactual.
    distance : float
        Distance between them: Euclidean (in the given metric), sum of absolute differences,
        or number of changed features.
    metric : str
        Which of them: "l2", "l1" or "changes".
    margins : array (K,)
        How far inside the target it lies, against each other cluster; NaN at the target. For
        k-means the distance to the boundary, in the units of the features; for mixtures the
        difference of the weighted log-densities. Negative: that cluster would get it.
    status : str
        "optimal": proved to be the nearest. "bounded": the best found, see ``gap``. "already
        there": the row itself belongs to the target.
    gap : float
        Relative gap between the squared distance, or the objective, and its proved bound.
    ask : callable, optional
        Declares and solves the problem of this row: what ``solution`` returns.
    sizes : array (d,) or float
        Size of a number in each feature: a share of it is a change.
    margin : float
        Size of a margin.
    """

    features: tuple[str, ...]
    factual: Floats
    point: Floats
    source: int
    target: int
    distance: float
    metric: str
    margins: Floats
    status: str
    gap: float = 0.0
    ask: Callable[[], Solution] | None = None
    sizes: Floats | float = 1.0
    margin: float = 1.0

    @cached_property
    def solution(self) -> Solution | None:
        """Values, multipliers and bound, for ``verify``; None where the row stays as it is."""
        return None if self.ask is None else self.ask()

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the features that change."""
        apart = changed_entries(self.factual, self.point, self.sizes)
        return tuple(name for name, c in zip(self.features, apart, strict=True) if c)

    @property
    def changes(self) -> dict[str, tuple[float, float]]:
        """Old and new value of each feature that changes."""
        rows = zip(self.features, self.factual, self.point, strict=True)
        moved = set(self.changed)
        own = {name: (float(a), float(b)) for name, a, b in rows if name in moved}
        return Known(own, "change of feature")

    @property
    def valid(self) -> bool:
        """Whether no other cluster would get the point; on a boundary it counts as the target's."""
        slack = rounding(self.point, self.sizes, self.margin)
        return bool((np.nan_to_num(self.margins, nan=np.inf) >= -slack).all())

    @property
    def certificate(self) -> Optimality | None:
        """Certificate of the optimum; None where the row stays as it is."""
        return None if self.solution is None else self.solution.certificate

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with factual, counterfactual and change of each feature.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        return data_frame(
            {
                "factual": self.factual,
                "counterfactual": self.point,
                "change": np.where(
                    changed_entries(self.factual, self.point, self.sizes),
                    self.point - self.factual,
                    0.0,
                ),
            },
            index=list(self.features),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the solution, for JSON output."""
        return {
            "source": self.source,
            "target": self.target,
            "distance": self.distance,
            "metric": self.metric,
            "status": self.status,
            "valid": self.valid,
            "gap": self.gap,
            "point": dict(zip(self.features, self.point.tolist(), strict=True)),
            "changes": {name: list(pair) for name, pair in self.changes.items()},
            "margins": [None if np.isnan(m) else float(m) for m in self.margins],
        }

    def __repr__(self) -> str:
        if self.status == "already there":
            return f"Counterfactual: the row already belongs to cluster {self.target}, distance 0"
        changes = self._sorted()
        lines = [
            f"Counterfactual from cluster {self.source} to {self.target}: "
            f"distance {self.distance:.6g} ({self.metric}), "
            f"{len(changes)} of {len(self.features)} features change"
        ]
        width = max((len(name) for name, _ in changes), default=0)
        for name, (old, new) in changes[:SHOWN]:
            lines.append(f"  {name:<{width}}  {old:.6g} -> {new:.6g} ({new - old:+.3g})")
        if len(changes) > SHOWN:
            lines.append(f"  ... and {len(changes) - SHOWN} smaller changes")
        lines.append(f"  margin to clusters  {self._margin_line()}")
        proved = "proved to be nearest" if self.status == "optimal" else "best found"
        lines.append(f"  {proved}, gap {self.gap:.1e}" + ("" if self.valid else self._misplaced()))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, *lines = repr(self).splitlines()
        if not lines:
            return display.html_lines(head)
        rows = [(n, f"{a:.6g}", f"{b:.6g}", f"{b - a:+.3g}") for n, (a, b) in self._sorted()]
        table = display.html_table(("feature", "row", "counterfactual", "change"), rows)
        said = "".join(f"<p>{escape(line.strip())}</p>" for line in lines[-2:])
        return display.html_lines(head) + table + said

    def _sorted(self) -> list[tuple[str, tuple[float, float]]]:
        """Return old and new values, the largest change first."""
        return sorted(self.changes.items(), key=lambda item: -abs(item[1][1] - item[1][0]))

    def _margin_line(self) -> str:
        others = [k for k in np.argsort(self.margins) if not np.isnan(self.margins[k])]
        parts = [f"{k}: {self.margins[k] + 0.0:.3g}" for k in others[:SHOWN]]
        return ", ".join(parts) + (", ..." if len(others) > SHOWN else "")

    def _misplaced(self) -> str:
        third = int(np.nanargmin(self.margins))
        return f'; it lands in cluster {third}, use against="all"'


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Sequence[Counterfactual], Tabled):
    """Counterfactuals of one row, the nearest first.

    Attributes
    ----------
    counterfactuals : tuple of Counterfactual
        At least one.
    kind : str
        In what they differ: "targets" or "feature sets".
    """

    counterfactuals: tuple[Counterfactual, ...]
    kind: str = "targets"

    @property
    def best(self) -> Counterfactual:
        """The nearest one."""
        return self.counterfactuals[0]

    @overload
    def __getitem__(self, index: int) -> Counterfactual: ...
    @overload
    def __getitem__(self, index: slice) -> Explanation: ...
    def __getitem__(self, index: int | slice) -> Counterfactual | Explanation:
        if isinstance(index, slice):
            return Explanation(self.counterfactuals[index], self.kind)
        return self.counterfactuals[index]

    def __len__(self) -> int:
        return len(self.counterfactuals)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: one row per counterfactual, the features as columns.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        return data_frame(
            [
                {
                    "source": c.source,
                    "target": c.target,
                    "distance": c.distance,
                    "changed": len(c.changed),
                    "status": c.status,
                    **dict(zip(c.features, c.point.tolist(), strict=True)),
                }
                for c in self.counterfactuals
            ]
        )

    def __repr__(self) -> str:
        if len(self) == 1:
            return repr(self.best)
        lines = [f"{len(self)} counterfactuals with different {self.kind}, the nearest first"]
        for c in self.counterfactuals:
            named = ", ".join(c.changed[:4]) + (", ..." if len(c.changed) > 4 else "")
            lines.append(
                f"  to cluster {c.target}: distance {c.distance:.6g}, {c.status}, "
                f"{len(c.changed)} features ({named})"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if len(self) == 1:
            return self.best._repr_html_()
        rows = [
            (c.target, f"{c.distance:.6g}", c.status, display.listed(c.changed, 5))
            for c in self.counterfactuals
        ]
        head = ("cluster", "distance", "status", "features that change")
        first = f"{len(self)} counterfactuals with different {self.kind}, the nearest first"
        return display.html_lines(first) + display.html_table(head, rows)


@dataclass(frozen=True, eq=False, repr=False)
class ClusterExplanations(Tabled):
    """Counterfactuals of many rows.

    Attributes
    ----------
    features : tuple of str
        Names of the features.
    index : sequence
        Labels of the rows: those of the data frame, or their numbers.
    factuals, points : arrays (n, d)
        Rows, and their counterfactuals; NaN where there is none.
    source, target : int arrays (n,)
        Clusters.
    distance : array (n,)
        Distances, infinite where there is no counterfactual.
    metric : str
        "l2", "l1" or "changes".
    margins : array (n, K)
        As in `Counterfactual`.
    status : array (n,) of str
        "optimal", "bounded" (see ``gap``), "already there", "unreachable" (proved), or "open":
        no counterfactual was found in time, nor a proof that there is none.
    gap : array (n,)
        Relative gap to the bound that is proved for each row; NaN where it is unreachable.
    sizes, margin
        As in `Counterfactual`.
    """

    features: tuple[str, ...]
    index: Any
    factuals: Floats
    points: Floats
    source: NDArray[np.intp]
    target: NDArray[np.intp]
    distance: Floats
    metric: str
    margins: Floats
    status: NDArray[Any]
    gap: Floats
    sizes: Floats | float = 1.0
    margin: float = 1.0

    def __len__(self) -> int:
        return int(self.source.size)

    def __iter__(self) -> Iterator[Counterfactual]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, row: int) -> Counterfactual:
        return Counterfactual(
            self.features,
            self.factuals[row],
            self.points[row],
            int(self.source[row]),
            int(self.target[row]),
            float(self.distance[row]),
            self.metric,
            self.margins[row],
            str(self.status[row]),
            float(self.gap[row]),
            sizes=self.sizes,
            margin=self.margin,
        )

    @property
    def changed(self) -> NDArray[np.bool_]:
        """Which features change in each row (n, d)."""
        return changed_entries(self.factuals, self.points, self.sizes)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Whether no other cluster would get the point (n,)."""
        known = np.asarray(np.isfinite(self.points).all(axis=1))
        slack = rounding(np.where(known[:, None], self.points, 0.0), self.sizes, self.margin)
        least = np.nan_to_num(self.margins, nan=np.inf).min(axis=1)
        return np.asarray(known & (least >= -slack))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per factual.

        Columns: source, target, distance, changed (number of features), status, gap, and the
        counterfactual value of each feature.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        pd = needed("pandas", "pip install pandas, or use the arrays")
        head = {
            "source": self.source,
            "target": self.target,
            "distance": self.distance,
            "changed": self.changed.sum(axis=1),
            "status": self.status,
            "gap": self.gap,
        }
        numbers = pd.DataFrame(head, index=self.index)
        points = pd.DataFrame(self.points, index=self.index, columns=list(self.features))
        return pd.concat([numbers, points], axis=1)

    def __repr__(self) -> str:
        kinds, counts = np.unique(self.status, return_counts=True)
        counted = ", ".join(f"{c} {k}" for k, c in zip(kinds, counts, strict=True))
        lines = [f"Counterfactuals of {len(self)} rows: {counted}"]
        known = self.distance[np.isfinite(self.distance) & (self.status != "already there")]
        if known.size:
            low, middle, high = np.quantile(known, [0.0, 0.5, 1.0])
            lines.append(
                f"  distance ({self.metric})  median {middle:.4g}, from {low:.4g} to {high:.4g}"
            )
            known = self.gap[np.isfinite(self.gap)]
            lines.append(f"  largest gap    {known.max():.1e}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = ("row", "from", "to cluster", "distance", "status", "features that change")
        numbers = (self.source, self.target, self.distance, self.status, self.changed.sum(axis=1))
        rows = (
            (label, k, to, f"{d:.6g}", *said)
            for label, k, to, d, *said in zip(self.index, *numbers, strict=True)
        )
        return display.html_lines(repr(self)) + display.html_table(head, rows)


# How far apart clusters are, in distances of rows to their counterfactuals.

STATISTICS = {"median": np.median, "mean": np.mean, "min": np.min, "max": np.max}
# Pairs of clusters listed in a print.
DISTANCES_SHOWN = 8


@dataclass(frozen=True, eq=False, repr=False)
class ClusterSeparability(Tabled):
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
        table = np.full((K, K), np.nan)
        for s in range(K):
            for t in range(K):
                values = self.pair(s, t) if s != t else np.empty(0)
                if values.size:
                    table[s, t] = float(of(values))
        return table

    def reached(self) -> Floats:
        """Return the share of the rows of each cluster that can reach each other one (K, K)."""
        K = self.clusters
        table = np.full((K, K), np.nan)
        for s in np.flatnonzero(self.sizes):
            table[s] = np.isfinite(self.distances[self.source == s]).mean(axis=0)
            table[s, s] = np.nan
        return table

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per pair of clusters, the closest first.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
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
        return data_frame(rows)

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
        for s, t, median in closest[:DISTANCES_SHOWN]:
            low, high = np.quantile(self.pair(s, t), [0.25, 0.75])
            lines.append(f"  {s:>4} to {t:<4}  {median:>9.4g}  ({low:.4g} to {high:.4g})")
        if len(closest) > DISTANCES_SHOWN:
            lines.append(f"  ... and {len(closest) - DISTANCES_SHOWN} more")
        return "\n".join(lines)
