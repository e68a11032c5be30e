"""Where one cluster ends and another begins: a linear or quadratic function of a point."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = ["Boundary", "Section"]

EPS = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False)
class Boundary:
    r"""A function of a point that is at most 0 on the side of the target.

    .. math::
        g(z) = \tfrac12 (z - a)^T P (z - a) - \tfrac12 (z - b)^T Q (z - b) + r

    Written in differences from the centers a and b, it loses no digits where the clusters are
    far from the origin. Its curvature is D = P - Q, indefinite in general.

    Parameters
    ----------
    a, b : array (d,)
        Centers of the target and of the other cluster.
    P, Q : array (d, d) or None
        Their precisions; None for Q is no other cluster. Where both are the same array, g is
        linear.
    r : float
        Constant.
    """

    a: Floats
    P: Floats
    b: Floats
    Q: Floats | None
    r: float

    @property
    def linear(self) -> bool:
        """Whether it has no curvature at all."""
        return self.Q is not None and (self.Q is self.P or bool((self.Q == self.P).all()))

    def value(self, Z: Floats) -> Floats:
        """Return g at one point (d,) or at rows (n, d)."""
        if self.linear:
            # P(a-part) - P(b-part) with the square of z cancelled by hand
            normal = self.P @ (self.b - self.a)
            return np.asarray((Z - (self.a + self.b) / 2.0) @ normal + self.r)
        near = Z - self.a
        found = 0.5 * ((near @ self.P) * near).sum(axis=-1)
        if self.Q is not None:
            far = Z - self.b
            found = found - 0.5 * ((far @ self.Q) * far).sum(axis=-1)
        return np.asarray(found + self.r)

    def gradient(self, Z: Floats) -> Floats:
        """Return the gradient at one point (d,) or at rows (n, d)."""
        if self.linear:
            return np.asarray(np.broadcast_to(self.P @ (self.b - self.a), Z.shape))
        found = (Z - self.a) @ self.P
        return np.asarray(found if self.Q is None else found - (Z - self.b) @ self.Q)

    def curvature(self, free: Indices) -> tuple[Floats, float]:
        """Return D on some features, and the size of the rounding in its entries.

        Entries that are all rounding are returned as 0: then g is linear in these features.
        """
        P = self.P[np.ix_(free, free)]
        if self.Q is None:
            return P, EPS * float(np.abs(P).max(initial=0.0))
        Q = self.Q[np.ix_(free, free)]
        D = P - Q
        noise = EPS * float(max(np.abs(P).max(initial=0.0), np.abs(Q).max(initial=0.0)))
        if np.abs(D).max(initial=0.0) <= 4.0 * noise:
            D = np.zeros_like(D)
        return (D + D.T) / 2.0, noise

    def slope_noise(self, Z: Floats) -> Floats:
        """Return the size of the rounding in the gradient at rows (n, d)."""
        size = np.abs(self.P).max() * np.abs(Z - self.a).sum(axis=-1)
        if self.Q is not None:
            size = size + np.abs(self.Q).max() * np.abs(Z - self.b).sum(axis=-1)
        return np.asarray(4.0 * EPS * size)

    def section(self, anchor: Floats, free: Indices) -> Section:
        """Return g as a function of some features, the others held at an anchor."""
        D, noise = self.curvature(free)
        return Section(
            self,
            free,
            anchor,
            D,
            self.gradient(anchor)[free],
            float(self.value(anchor)),
            noise,
            float(self.slope_noise(anchor)),
        )


@dataclass(frozen=True, eq=False)
class Section:
    r"""A boundary in the free features, expanded about an anchor.

    .. math:: g(u) = \tfrac12 u^T D u + l^T u + g_0,\qquad u = z_F - y_F

    Attributes
    ----------
    boundary : Boundary
        What it is a section of.
    free : array (f,)
        Columns of the free features.
    anchor : array (d,)
        The point it is expanded about.
    D, slope, level : array (f, f), array (f,), float
        Curvature, gradient and value at the anchor.
    noise, slope_noise : float
        Size of the rounding in D and in the slope.
    """

    boundary: Boundary
    free: Indices
    anchor: Floats
    D: Floats
    slope: Floats
    level: float
    noise: float
    slope_noise: float

    @property
    def linear(self) -> bool:
        """Whether there is no curvature in the free features."""
        return not self.D.any()

    @cached_property
    def eigenvalues(self) -> Floats:
        """Eigenvalues of D in ascending order; those that are rounding are 0."""
        d = np.linalg.eigvalsh(self.D)
        small = 4.0 * d.size * (self.noise + EPS * float(np.abs(self.D).max(initial=0.0)))
        return np.asarray(np.where(np.abs(d) <= small, 0.0, d))

    @property
    def constant(self) -> bool:
        """Whether the free features do not move it at all."""
        return self.linear and bool((np.abs(self.slope) <= self.slope_noise).all())

    def value(self, point: Floats) -> float:
        """Return g at a point (d,), whose other features are taken from the anchor."""
        z = self.anchor.copy()
        z[self.free] = point[self.free]
        return float(self.boundary.value(z))

    def gradient(self, point: Floats) -> Floats:
        """Return the gradient in the free features (f,)."""
        return np.asarray(self.D @ (point[self.free] - self.anchor[self.free]) + self.slope)
