r"""EM with the convex fair E-step: mixtures whose projected responsibilities obey rules."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.algorithms.entropic_projection import project_masses
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.rules import MaxGap, PerfectFairness
from optfair.methods.fair_mixtures.components import Components, Statistics
from optfair.methods.fair_mixtures.expectation import Expectation, Passes
from optfair.numbers import Floats

# EM with the convex fair E-step: mixtures whose projected responsibilities obey rules.

# Distance from the rules, in fractions of groups, at which a projection ends.
EXACT = 1e-10
# Distance from which on a projection does not count as one.
LOOSE = 1e-8
# Share of its fair part below which a component is dead.
DEAD = 1e-8


@dataclass(frozen=True, eq=False)
class MixtureFit:
    r"""Where a fit ended, whatever it maximised.

    Attributes
    ----------
    components : Components
    prices : array (G, K)
        Λ of the last fair E-step, made at ``components``; zero without a constraint.
    objective : float
        F: mean log-likelihood less the mean divergence of the projection; or ℓ - λΔ, or ℓ.
    gap : float
        Duality gap of the last projection.
    history : tuple of float
        Objective after each iteration; it never falls, but where a component was started again.
    status : str
        converged, stalled, max_iter, time_limit, interrupted, or inexact: the last projection
        is farther than 1e-8 from the rules.
    reseeded : tuple of (int, int)
        Iteration and component wherever a dead one was started again.
    """

    components: Components
    prices: Floats
    objective: float
    gap: float
    history: tuple[float, ...]
    status: str
    reseeded: tuple[tuple[int, int], ...] = ()


def fair_em(
    passes: Passes,
    components: Components,
    program: MassProgram | None,
    *,
    groups: int,
    prices: Floats | None = None,
    tol: float = 1e-6,
    max_iter: int = 200,
    deadline: float = np.inf,
    report: Callable[[int, float], None] | None = None,
) -> MixtureFit:
    r"""Maximise :math:`F(\Theta) = \ell(\Theta) - \min_{R \in C} \mathrm{KL}(R \| \psi(\Theta))`.

    Each iteration projects the responsibilities on the rules (a convex problem, solved through
    the prices of the masses) and re-estimates the components from the projected ones. Both steps
    maximise the same function of (R, Θ), so F never falls. It ends with an E-step: the prices
    belong to the components returned.

    Parameters
    ----------
    passes : Passes
        The rows.
    components : Components
        Start.
    program : MassProgram or None
        Rules on the masses; None for plain EM.
    groups : int
        Number of groups G.
    prices : array (G, K), optional
        Prices to start from.
    tol : float
        Relative change of F at which it ends.
    max_iter : int
        E-steps.
    deadline : float
        ``time.perf_counter()`` value after which no iteration starts.
    report : callable, optional
        Called with (iteration, F).
    """
    zero = np.zeros((groups, components.clusters))
    prices = zero if prices is None else prices
    history: list[float] = []
    reseeded: list[tuple[int, int]] = []
    status = "max_iter"
    loose: list[int] = []
    last: tuple[Components, Floats, Expectation, float] | None = None
    fresh = -1  # iteration of the last new start
    try:
        for iteration in range(max_iter):
            gap = 0.0
            if program is not None:
                found = project_masses(
                    passes.oracle(components),
                    program,
                    prices=prices,
                    tolerance=EXACT,
                    deadline=np.inf if last is None else deadline,
                )
                if found.status == "interrupted":
                    raise KeyboardInterrupt
                if found.status == "time_limit":  # the E-step before is complete
                    status = "time_limit"
                    break
                if found.distance > LOOSE:
                    loose.append(iteration)
                prices = found.prices
            step = passes.expectation(components, prices)
            objective = step.objective(prices)
            if program is not None:
                gap = -objective - found.value
            last = (components, prices, step, gap)
            history.append(objective)
            if report is not None:
                report(iteration + 1, objective)
            dead = dead_components(step.statistics)
            change = np.inf if len(history) < 2 else objective - history[-2]
            if change <= tol * max(1.0, abs(objective)) and not dead.size and fresh < iteration - 1:
                status = "converged"
                break
            if time.perf_counter() > deadline:
                status = "time_limit"
                break
            if iteration + 1 < max_iter:
                components = components.estimated(step.statistics)
                if dead.size:
                    components = components.restarted(dead, step.farthest.rows)
                    reseeded += [(iteration + 1, int(k)) for k in dead]
                    prices, fresh = prices.copy(), iteration
                    prices[:, dead] = 0.0
    except KeyboardInterrupt:
        if last is None:
            raise
        status = "interrupted"
    if last is None:
        raise ValueError("max_iter must be positive")
    components, prices, step, gap = last
    if loose and loose[-1] == len(history) - 1:
        status = "inexact"
    return MixtureFit(components, prices, history[-1], gap, tuple(history), status, tuple(reseeded))


def dead_components(s: Statistics) -> NDArray[np.intp]:
    """Return the components that have practically no weight."""
    share = s.mass / s.mass.sum()
    return np.flatnonzero(share < DEAD / share.size)


# The rules of a fair mixture as the small program in the group masses, whatever the rows.


def named_rules(eps: float | None, rules: Any) -> dict[str, Any]:
    """Return rules by name: the gap ``eps`` as ``fairness``, and what else was given.

    Parameters
    ----------
    eps : float or None
        Largest difference of two groups' fractions in a component; None for no such rule.
    rules : Rule, list of rules, dict of rules by name, or None
        Further rules on the masses.
    """
    named: dict[str, Any] = {}
    if eps is not None:
        named["fairness"] = PerfectFairness() if eps == 0.0 else MaxGap(eps)
    if isinstance(rules, dict):
        if eps is not None and "fairness" in rules:
            raise DeclarationError(
                "rules has the name 'fairness'",
                f"eps={eps:g} is the rule of that name",
                "give the rule another name, or eps=None",
            )
        named.update(rules)
    elif rules is not None:
        named["rules"] = rules
    return named


def mass_program(
    names: NDArray[Any], shares: Floats, clusters: int, rules: dict[str, Any]
) -> MassProgram:
    """Return the rules in the cone form that projections read.

    Parameters
    ----------
    names : array (G,)
        Sorted group labels.
    shares : array (G,)
        Weight share of each group.
    clusters : int
        Number of components K.
    rules : dict
        Rules by name.

    Raises
    ------
    Infeasible
        Rules that exclude each other.
    DeclarationError
        Rules that do not fit the groups.
    """
    # the rules see groups and shares only, so K rows per group stand for all
    groups = np.repeat(np.asarray(names), clusters)
    problem = FairAssignment(
        groups=groups,
        fairness=rules or None,
        costs=np.zeros((groups.size, clusters)),
        sample_weight=np.repeat(shares / clusters, clusters),
    )
    return compile_rules(problem).program


def fair_labels_problem(
    log_joint: Floats, groups: NDArray[Any], weights: Floats, rules: dict[str, Any]
) -> FairAssignment:
    r"""Return the problem whose vertex gives labels that obey the rules themselves.

    .. math:: \min_{A \in C}\; -\sum_{ik} w_i A_{ik} \log \pi_k f_k(x_i)

    It is the projection at temperature zero. Under linear rules all but a few rows have one
    cluster, so the labels obey the rules but for these rows.

    Parameters
    ----------
    log_joint : array (n, K)
        Log joint densities.
    groups, weights : arrays (n,)
        Label and weight of each row.
    rules : dict
        Rules by name.
    """
    return FairAssignment(
        groups=groups, fairness=rules or None, costs=-log_joint, sample_weight=weights
    )
