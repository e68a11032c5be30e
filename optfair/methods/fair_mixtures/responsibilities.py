"""The fair E-step: the responsibilities nearest to given ones that satisfy rules on groups."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from optfair.core.composition import Rule
from optfair.core.problem import Declaration
from optfair.core.problem_class import Evidence, ProblemClass
from optfair.core.term import ObjectiveTerm, Structure
from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.assignment import GroupedRows, assignment_arguments, mass_terms
from optfair.methods.fair_clustering.assignment import bound_arguments as bound_arguments
from optfair.methods.fair_clustering.rules import PerfectFairness
from optfair.numbers import Floats, check_matrix, check_weights, encode_groups

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
