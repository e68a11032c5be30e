"""The trust-region subproblem: not convex, and still solvable."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.certificate import NonconvexityWitness
from optfair.core.declaration import declaration
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import Floats, check_number, check_symmetric, check_vector

__all__ = ["HiddenConvexForm", "TrustRegion"]


class TrustRegion(Problem):
    r"""Minimise a quadratic that curves downwards over a ball.

    .. math::
        \min_x\; \tfrac12 x^T H x + g^T x \quad\text{s.t.}\quad \|x\|_2^2 \le r^2

    Class: nonconvex QCQP. The witness is a pair of opposite points on the sphere along the
    eigenvector v of the smallest eigenvalue of H: the mean of the objective at ±rv is
    :math:`\tfrac12 r^2 \lambda_{\min} < 0`, below its value 0 at the midpoint.

    As it stands only branch and bound proves its optimum (``scip``), and a local solver finds a
    stationary point. `convex_form` is another formulation with the same optimum, which every
    conic solver takes.

    Parameters
    ----------
    H : array-like (n, n)
        Symmetric, with a negative eigenvalue.
    g : array-like (n,)
        Linear part.
    radius : float
        r > 0.

    Attributes
    ----------
    variables : ``step`` (n,)

    Raises
    ------
    DataError
        Numbers that are not finite, a radius that is not positive, an H that is convex.

    Examples
    --------
    >>> p = TrustRegion(H=[[-2.0]], g=[1.0], radius=1.0)
    >>> p.problem_class, p.certificate.verify()
    (nonconvex QCQP, verified)
    >>> round(p.convex_form().solve().objective, 6)
    -2.0

    References
    ----------
    Moré, Sorensen: Computing a Trust Region Step, SIAM Journal on Scientific and Statistical
    Computing 4 (1983).
    Ben-Tal, Teboulle: Hidden Convexity in Some Nonconvex Quadratically Constrained Quadratic
    Programming, Mathematical Programming 72 (1996).
    """

    title = "TrustRegion"

    def __init__(self, *, H: Any, g: Any, radius: float) -> None:
        curvature = check_symmetric(H, "H")
        eigenvalues, vectors = np.linalg.eigh(curvature)
        if eigenvalues[0] >= 0.0:
            raise DataError(
                "H has no negative eigenvalue",
                f"the smallest is {eigenvalues[0]:.3g}",
                "the problem is convex: write it with optfair.from_cvxpy",
            )
        super().__init__(
            {
                "H": curvature,
                "g": check_vector(g, "g", curvature.shape[0]),
                "radius": check_number(radius, "radius", positive=True),
                "eigenvalues": eigenvalues,
                "eigenvectors": vectors,
            }
        )

    def declare(self) -> Declaration:
        """Declare the step, the quadratic model and the region."""
        H, g, r = self.data["H"], self.data["g"], self.data["radius"]
        x = cp.Variable(g.size, name="step")
        return declaration(
            "minimize",
            {"model": cp.quad_form(x, H / 2.0) + g @ x},
            {"region": cp.sum_squares(x) <= r**2},
            latex={
                "model": r"\tfrac12 x^T H x + g^T x",
                "region": r"\|x\|_2^2 \le r^2",
            },
        )

    def find_witness(self) -> NonconvexityWitness | None:
        """Return opposite points along the direction of most negative curvature.

        Where added constraints cut these points off, fall back to a search.
        """
        end = self.data["radius"] * self.data["eigenvectors"][:, 0]
        known = NonconvexityWitness(self, "model", {"step": end}, {"step": -end})
        return known if known.verify() else super().find_witness()

    def convex_form(self) -> HiddenConvexForm:
        """Return a convex problem with the same optimum."""
        d = self.data
        return HiddenConvexForm(d["eigenvalues"], d["eigenvectors"].T @ d["g"], d["radius"])


class HiddenConvexForm(Problem):
    r"""The trust-region subproblem in the squares of its coordinates.

    In eigenvectors of H, with eigenvalues d and gradient γ, the best sign of each coordinate
    is opposite to γ, so only its square z matters:

    .. math::
        \min_z\; \tfrac12 d^T z - \sum_i |\gamma_i| \sqrt{z_i}
        \quad\text{s.t.}\quad 1^T z \le r^2,\; z \ge 0

    Class: SOCP. The negative curvature has become the *linear* part.

    Parameters
    ----------
    eigenvalues, gradient : array (n,)
        d and γ.
    radius : float
        r > 0.

    Attributes
    ----------
    variables : ``squares`` (n,)

    Examples
    --------
    >>> import numpy as np
    >>> HiddenConvexForm(np.array([-2.0]), np.array([1.0]), 1.0).problem_class
    SOCP

    References
    ----------
    Ben-Tal, Teboulle: Hidden Convexity in Some Nonconvex Quadratically Constrained Quadratic
    Programming, Mathematical Programming 72 (1996).
    """

    title = "TrustRegion in squares"

    def __init__(self, eigenvalues: Floats, gradient: Floats, radius: float) -> None:
        super().__init__({"eigenvalues": eigenvalues, "gradient": gradient, "radius": radius})

    def declare(self) -> Declaration:
        """Declare the squares of the coordinates."""
        d, size = self.data["eigenvalues"], np.abs(self.data["gradient"])
        z = cp.Variable(d.size, name="squares")
        return declaration(
            "minimize",
            {"curvature": (d / 2.0) @ z, "slope": -(size @ cp.sqrt(z))},
            {"region": cp.sum(z) <= self.data["radius"] ** 2, "nonnegativity": z >= 0},
            latex={
                "curvature": r"\tfrac12 d^T z",
                "slope": r"-\textstyle\sum_i |\gamma_i| \sqrt{z_i}",
                "region": r"1^T z \le r^2",
                "nonnegativity": r"z \ge 0",
            },
        )
