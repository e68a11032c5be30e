"""Points and balls: projections, the largest ball inside, the smallest around, a trust region; graphs as unit vectors."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.adopt import declaration
from optfair.core.certificate import NonconvexityWitness
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import Floats, check_matrix, check_number, check_symmetric, check_vector

# The nearest point in an intersection of balls.


class BallProjection(Problem):
    r"""Project a point on an intersection of balls.

    .. math::
        \min_x\; \|x - p\|_2^2 \quad\text{s.t.}\quad \|x - c_i\|_2^2 \le r_i^2 \;\;\forall i

    Class: QCQP, convex. Turn one inequality round (stay *outside* a ball) and it is not.

    Parameters
    ----------
    point : array-like (d,)
        What to project.
    centers : array-like (m, d)
        Center of each ball.
    radii : array-like (m,)
        Radius of each ball, positive.

    Attributes
    ----------
    variables : ``projection`` (d,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit, a radius that is not
        positive.

    Examples
    --------
    >>> p = BallProjection(point=[3.0, 4.0], centers=[[0.0, 0.0]], radii=[1.0])
    >>> p.problem_class, p.solve()["projection"].round(6)
    (QCQP, array([0.6, 0.8]))

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), section 8.1.
    """

    def __init__(self, *, point: Any, centers: Any, radii: Any) -> None:
        start = check_vector(point, "point")
        middle = check_matrix(centers, "centers")
        check_vector(middle[0], "each center", start.size)
        sizes = check_vector(radii, "radii", middle.shape[0])
        if (sizes <= 0).any():
            raise DataError(
                "radii has entries that are not positive",
                f"the smallest is {sizes.min():g}",
                "give positive numbers",
            )
        super().__init__({"point": start, "centers": middle, "radii": sizes})

    def declare(self) -> Declaration:
        """Declare the projection, its distance, and one constraint per ball."""
        p = self.data["point"]
        x = cp.Variable(p.size, name="projection")
        balls = zip(self.data["centers"], self.data["radii"], strict=True)
        inside = {
            f"ball.{i}": (cp.sum_squares(x - c) <= r**2, r"\|x - c_i\|_2^2 \le r_i^2")
            for i, (c, r) in enumerate(balls)
        }
        distance = {"distance": (cp.sum_squares(x - p), r"\|x - p\|_2^2")}
        return declaration("minimize", distance, inside)


# The largest ball inside a polyhedron.


class ChebyshevCenter(Problem):
    r"""Place the largest ball inside a polyhedron.

    .. math::
        \max_{c, r}\; r \quad\text{s.t.}\quad a_i^T c + r \|a_i\|_2 \le b_i \;\;\forall i,\;
        r \ge 0

    Class: LP: the norms are numbers. `SmallestBall` asks for a ball *around*, an SOCP.

    Parameters
    ----------
    A : array-like (m, n)
        One outward normal per face.
    b : array-like (m,)
        Offset of each face.

    Attributes
    ----------
    variables : ``center`` (n,), ``radius`` scalar

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit.

    Examples
    --------
    >>> p = ChebyshevCenter(A=[[1, 0], [-1, 0], [0, 1], [0, -1]], b=[2, 0, 4, 0])
    >>> p.problem_class, round(p.solve().objective, 6)
    (LP, 1.0)

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), section 4.3.1.
    """

    def __init__(self, *, A: Any, b: Any) -> None:
        faces = check_matrix(A, "A")
        super().__init__({"A": faces, "b": check_vector(b, "b", faces.shape[0])})

    def declare(self) -> Declaration:
        """Declare center and radius, and that the ball is behind every face."""
        A, b = self.data["A"], self.data["b"]
        c, r = cp.Variable(A.shape[1], name="center"), cp.Variable(name="radius")
        return declaration(
            "maximize",
            {"radius": (r, "r")},
            {
                "inside": (
                    A @ c + np.linalg.norm(A, axis=1) * r <= b,
                    r"a_i^T c + r \|a_i\|_2 \le b_i",
                ),
                "nonnegativity": (r >= 0, r"r \ge 0"),
            },
        )


# The smallest ball around points.


class SmallestBall(Problem):
    r"""Enclose points in the smallest ball.

    .. math::
        \min_{c, r}\; r \quad\text{s.t.}\quad \|x_i - c\|_2 \le r \;\;\forall i

    Class: SOCP.

    The multipliers of ``inside`` sum to 1 and are positive only at points on the sphere; the
    center is the mean of the points with these weights.

    Parameters
    ----------
    points : array-like (n, d)
        What to enclose.

    Attributes
    ----------
    variables : ``center`` (d,), ``radius`` scalar

    Raises
    ------
    DataError
        Entries that are not finite numbers.

    Examples
    --------
    >>> s = SmallestBall(points=[[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]]).solve()
    >>> s["center"].round(4), round(s.objective, 6)
    (array([2.    , 0.8333]), 2.166667)

    References
    ----------
    Sylvester: A Question in the Geometry of Situation, Quarterly Journal of Pure and Applied
    Mathematics 1 (1857).
    """

    def __init__(self, *, points: Any) -> None:
        super().__init__({"points": check_matrix(points, "points")})

    def declare(self) -> Declaration:
        """Declare center and radius, and that every point is inside."""
        points = self.data["points"]
        n, d = points.shape
        c, r = cp.Variable(d, name="center"), cp.Variable(name="radius")
        away = points - np.ones((n, 1)) @ cp.reshape(c, (1, d), order="C")
        return declaration(
            "minimize",
            {"radius": (r, "r")},
            {"inside": (cp.norm(away, 2, axis=1) <= r, r"\|x_i - c\|_2 \le r")},
        )


# The trust-region subproblem: not convex, and still solvable.


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
            {"model": (cp.quad_form(x, H / 2.0) + g @ x, r"\tfrac12 x^T H x + g^T x")},
            {"region": (cp.sum_squares(x) <= r**2, r"\|x\|_2^2 \le r^2")},
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
            {
                "curvature": ((d / 2.0) @ z, r"\tfrac12 d^T z"),
                "slope": (-(size @ cp.sqrt(z)), r"-\textstyle\sum_i |\gamma_i| \sqrt{z_i}"),
            },
            {
                "region": (cp.sum(z) <= self.data["radius"] ** 2, r"1^T z \le r^2"),
                "nonnegativity": (z >= 0, r"z \ge 0"),
            },
        )


class LovaszTheta(Problem):
    r"""Bound the size of the largest set of nodes without an edge between them.

    .. math::
        \max_X\; \langle 1 1^T, X\rangle \quad\text{s.t.}\quad \operatorname{tr} X = 1,\;
        X_{ij} = 0 \;\;\forall\, ij \in E,\; X \succeq 0

    Class: SDP. The optimum lies between the independence number of the graph and the
    chromatic number of its complement, both of which are hard to compute.

    Parameters
    ----------
    adjacency : array-like (n, n)
        Symmetric, 1 where two nodes are joined and 0 elsewhere, with at least one edge.

    Attributes
    ----------
    variables : ``gram`` (n, n) symmetric

    Raises
    ------
    DataError
        Entries that are not 0 or 1, loops, no edge.

    Examples
    --------
    >>> p = LovaszTheta(adjacency=[[0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> p.problem_class, round(p.solve().objective, 6)  # the two ends of a path
    (SDP, 2.0)

    References
    ----------
    Lovász: On the Shannon Capacity of a Graph, IEEE Transactions on Information Theory 25
    (1979).
    """

    def __init__(self, *, adjacency: Any) -> None:
        E = check_symmetric(adjacency, "adjacency")
        if not np.isin(E, (0.0, 1.0)).all() or np.diag(E).any() or not E.any():
            raise DataError(
                "adjacency is not that of a graph with edges",
                remedy="give 0 and 1, 0 on the diagonal, and at least one edge",
            )
        super().__init__({"adjacency": E})

    def declare(self) -> Declaration:
        """Declare the Gram matrix of an orthonormal representation."""
        E = self.data["adjacency"]
        X = cp.Variable(E.shape, name="gram", symmetric=True)
        joined = np.nonzero(np.triu(E))
        return declaration(
            "maximize",
            {"size": (cp.sum(X), r"\langle 1 1^T, X \rangle")},
            {
                "trace": (cp.trace(X) == 1, r"\operatorname{tr} X = 1"),
                "edges": (X[joined] == 0, r"X_{ij} = 0"),
                "semidefinite": (X >> 0, r"X \succeq 0"),
            },
        )


class MaxCutRelaxation(Problem):
    r"""Bound the weight of the largest cut of a graph.

    .. math::
        \max_X\; \tfrac14 \langle L, X\rangle
        \quad\text{s.t.}\quad \operatorname{diag} X = 1,\; X \succeq 0

    Class: SDP. L is the Laplacian of the graph. A cut s ∈ {-1, 1}ⁿ gives the feasible
    :math:`X = s s^T`; dropping its rank of 1 leaves a convex problem, whose optimum is at
    most 1/0.878 times the largest cut.

    Parameters
    ----------
    weights : array-like (n, n)
        Symmetric edge weights, not negative, without loops.

    Attributes
    ----------
    variables : ``gram`` (n, n) symmetric

    Raises
    ------
    DataError
        Weights that are not symmetric, negative, or on the diagonal.

    Examples
    --------
    >>> p = MaxCutRelaxation(weights=[[0, 1, 1], [1, 0, 1], [1, 1, 0]])
    >>> p.problem_class, round(p.solve().objective, 6)  # the largest cut of a triangle is 2
    (SDP, 2.25)

    References
    ----------
    Goemans, Williamson: Improved Approximation Algorithms for Maximum Cut and Satisfiability
    Problems Using Semidefinite Programming, Journal of the ACM 42 (1995).
    """

    def __init__(self, *, weights: Any) -> None:
        W = check_symmetric(weights, "weights")
        if (W < 0).any() or np.diag(W).any():
            raise DataError(
                "weights has negative entries or loops",
                remedy="give edge weights of at least 0, and 0 on the diagonal",
            )
        super().__init__({"weights": W})

    def declare(self) -> Declaration:
        """Declare the Gram matrix of the relaxation."""
        W = self.data["weights"]
        laplacian = np.diag(W.sum(axis=1)) - W
        X = cp.Variable(W.shape, name="gram", symmetric=True)
        return declaration(
            "maximize",
            {"cut": (cp.sum(cp.multiply(laplacian / 4.0, X)), r"\tfrac14 \langle L, X \rangle")},
            {
                "unit diagonal": (cp.diag(X) == 1, r"\operatorname{diag} X = 1"),
                "semidefinite": (X >> 0, r"X \succeq 0"),
            },
        )
