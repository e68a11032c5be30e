"""The problems of fair mixtures: the fair E-step, which is convex, and maximum likelihood, which is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp, softmax

from optfair.core.certificate import NonconvexityWitness
from optfair.core.composition import Rule, evaluated_constraint, evaluated_objective, model_term
from optfair.core.problem import Declaration
from optfair.core.problem_class import Evidence, ProblemClass, Structure
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.assignment import GroupedRows, assignment_arguments, mass_terms
from optfair.methods.fair_clustering.assignment import bound_arguments as bound_arguments
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.methods.fair_clustering.rules import PerfectFairness
from optfair.numbers import Floats, check_count, check_matrix, check_weights, checked, encode_groups
from optfair.rows.frames import check_row_order

# The fair E-step: the responsibilities nearest to given ones that satisfy rules on groups.

EXPONENTIAL = ProblemClass(cones=frozenset({"exp"}))
# Rows per block where the divergence is added up.
CHUNK = 65_536
# Least log responsibility inside an exponential cone.
FLOOR = -30.0


class FairResponsibilities(GroupedRows):
    r"""Project responsibilities on rules of their group masses, in relative entropy.

    .. math::
        \min_{R, M}\; \sum_i w_i \sum_k R_{ik} \log\frac{R_{ik}}{\psi_{ik}}
        \quad\text{s.t.}\quad R \ge 0,\; R 1 = 1,\;
        M_{gk} = \sum_{i \in g} w_i R_{ik},\; \text{rules on } M

    Class: CONIC(exp), and whatever class the rules on the masses have. Convex.

    The solution has the form :math:`R_{ik} \propto \psi_{ik} e^{-\Lambda_{g_i k}}`, where Λ are
    the multipliers of ``mass definition``: G·K numbers, from which the responsibilities of any
    further row of a known group follow.

    This is the E-step of posterior regularisation. What a rule guarantees it guarantees of R on
    these rows; neither of ψ nor of the labels argmax R.

    Parameters
    ----------
    log_prob : array-like (n, K)
        Log joint densities :math:`\log \alpha_k f_k(x_i)` or log responsibilities; a number may
        be added to each row. ψ are their exponentials, divided by their sum in each row.
    groups : array-like (n,)
        Group label of each row; at least two groups.
    sample_weight : array-like (n,), optional
        Non-negative weights; rescaled to sum 1. Equal by default.
    fairness : Rule or None
        Rule under the name ``fairness``; perfect fairness by default, None for the plain
        responsibilities.

    Attributes
    ----------
    variables : ``responsibilities`` (n, K), ``masses`` (G, K) weight shares
    group_names, shares : arrays (G,)
        Sorted labels and their weight shares.
    log_prob : array (n, K)
        Log responsibilities log ψ.

    Raises
    ------
    DataError
        NaN or infinite entries, lengths that do not fit, one group, an empty group.
    DeclarationError
        A rule that cannot hold.

    Examples
    --------
    >>> import numpy as np
    >>> log_prob = np.log([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
    >>> p = FairResponsibilities(log_prob, groups=["a", "a", "b", "b"])
    >>> p.problem_class
    CONIC(exp)
    >>> s = p.solve()
    >>> s.solver, s["responsibilities"].round(4).tolist()
    ('entropic-mass', [[0.7303, 0.2697], [0.311, 0.689], [0.5875, 0.4125], [0.4538, 0.5462]])

    References
    ----------
    Park, Kim, Lee, Kim: Fair Model-based Clustering, AAAI 2026, eq. (6) and (14): the constraint
    Δ ≤ ε, here on projected responsibilities.
    Ganchev, Graça, Gillenwater, Taskar: Posterior Regularization for Structured Latent Variable
    Models, JMLR 11 (2010).
    """

    title = "FairResponsibilities"
    structures: ClassVar[tuple[Structure, ...]] = (
        Structure(
            "entropic-projection",
            ("divergence", "row sum", "nonnegativity", "mass definition"),
            frozenset({"masses"}),
            "a rule on the masses",
        ),
    )

    def __init__(
        self,
        log_prob: Any,
        *,
        groups: Any,
        sample_weight: Any = None,
        fairness: Rule | None = PerfectFairness(),  # noqa: B008 - a frozen value
    ) -> None:
        check_row_order(log_prob=log_prob, groups=groups, sample_weight=sample_weight)
        normalised = _normalised(log_prob)
        n = normalised.shape[0]
        weights = check_weights(sample_weight, n)
        index, names, shares = encode_groups(groups, n, weights)
        super().__init__(
            {
                "log_prob": normalised,
                "weights": weights,
                "groups": index,
                "group_names": names,
                "shares": shares,
            }
        )
        self._add_fairness(fairness, "max_gap(0.05)")

    @property
    def log_prob(self) -> Floats:
        """Log responsibilities log ψ (n x K)."""
        return np.asarray(self.data["log_prob"])

    def declare(self) -> Declaration:
        """Declare variables and the model's own terms; nothing of size n is built."""
        (n, K), G = self.log_prob.shape, self.shares.size
        R, M = cp.Variable((n, K), name="responsibilities"), cp.Variable((G, K), name="masses")
        return Declaration(
            variables={"responsibilities": R, "masses": M},
            objective=(self._divergence(self.log_prob, R),),
            constraints=mass_terms(R, M, self.data["groups"], self.data["weights"], "R"),
        )

    def _divergence(self, log_prob: Floats, R: Any) -> ObjectiveTerm:
        w = self.data["weights"]

        def build() -> Any:
            # R log(R / psi) with psi beyond the floor as a linear term: exactly the same function,
            # and no entry of a cone is so small that a solver cannot tell it from 0
            cone = np.maximum(log_prob, FLOOR)
            weight = np.repeat(w[:, None], log_prob.shape[1], axis=1)
            curved = cp.sum(cp.multiply(weight, cp.rel_entr(R, np.exp(cone))))
            return curved + cp.sum(cp.multiply(weight * (cone - log_prob), R))

        def value(v: Any) -> float:
            R, total = np.asarray(v["responsibilities"]), 0.0
            for start in range(0, w.size, CHUNK):
                rows = slice(start, start + CHUNK)
                # a negative entry is the sign's violation, not the entropy's
                part = np.maximum(R[rows], 0.0)
                logs = np.log(np.maximum(part, np.finfo(float).tiny))
                total += float(w[rows] @ np.einsum("ik,ik->i", part, logs - log_prob[rows]))
            return total

        return ObjectiveTerm(
            "divergence",
            frozenset({"responsibilities"}),
            Evidence("divergence", "convex", "minimize", EXPONENTIAL),
            build=build,
            latex=r"\textstyle\sum_i w_i \sum_k R_{ik} \log (R_{ik} / \psi_{ik})",
            value=value,
        )

    def with_log_prob(self, log_prob: Any) -> FairResponsibilities:
        """Return this problem with other densities; rules, groups and weights stay.

        Parameters
        ----------
        log_prob : array-like (n, K)
            As many rows and components as before.
        """
        new = _normalised(log_prob)
        if new.shape != self.log_prob.shape:
            raise DataError(
                f"log_prob has shape {new.shape}, before it was {self.log_prob.shape}",
                remedy="give as many rows and components as before",
            )
        term = self._divergence(new, self["responsibilities"])
        child: FairResponsibilities = self._child(
            data=MappingProxyType({**self.data, "log_prob": new}),
            objective=MappingProxyType({**self.objective, "divergence": term}),
        )
        return child


def _normalised(log_prob: Any) -> Floats:
    """Return log responsibilities: each row less the logarithm of its summed exponentials."""
    try:
        impossible = bool((np.asarray(log_prob) == -np.inf).any())
    except (TypeError, ValueError):
        impossible = False
    if impossible:
        raise DataError(
            "log_prob has entries of minus infinity",
            "a component gives a row probability 0, and so must every projection",
            "smooth the component, or replace them by a finite floor such as -700",
        )
    matrix = check_matrix(log_prob, "log_prob")
    for start in range(0, matrix.shape[0], CHUNK):
        rows = matrix[start : start + CHUNK]
        rows -= rows.max(axis=1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
    return matrix


# Log densities of a Gaussian mixture on rows of a data set, from a [data] table.


def mixture_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    r"""Return the arguments of `FairResponsibilities`.

    With ``dataset``, rows and groups are read as for `FairAssignment`, and ``log_prob`` are

    .. math:: \log\alpha_k - \tfrac\tau2 \|x_i - \mu_k\|^2

    with μ = ``centers``, τ = ``precision`` and α = ``component_weights``, equal by default.
    Any other entry is an argument as it stands.

    Examples
    --------
    >>> sorted(mixture_arguments({"log_prob": [[0.0, 1.0]], "groups": ["a"]}))
    ['groups', 'log_prob']
    """
    arguments = assignment_arguments(data)
    if "dataset" not in data:
        return arguments
    if "precision" not in arguments:
        raise DeclarationError(
            "[data] names a dataset but no precision", remedy="add precision, which is 1/σ²"
        )
    X, centers = arguments.pop("X"), arguments.pop("centers")
    precision = float(arguments.pop("precision"))
    K = len(centers)
    alpha = np.asarray(arguments.pop("component_weights", np.full(K, 1.0 / K)), dtype=float)
    if not (precision > 0.0 and np.isfinite(precision)):
        raise DataError(f"precision = {precision} in [data]", remedy="give a positive number")
    if alpha.shape != (K,) or not (alpha > 0.0).all():
        raise DataError(
            f"component_weights in [data] do not fit {K} centers",
            remedy="give a positive weight for each center",
        )
    squares = ((X[:, None, :] - np.asarray(centers)) ** 2).sum(axis=2)
    return arguments | {"log_prob": np.log(alpha / alpha.sum()) - 0.5 * precision * squares}


# Maximum likelihood of a Gaussian mixture whose responsibilities are fair: a nonconvex problem.

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
        check_row_order(X=X, groups=groups, sample_weight=sample_weight)
        points = check_matrix(X, "X")
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

    def declare(self) -> Declaration:
        """Declare parameters, likelihood and the masses of the responsibilities."""
        X, w, groups = self.data["points"], self.data["weights"], self.data["groups"]
        (n, d), K, G = X.shape, self.data["components"], self.shares.size
        theta, beta = cp.Variable((K, d), name="slopes"), cp.Variable(K, name="levels")
        t, sums = cp.Variable(name="log_precision"), cp.Variable(n, name="log_sums")
        M = cp.Variable((G, K), name="masses")
        constant = -0.5 * d * np.log(2.0 * np.pi) - d * np.log(self.data["scale"])
        norms = cp.sum(cp.square(theta), axis=1)
        # not cp.log_sum_exp, which the rules of nonlinear programming take only where convex
        total = cp.log(cp.sum(cp.exp(beta + 0.5 * norms * cp.exp(-t))))
        level = np.ones((n, 1)) @ cp.reshape(beta, (1, K), order="C")
        row = cp.reshape(sums, (n, 1), order="C") @ np.ones((1, K))
        fractions = cp.exp(X @ theta.T + level - row)
        gathering = sp.csr_array((w, (groups, np.arange(n))), shape=(G, n))
        names = {v.id: v.name() for v in (theta, beta, t, sums, M)}

        def smooth(name: str, constraint: Any, latex: str) -> ConstraintTerm:
            evidence = Evidence(name, "smooth", "Zero", SMOOTH)
            return replace(evaluated_constraint(name, constraint, names, evidence), latex=latex)

        goal = evaluated_objective(
            "log likelihood",
            w @ sums - total + 0.5 * d * (t - cp.exp(t)) + constant,
            names,
            Evidence("log likelihood", "smooth", "maximize", SMOOTH),
        )
        return Declaration(
            variables={v.name(): v for v in (theta, beta, t, sums, M)},
            sense="maximize",
            objective=(replace(goal, latex=r"w^T \ell - \log 1^T e^A + \tfrac d2 (t - e^t)"),),
            constraints=(
                model_term("level sum", cp.sum(beta) == 0, r"1^T \beta = 0"),
                smooth(
                    "row sum", cp.sum(fractions, axis=1) == 1, r"\textstyle\sum_k \psi_{ik} = 1"
                ),
                smooth(
                    "mass definition",
                    gathering @ fractions == M,
                    r"M_{gk} = \textstyle\sum_{i \in g} w_i \psi_{ik}",
                ),
            ),
        )

    def responsibilities(self, values: Values) -> Floats:
        """Return ψ of given ``slopes`` and ``levels``, or of a solution (n x K)."""
        return np.asarray(softmax(self._logits(values), axis=1))

    def _logits(self, v: Values) -> Floats:
        """Return logarithms of responsibilities up to a number per row (n x K)."""
        slopes = np.asarray(v["slopes"], dtype=float)
        return np.asarray(self.data["points"] @ slopes.T + np.asarray(v["levels"], dtype=float))

    def _with_sums(self, values: dict[str, Floats]) -> dict[str, Floats]:
        """Return the values with the ``log_sums`` that make responsibilities sum to 1."""
        return {**values, "log_sums": np.asarray(logsumexp(self._logits(values), axis=1))}

    def mixture(self, values: Values) -> MixtureParameters:
        """Return means, weights and precision of given values, or of a solution.

        Examples
        --------
        >>> p = FairMixtureLikelihood([[0.0], [1.0], [5.0]], n_components=2, groups=[0, 1, 1])
        >>> found = p.mixture(p.point([[0.5], [4.0]], [0.25, 0.75], 2.0))
        >>> found.means.round(9).tolist(), found.weights.round(9).tolist(), round(found.precision, 9)
        ([[0.5], [4.0]], [0.25, 0.75], 2.0)
        """
        d, slopes = self.data, np.asarray(values["slopes"], dtype=float)
        inner = float(np.exp(float(np.asarray(values["log_precision"]))))
        logs = values["levels"] + 0.5 * (slopes**2).sum(axis=1) / inner
        means = d["center"] + d["scale"] * slopes / inner
        return MixtureParameters(means, np.asarray(softmax(logs)), inner / d["scale"] ** 2)

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
        d = self.data
        inner = float(precision) * d["scale"] ** 2
        shifted = (np.asarray(means, dtype=float) - d["center"]) / d["scale"]
        levels = np.log(np.asarray(weights, dtype=float)) - 0.5 * inner * (shifted**2).sum(axis=1)
        values = self._with_sums(
            {
                "slopes": inner * shifted,
                "levels": levels - levels.mean(),
                "log_precision": np.asarray(np.log(inner)),
            }
        )
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
            return {**self._with_sums(values), "masses": np.outer(self.shares, shares)}

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
