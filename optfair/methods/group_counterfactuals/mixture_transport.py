"""A fitted map of a mixture: every point moves with its most probable component."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError
from optfair.methods.group_counterfactuals.map_files import read_map, write_map
from optfair.methods.group_counterfactuals.mixture import GaussianParts
from optfair.methods.group_counterfactuals.transport_map import TransportMap, checked_rows, framed

Floats = NDArray[np.float64]

__all__ = ["MixtureTransport"]


class MixtureTransport:
    r"""The map :math:`g(x) = A_j x + b_j` with j the most probable component of x.

    It is affine within the region of a component and jumps between two, so it has no
    Lipschitz constant of its own: ``expansion`` and ``contraction`` are the largest of the
    components' and hold for points of the same one.

    Parameters
    ----------
    parts : GaussianParts
        The mixture.
    maps : sequence of TransportMap
        One for each component.

    Examples
    --------
    >>> import numpy as np
    >>> parts = GaussianParts.of(([0.5, 0.5], [[0.0], [9.0]], [[[1.0]], [[1.0]]]), np.zeros((1, 1)))
    >>> g = MixtureTransport(parts, [TransportMap([[1.0]], [2.0]), TransportMap([[0.5]], [0.0])])
    >>> g.components([[1.0], [8.0]]).tolist(), g.transform([[1.0], [8.0]]).tolist()
    ([0, 1], [[3.0], [4.0]])

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Appendix B.1.
    """

    def __init__(self, parts: GaussianParts, maps: Sequence[TransportMap]) -> None:
        if len(maps) != parts.weights.size or len({g.features for g in maps}) != 1:
            raise DataError(
                f"{len(maps)} maps for {parts.weights.size} components",
                remedy="give one map of the same features for each component",
            )
        self._parts, self._maps = parts, tuple(maps)

    @property
    def parts(self) -> GaussianParts:
        """The mixture."""
        return self._parts

    @property
    def maps(self) -> tuple[TransportMap, ...]:
        """The affine maps of the components."""
        return self._maps

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features."""
        return self._maps[0].features

    @property
    def expansion(self) -> float:
        """Largest factor by which distances within a component grow."""
        return max(g.expansion for g in self._maps)

    @property
    def contraction(self) -> float:
        """Largest factor by which distances within a component shrink."""
        return max(g.contraction for g in self._maps)

    def components(self, X: Any) -> NDArray[np.intp]:
        """Return the most probable component of each row."""
        return self._parts.assign(checked_rows(X, self.features))

    def transform(self, X: Any) -> Any:
        """Return g of each row; a data frame gives a data frame of the features."""
        rows = checked_rows(X, self.features)
        own = self._parts.assign(rows)
        moved = np.empty_like(rows)
        for j, g in enumerate(self._maps):
            moved[own == j] = rows[own == j] @ g.matrix.T + g.offset
        return framed(X, moved, self.features)

    def inverse_transform(self, Z: Any, components: Any = None) -> Any:
        """Return the points that the map sends to these.

        Parameters
        ----------
        Z : array-like or DataFrame (n, d)
            Images.
        components : int array (n,)
            The component each came from, which the images alone do not tell.

        Raises
        ------
        DeclarationError
            No components, or a map that is not invertible.
        """
        rows = checked_rows(Z, self.features)
        own = np.asarray(components)
        if components is None or own.shape != (rows.shape[0],):
            raise DeclarationError(
                "a map in pieces has an inverse only piece by piece",
                "images of two components may fall on the same point",
                "give components=, e.g. g.components(X) of the rows before the move",
            )
        found = np.empty_like(rows)
        for j, g in enumerate(self._maps):
            if (own == j).any():
                found[own == j] = g.inverse_transform(rows[own == j])
        return framed(Z, found, self.features)

    def jacobian(self, X: Any) -> Floats:
        """Return Dg at each row (n, d, d)."""
        return np.stack([g.matrix for g in self._maps])[self.components(X)]

    def table(self) -> Any:
        """Return the tables of the components, one below the other, as a pandas DataFrame."""
        import pandas as pd

        return pd.concat({j: g.table() for j, g in enumerate(self._maps)}, names=["component"])

    def __repr__(self) -> str:
        lines = [f"MixtureTransport of {len(self._maps)} components"]
        for j, (weight, g) in enumerate(zip(self._parts.weights, self._maps, strict=True)):
            lines.append(f"component {j}, weight {weight:.4g}: {g!r}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        return {"kind": "mixture", "features": list(self.features)}

    def save(self, path: str | Path) -> None:
        """Write ``path.json`` and ``path.npz``; see `MixtureTransport.load`."""
        arrays = {
            "weights": self._parts.weights,
            "means": np.stack([m.mean for m in self._parts.moments]),
            "covariances": np.stack([m.covariance for m in self._parts.moments]),
            "matrices": np.stack([g.matrix for g in self._maps]),
            "offsets": np.stack([g.offset for g in self._maps]),
        }
        write_map(path, self.to_dict(), arrays)

    @classmethod
    def load(cls, path: str | Path) -> MixtureTransport:
        """Read a map that was saved, by its file name without ending."""
        record, stored = read_map(path, "mixture")
        whole = (stored["weights"], stored["means"], stored["covariances"])
        parts = GaussianParts.of(whole, stored["means"])
        maps = [
            TransportMap(
                A, b, features=record["features"], mean=one.mean, covariance=one.covariance
            )
            for A, b, one in zip(stored["matrices"], stored["offsets"], parts.moments, strict=True)
        ]
        return cls(parts, maps)
