"""A fitted map: sends members of a group, old and new, to their counterfactuals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optfair.core import display
from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.errors import DataError, DeclarationError, SolverFailure
from optfair.features.feature_problem import column_index
from optfair.numbers import (
    Floats,
    check_flag,
    check_matrix,
    check_names,
    check_path,
    checked,
    floats,
)
from optfair.storage import check_record, read_archive, write_archive

# Maps on disk: one file, nothing pickled.

SCHEMA = 2
ARRAYS = {
    "affine": ("matrix", "offset", "mean", "covariance"),
    "mixture": ("weights", "means", "covariances", "matrices", "offsets"),
}


def read_map(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return record and arrays of a map of a kind.

    Raises
    ------
    DataError
        Another schema, or another kind of map.
    """
    record, arrays = read_archive(path)
    check_record(record, {"schema": SCHEMA, "features": list}, str(path))
    if record.get("kind") != kind:
        raise DataError(
            f"{path} holds a {record.get('kind')!r} map, not {kind!r}",
            remedy="load it with the class it was saved by",
        )
    missing = [name for name in ARRAYS[kind] if name not in arrays]
    if missing:
        raise DataError(f"{path} lacks the array {missing[0]!r}", remedy="save it again")
    return record, {name: floats(array, name) for name, array in arrays.items()}


# A fitted affine map: sends members of a group, old and new, to their counterfactuals.

# Changes below this many standard deviations are what a solver leaves of zero.
STILL = 1e-6


class TransportMap:
    r"""The map :math:`g(x) = A x + b` of a group to its counterfactuals.

    Distances of any two points change by factors between the least and the largest singular
    value of A, so

    .. math::
        \tfrac1k \|x - y\| \le \|g(x) - g(y)\| \le K \|x - y\|,\qquad
        K = \sigma_{\max}(A),\; k = 1 / \sigma_{\min}(A)

    Parameters
    ----------
    matrix : array-like (d, d)
        A.
    offset : array-like (d,)
        b.
    features : sequence of str, optional
        Names of the features.
    mean : array-like (d,), optional
        Mean of the group, for the table of features; 0 by default.
    covariance : array-like (d, d), optional
        Covariance of the group, for the table of features; the identity by default.

    Raises
    ------
    DataError
        Shapes that do not fit, entries that are not finite.

    Examples
    --------
    >>> g = TransportMap([[2.0, 0.0], [0.0, 0.5]], [1.0, 0.0], features=("a", "b"))
    >>> g.transform([[1.0, 4.0]]).tolist()
    [[3.0, 2.0]]
    >>> g.inverse_transform([[3.0, 2.0]]).tolist()
    [[1.0, 4.0]]
    >>> g.expansion, g.contraction, g.distortion
    (2.0, 2.0, 0.5)
    >>> print(g)
    TransportMap of 2 features: K = 2, k = 2, distortion 0.5
      feature  mean  ->  deviation  ->    own factor  strongest other
      a        0     1   1          2     2           -
      b        0     0   1          0.5   0.5         -

    References
    ----------
    Valero-Leal, Bischl, Larrañaga, Bielza, Casalicchio: Optimal transport group
    counterfactual explanations, Propositions 3.3, A.4 and A.7.
    """

    @checked(matrix=floats, offset=floats, mean=floats, covariance=floats, features=check_names)
    def __init__(
        self,
        matrix: Any,
        offset: Any,
        *,
        features: Sequence[str] | None = None,
        mean: Any = None,
        covariance: Any = None,
    ) -> None:
        A = check_matrix(matrix, "matrix")
        d = A.shape[0]
        if A.shape != (d, d):
            raise DataError(f"matrix has shape {A.shape}", remedy="give a square matrix")
        b, mu = (
            check_matrix(np.reshape(v, (1, -1)), what, columns=None)[0]
            for v, what in ((offset, "offset"), (np.zeros(d) if mean is None else mean, "mean"))
        )
        sigma = check_matrix(np.eye(d) if covariance is None else covariance, "covariance")
        names = tuple(f"x{j}" for j in range(d)) if features is None else tuple(map(str, features))
        if len(set(names)) < len(names):
            raise DataError("two features have one name", f"{names}", "give each its own")
        if b.size != d or mu.size != d or sigma.shape != (d, d) or len(names) != d:
            raise DataError(
                f"offset, mean, covariance and features do not fit {d} features",
                f"{b.size}, {mu.size}, {sigma.shape}, {len(names)}",
                "give them for the same features",
            )
        for array in (A, b, mu, sigma):
            array.flags.writeable = False
        #: A (d, d), b (d,), and mean and covariance of the group it was made for; read only
        self.matrix: Floats = A
        self.offset: Floats = b
        self.mean: Floats = mu
        self.covariance: Floats = sigma
        self.features = names
        values = np.linalg.svd(A, compute_uv=False)
        self._largest, self._least = float(values[0]), float(values[-1])

    # --- points --------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Return g of each row; a data frame gives a data frame of the features.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            Points of the group, old or new.
        """
        rows = checked_rows(X, self.features)
        return framed(X, rows @ self.matrix.T + self.offset, self.features)

    def inverse_transform(self, Z: Any) -> Any:
        """Return the points that the map sends to these.

        Raises
        ------
        DeclarationError
            The map is not invertible.
        """
        rows = checked_rows(Z, self.features)
        if not self._least > 1e-13 * self._largest:
            raise DeclarationError(
                "this map sends different points to the same one",
                f"its least singular value is {self._least:.3g}",
                "solve with a bound k on the contraction",
            )
        back = np.asarray(np.linalg.solve(self.matrix, (rows - self.offset).T).T, dtype=float)
        return framed(Z, back, self.features)

    def jacobian(self, X: Any = None) -> Floats:
        """Return Dg: A, or one copy for each row of X (n, d, d)."""
        if X is None:
            return self.matrix
        n = checked_rows(X, self.features).shape[0]
        return np.asarray(np.broadcast_to(self.matrix, (n, *self.matrix.shape)))

    # --- geometry ------------------------------------------------------------------------

    @property
    def expansion(self) -> float:
        """Least K with ‖g(x) - g(y)‖ <= K ‖x - y‖ for all points."""
        return self._largest

    @property
    def contraction(self) -> float:
        """Least k with ‖x - y‖ <= k ‖g(x) - g(y)‖ for all points; infinite when there is none."""
        return 1.0 / self._least if self._least > 0 else np.inf

    @property
    def distortion(self) -> float:
        """The number 1 - 1 / max(K, k) of all points; that of the members may be less."""
        return 1.0 - 1.0 / max(self.expansion, self.contraction)

    @property
    def volume_factor(self) -> float:
        """Volume of g(S) divided by that of S, for every set S: the size of det A."""
        return float(abs(np.linalg.det(self.matrix)))

    @property
    def volume_bounds(self) -> tuple[float, float]:
        """Bounds of the volume factor that follow from K and k alone: (1/k^d, K^d)."""
        d = len(self.features)
        return self.contraction**-d, self.expansion**d

    @property
    def density_factor(self) -> float:
        """Density at g(x) after the move divided by that before it at x: 1 over the size of det A."""
        factor = self.volume_factor
        return 1.0 / factor if factor > 0 else np.inf

    @property
    def density_bounds(self) -> tuple[float, float]:
        """Bounds of the density factor that follow from K and k alone: (1/K^d, k^d)."""
        d = len(self.features)
        return self.expansion**-d, self.contraction**d

    # --- features ------------------------------------------------------------------------

    def moved(self, feature: Any) -> bool:
        """Whether the map changes a feature at all, by name or column."""
        j = column_index(self.features, feature)
        return bool(self._movement()[j] > STILL)

    def _movement(self) -> Floats:
        """Return how far each feature moves, in standard deviations where it has one."""
        spread = np.sqrt(np.diag(self.covariance))
        shift = np.abs(self.matrix @ self.mean + self.offset - self.mean)
        turned = np.abs(self.matrix - np.eye(shift.size)) @ spread
        return np.asarray((shift + turned) / np.where(spread > 0, spread, 1.0))

    def records(self) -> list[dict[str, Any]]:
        """Return what the map does to each feature: one dict per feature.

        ``mean`` and ``deviation`` are those of the group before the move, ``new mean`` and
        ``new deviation`` after it; ``own factor`` is A_jj, ``other`` the feature whose standard
        deviation moves this one most, and ``coefficient`` its entry of A.
        """
        A, spread = self.matrix, np.sqrt(np.diag(self.covariance))
        image = A @ self.mean + self.offset
        after = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", A, self.covariance, A), 0.0))
        pull = np.abs(A) * np.where(spread > 0, spread, 0.0)
        np.fill_diagonal(pull, -1.0)
        still = self._movement() <= STILL
        records = []
        for j, name in enumerate(self.features):
            other = int(np.argmax(pull[j]))
            counts = pull[j, other] > STILL * max(float(spread[j]), STILL)
            records.append(
                {
                    "feature": name,
                    "mean": float(self.mean[j]),
                    "new mean": float(image[j]),
                    "shift": float(image[j] - self.mean[j]),
                    "deviation": float(spread[j]),
                    "new deviation": float(after[j]),
                    "own factor": float(A[j, j]),
                    "other": self.features[other] if counts else None,
                    "coefficient": float(A[j, other]) if counts else 0.0,
                    "moves": not still[j],
                }
            )
        return records

    def table(self) -> Any:
        """Return `records` as a pandas DataFrame with the features as index."""
        import pandas as pd

        return pd.DataFrame(self.records()).set_index("feature")

    def __repr__(self) -> str:
        title = (
            f"TransportMap of {len(self.features)} features: K = {self.expansion:.4g}, "
            f"k = {self.contraction:.4g}, distortion {self.distortion:.4g}"
        )
        rows = [("feature", "mean", "->", "deviation", "->", "own factor", "strongest other")]
        for r in self.records():
            other = "-" if r["other"] is None else f"{r['coefficient']:+.3g} {r['other']}"
            numbers = ("mean", "new mean", "deviation", "new deviation", "own factor")
            rows.append((r["feature"], *(f"{r[key]:.4g}" for key in numbers), other))
        return "\n".join([title, *(f"  {line}" for line in display.text_table(rows))])

    def _repr_html_(self) -> str:
        return str(self.table().to_html(float_format="{:.4g}".format))

    # --- files ---------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        return {
            "kind": "affine",
            "features": list(self.features),
            "expansion": self.expansion,
            "contraction": self.contraction if np.isfinite(self.contraction) else None,
        }

    @checked(path=check_path, overwrite=check_flag)
    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write ``path.npz``; see `TransportMap.load`."""
        arrays = {name: getattr(self, name) for name in ARRAYS["affine"]}
        write_archive(path, {"schema": SCHEMA, **self.to_dict()}, arrays, overwrite)

    @classmethod
    @checked(path=check_path)
    def load(cls, path: str | Path) -> TransportMap:
        """Read a map that was saved, by its file name."""
        record, arrays = read_map(path, "affine")
        own = {name: arrays[name] for name in ARRAYS["affine"]}
        return cls(features=record["features"], **own)


def checked_rows(X: Any, features: tuple[str, ...]) -> Floats:
    """Return rows as a matrix of the features in their order; a data frame must name them."""
    if hasattr(X, "columns"):
        names = [str(c) for c in X.columns]
        missing = [f for f in features if f not in names]
        if missing:
            raise DataError(
                f"column {missing[0]!r} is missing",
                f"the columns are {', '.join(names)}",
                f"give {', '.join(features)}",
            )
        if names != list(features):
            X = X[[X.columns[names.index(f)] for f in features]]
    rows = check_matrix(X, "X")
    if rows.shape[1] != len(features):
        raise DataError(
            f"X has {rows.shape[1]} columns, the map moves {len(features)} features",
            f"they are {', '.join(features)}",
            "give these, in this order",
        )
    return rows


def framed(X: Any, rows: Floats, features: tuple[str, ...]) -> Any:
    """Return rows as a data frame when the input was one."""
    if not (hasattr(X, "columns") and hasattr(X, "index")):
        return np.asarray(rows)
    import pandas as pd

    return pd.DataFrame(rows, index=X.index, columns=list(features))


# Violation of a constraint, in relation to its side, beyond which values are of no solution.
MISSED = 1e-4


def fitting_values(problem: Problem, solution: Solution) -> Mapping[str, Any]:
    """Return the values of a solution, or say why they are none of this problem.

    Every constraint is evaluated again: values may have been changed since, or be those of a
    problem that asks for less.
    """
    for name, variable in problem.variables.items():
        if name not in solution.values or np.shape(solution.values[name]) != variable.shape:
            raise DeclarationError(
                f"the solution has no {name!r} of shape {variable.shape}",
                f"it is one of {type(solution.problem).__name__}",
                "give a solution of this problem",
            )
    limit = max(MISSED, 10.0 * float(solution.options.get("tolerance", 0.0)))
    off = problem.relative_violations(tuple(problem.constraints), solution.values)
    worst = max(off, key=lambda name: off[name] if off[name] == off[name] else np.inf, default="")
    if worst and not off[worst] <= limit:
        raise SolverFailure(
            "the values are those of no solution of this problem",
            f"{worst!r} is violated by {off[worst]:.2g} of its size",
            "give a solution of this problem, or of one with further constraints",
        )
    return solution.values
