"""Maximum likelihood of a Gaussian mixture whose responsibilities are fair: a nonconvex problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

from optfair.core.certificate import NonconvexityWitness
from optfair.core.composition import Rule
from optfair.core.problem import Declaration
from optfair.core.problem_class import LP, Evidence, ProblemClass
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DataError
from optfair.methods.fair_clustering.assignment import GroupedRows, gathered_masses
from optfair.methods.fair_clustering.rules import PerfectFairness
from optfair.numbers import Floats, check_count, check_matrix, check_weights, checked, encode_groups

# Natural parameters of a Gaussian mixture with one precision, in which any numbers are one.

Values = Mapping[str, Any] | Solution


class MixtureParameters(NamedTuple):
    """A Gaussian mixture with one precision, in the units of the data.

    Attributes
    ----------
    means : array (K, d)
    weights : array (K,)
        Positive, of sum 1.
    precision : float
        1/σ², of all components and coordinates.
    """

    means: Floats
    weights: Floats
    precision: float


@dataclass(frozen=True, eq=False)
class NaturalParameters:
    r"""Rows, and what slopes θ, levels β and the log precision t mean for them.

    .. math::
        \log \alpha_k f_k(x) = \theta_k^T x + \beta_k - \log\sum_l e^{A_l} + c(x, t), \qquad
        A_k = \beta_k + \tfrac12 e^{-t} \|\theta_k\|^2, \quad
        \alpha_k \propto e^{A_k}, \quad \mu_k = e^{-t} \theta_k

    Values are mappings with the keys ``slopes``, ``levels``, ``log_precision``, ``log_sums``.

    Attributes
    ----------
    points : array (n, d)
        Rows less ``center``, divided by ``scale``.
    center : array (d,)
    scale : float
    """

    points: Floats
    center: Floats
    scale: float

    def logits(self, v: Values) -> Floats:
        """Return logarithms of responsibilities up to a number per row (n x K)."""
        slopes = np.asarray(v["slopes"], dtype=float)
        return np.asarray(self.points @ slopes.T + np.asarray(v["levels"], dtype=float))

    def log_sums(self, v: Values) -> Floats:
        """Return the ``log_sums`` that make the responsibilities of each row sum to 1 (n,)."""
        return np.asarray(logsumexp(self.logits(v), axis=1))

    def fractions(self, v: Values) -> Floats:
        """Return responsibilities as ``log_sums`` says, whatever their sums are (n x K)."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.logits(v) - np.asarray(v["log_sums"])[:, None]))

    def component_logs(self, v: Values) -> Floats:
        """Return A, the logarithms of the components' weights up to a number (K,)."""
        norms = (np.asarray(v["slopes"], dtype=float) ** 2).sum(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            bend = 0.5 * norms * np.exp(-float(np.asarray(v["log_precision"])))
        return np.asarray(v["levels"] + bend)

    def parameters(self, v: Values) -> MixtureParameters:
        """Return means, weights and precision in the units of the data."""
        inner = float(np.exp(float(np.asarray(v["log_precision"]))))
        means = self.center + self.scale * np.asarray(v["slopes"]) / inner
        weights = np.asarray(softmax(self.component_logs(v)))
        return MixtureParameters(means, weights, inner / self.scale**2)

    def values(self, means: Any, weights: Any, precision: float) -> dict[str, Floats]:
        """Return the values of a mixture given in the units of the data."""
        inner = float(precision) * self.scale**2
        shifted = (np.asarray(means, dtype=float) - self.center) / self.scale
        levels = np.log(np.asarray(weights, dtype=float)) - 0.5 * inner * (shifted**2).sum(axis=1)
        found = {
            "slopes": inner * shifted,
            "levels": levels - levels.mean(),
            "log_precision": np.asarray(np.log(inner)),
        }
        return {**found, "log_sums": self.log_sums(found)}


# Maximum likelihood of a Gaussian mixture whose responsibilities are fair: a nonconvex problem.

# Shares of components that are tried for a witness.
DRAWS = 200
SMOOTH = ProblemClass(cones=frozenset({"nonlinear"}), curvature="unverified")


class FairMixtureLikelihood(GroupedRows):
    r"""Fit a Gaussian mixture whose responsibilities satisfy rules on groups.

    .. math::
        \max_{\alpha, \mu, \sigma}\; \sum_i w_i \log \sum_k \alpha_k f_k(x_i)
        \quad\text{s.t.}\quad
        M_{gk} = \sum_{i \in g} w_i \psi_{ik},\; \text{rules on } M

    with :math:`f_k = N(\mu_k, \sigma^2 I)` and :math:`\psi_{ik} \propto_k \alpha_k f_k(x_i)`.
    It is declared in parameters in which any numbers are a mixture and the logarithms of ψ are
    affine but for one number per row: slopes θ, levels β and the log precision t,

    .. math::
        \psi_{ik} = e^{\theta_k^T x_i + \beta_k - \ell_i}, \qquad
        \mu_k = e^{-t} \theta_k, \qquad
        \alpha_k \propto e^{A_k}, \quad A_k = \beta_k + \tfrac12 e^{-t} \|\theta_k\|^2,

    with rows x of mean 0 and mean square 1 per column on average. The log-likelihood is

    .. math::
        \sum_i w_i \ell_i - \log\sum_k e^{A_k} + \tfrac d2 (t - e^t - \log 2\pi) + \text{const}.

    Class: nonconvex NLP, with two fair mixtures as the witness. The likelihood is not concave,
    and a rule on ψ is not a convex constraint on the parameters. Local solvers find local
    optima; nothing here is a bound. The rules hold for the responsibilities of the mixture
    itself, which `FairResponsibilities` does not give; ``max_gap(eps)`` is Δ ≤ ε of the paper.

    Parameters
    ----------
    X : array-like (n, d)
        Rows, more than ``n_components`` different ones. Small problems only: the problem is
        compiled entry by entry.
    n_components : int
        Number K of components.
    groups : array-like (n,)
        Group label of each row; at least two groups.
    sample_weight : array-like (n,), optional
        Non-negative weights; rescaled to sum 1. Equal by default.
    fairness : Rule or None
        Rule under the name ``fairness``; perfect fairness by default, None for plain maximum
        likelihood.

    Attributes
    ----------
    variables : ``slopes`` (K, d), ``levels`` (K,), ``log_precision`` scalar, ``log_sums`` (n,)
        with ``masses`` (G, K) weight shares; `parameters` makes means and weights of them
    group_names, shares : arrays (G,)
        Sorted labels and their weight shares.

    Raises
    ------
    DataError
        NaN or infinite entries, lengths that do not fit, one group, an empty group, no more
        different rows than components: the likelihood is unbounded then.
    DeclarationError
        A rule that cannot hold.

    Examples
    --------
    >>> import optfair as of
    >>> X = [[0.0], [0.2], [1.0], [4.0], [5.0], [5.2]]
    >>> p = FairMixtureLikelihood(X, n_components=2, groups=list("aabbab"), fairness=of.max_gap(0.2))
    >>> p.problem_class
    nonconvex NLP
    >>> bool(p.certificate.verify())
    True

    References
    ----------
    Park, Kim, Lee, Kim: Fair Model-based Clustering, AAAI 2026, eq. (5) and (6).
    """

    title = "FairMixtureLikelihood"

    @checked(n_components=check_count)
    def __init__(
        self,
        X: Any,
        *,
        n_components: int,
        groups: Any,
        sample_weight: Any = None,
        fairness: Rule | None = PerfectFairness(),  # noqa: B008 - a frozen value
    ) -> None:
        points = check_matrix(X, "X")
        if isinstance(n_components, bool) or int(n_components) != n_components or n_components < 1:
            raise DataError(
                f"n_components={n_components!r} is not a positive integer", remedy="give e.g. 2"
            )
        n = points.shape[0]
        weights = check_weights(sample_weight, n)
        different = len(np.unique(points[weights > 0.0], axis=0))
        if different <= n_components:
            raise DataError(
                f"{n_components} components for {different} different rows",
                "with a component on each row the likelihood grows without limit as σ goes to 0",
                "ask for fewer components than different rows",
            )
        index, names, shares = encode_groups(groups, n, weights)
        center = weights @ points
        scale = float(np.sqrt(weights @ ((points - center) ** 2).mean(axis=1)))
        super().__init__(
            {
                "points": (points - center) / scale,
                "center": center,
                "scale": scale,
                "components": int(n_components),
                "weights": weights,
                "groups": index,
                "group_names": names,
                "shares": shares,
            }
        )
        self._add_fairness(fairness, "max_gap(0.05)")

    @property
    def natural(self) -> NaturalParameters:
        """What the variables mean."""
        d = self.data
        return NaturalParameters(d["points"], d["center"], d["scale"])

    def declare(self) -> Declaration:
        """Declare parameters, likelihood and the masses of the responsibilities."""
        X, w, groups = self.data["points"], self.data["weights"], self.data["groups"]
        (n, d), K, G = X.shape, self.data["components"], self.shares.size
        theta, beta = cp.Variable((K, d), name="slopes"), cp.Variable(K, name="levels")
        t, sums = cp.Variable(name="log_precision"), cp.Variable(n, name="log_sums")
        M = cp.Variable((G, K), name="masses")
        constant = -0.5 * d * np.log(2.0 * np.pi) - d * np.log(self.data["scale"])

        def likelihood() -> Any:
            norms = cp.sum(cp.square(theta), axis=1)
            # not cp.log_sum_exp, which the rules of nonlinear programming take only where convex
            total = cp.log(cp.sum(cp.exp(beta + 0.5 * norms * cp.exp(-t))))
            return w @ sums - total + 0.5 * d * (t - cp.exp(t)) + constant

        def value(v: Values) -> float:
            rows = float(w @ np.asarray(v["log_sums"]))
            t = float(np.asarray(v["log_precision"]))
            with np.errstate(over="ignore"):
                size = float(np.exp(t))
            total = float(logsumexp(self.natural.component_logs(v)))
            return float(rows - total + 0.5 * d * (t - size) + constant)

        def fractions() -> Any:
            level = np.ones((n, 1)) @ cp.reshape(beta, (1, K), order="C")
            row = cp.reshape(sums, (n, 1), order="C") @ np.ones((1, K))
            return cp.exp(X @ theta.T + level - row)

        def gathering() -> Any:
            return sp.csr_array((w, (groups, np.arange(n))), shape=(G, n))

        def row_violation(v: Values) -> Floats:
            return np.asarray(np.abs(self.natural.fractions(v).sum(axis=1) - 1.0))

        def mass_violation(v: Values) -> Floats:
            return np.asarray(
                np.abs(gathered_masses(self.natural.fractions(v), groups, w, G) - v["masses"])
            )

        def smooth(name: str, scope: set[str], **rest: Any) -> ConstraintTerm:
            evidence = Evidence(name, "smooth", "Zero", SMOOTH)
            return ConstraintTerm(name, frozenset(scope), evidence, **rest)

        logits = {"slopes", "levels", "log_sums"}
        return Declaration(
            variables={
                "slopes": theta,
                "levels": beta,
                "log_precision": t,
                "log_sums": sums,
                "masses": M,
            },
            sense="maximize",
            objective=(
                ObjectiveTerm(
                    "log likelihood",
                    frozenset(logits | {"log_precision"}),
                    Evidence("log likelihood", "smooth", "maximize", SMOOTH),
                    build=likelihood,
                    latex=r"w^T \ell - \log 1^T e^A + \tfrac d2 (t - e^t)",
                    value=value,
                ),
            ),
            constraints=(
                ConstraintTerm(
                    "level sum",
                    frozenset({"levels"}),
                    Evidence("level sum", "affine", "Zero", LP),
                    build=lambda: cp.sum(beta) == 0,
                    violation=lambda v: np.abs(np.sum(v["levels"])).reshape(1),
                    scale=1.0,
                    latex=r"1^T \beta = 0",
                ),
                smooth(
                    "row sum",
                    logits,
                    build=lambda: cp.sum(fractions(), axis=1) == 1,
                    violation=row_violation,
                    shape=(n,),
                    scale=1.0,
                    latex=r"\textstyle\sum_k \psi_{ik} = 1",
                ),
                smooth(
                    "mass definition",
                    logits | {"masses"},
                    build=lambda: gathering() @ fractions() == M,
                    violation=mass_violation,
                    shape=(G, K),
                    latex=r"M_{gk} = \textstyle\sum_{i \in g} w_i \psi_{ik}",
                ),
            ),
        )

    def responsibilities(self, values: Values) -> Floats:
        """Return ψ of given ``slopes`` and ``levels``, or of a solution (n x K)."""
        return np.asarray(softmax(self.natural.logits(values), axis=1))

    def mixture(self, values: Values) -> MixtureParameters:
        """Return means, weights and precision of given values, or of a solution.

        Examples
        --------
        >>> p = FairMixtureLikelihood([[0.0], [1.0], [5.0]], n_components=2, groups=[0, 1, 1])
        >>> found = p.mixture(p.point([[0.5], [4.0]], [0.25, 0.75], 2.0))
        >>> found.means.round(9).tolist(), found.weights.round(9).tolist(), round(found.precision, 9)
        ([[0.5], [4.0]], [0.25, 0.75], 2.0)
        """
        return self.natural.parameters(values)

    def point(self, means: Any, weights: Any, precision: float) -> dict[str, Floats]:
        """Return values of all variables at given parameters, with the masses that follow.

        Parameters
        ----------
        means : array-like (K, d)
            Means of the components.
        weights : array-like (K,)
            Positive weights of the components.
        precision : float
            1/σ².
        """
        values = self.natural.values(means, weights, precision)
        R, w, groups = self.responsibilities(values), self.data["weights"], self.data["groups"]
        return {**values, "masses": gathered_masses(R, groups, w, self.shares.size)}

    def find_witness(self) -> NonconvexityWitness | None:
        r"""Return two mixtures whose midpoint is less likely than they are on average.

        In both, all components have one mean, so all rows belong to them in the same proportions
        and every gap between groups is 0. With a slope of length ρ the likelihood is, up to a number,

        .. math:: -\tfrac12 \rho^2 e^{-t} + \tfrac d2 (t - e^t)

        which curves upwards along the direction (ρ, 1) of (ρ, t) where
        :math:`\rho > \sqrt d\, e^t`.
        """
        d, K = self.data["points"].shape[1], self.data["components"]
        rho, step, shares = 2.0 * np.sqrt(d), 0.25, self._possible_shares()
        levels = np.log(shares)

        def mixture(sign: float) -> dict[str, Floats]:
            slopes = np.zeros((K, d))
            slopes[:, 0] = rho * (1.0 + sign * step)
            values = {
                "slopes": slopes,
                "levels": levels - levels.mean(),
                "log_precision": np.asarray(sign * step),
            }
            sums = self.natural.log_sums(values)
            return {**values, "log_sums": sums, "masses": np.outer(self.shares, shares)}

        witness = NonconvexityWitness(self, "log likelihood", mixture(1.0), mixture(-1.0))
        return witness if witness.verify() else super().find_witness()

    def _possible_shares(self) -> Floats:
        """Return shares of components, alike in all groups, that the rules allow if any drawn do."""
        K = self.data["components"]
        rules = [t for t in self.constraints.values() if t.scope <= {"masses"}]
        rng = np.random.default_rng(0)
        equal = np.full(K, 1.0 / K)
        for shares in (equal, *rng.dirichlet(np.ones(K), DRAWS)):
            masses = {"masses": np.outer(self.shares, shares)}
            if shares.min() > 0.0 and all(t.relative_violation(masses) <= 1e-9 for t in rules):
                return np.asarray(shares)
        return equal
