"""EM for fair mixtures: with the convex fair E-step, and under a penalty on unfairness."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.algorithms.entropic_projection import LOOSE, project_masses
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.pricing import label_masses, smallest_ratio
from optfair.methods.fair_clustering.assignment import FairAssignment, each_rule
from optfair.methods.fair_clustering.cost_rules import ForbiddenArcs, GroupCost, Radius
from optfair.methods.fair_clustering.links import CannotLink, MustLink
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.rules import MaxGap, PerfectFairness
from optfair.methods.fair_mixtures.components import Components, Statistics
from optfair.methods.fair_mixtures.expectation import (
    Expectation,
    Gaps,
    Passes,
    Penalty,
    Sample,
    log_sums,
    penalty_step,
    slopes,
)
from optfair.numbers import Floats, Indices

# EM with the convex fair E-step: mixtures whose projected responsibilities obey rules.

# Distance from the rules, in fractions of groups, at which a projection ends.
EXACT = 1e-10
# Share of its fair part below which a component is dead.
DEAD = 1e-8
# Weight of a group, to that of all, below which its fractions are lost beside those of the others.
LIGHTEST = 1e-7


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
    kept : int or None
        Iterations that made ``components``; None for all.
    """

    components: Components
    prices: Floats
    objective: float
    gap: float
    history: tuple[float, ...]
    status: str
    reseeded: tuple[tuple[int, int], ...] = ()
    kept: int | None = None


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
        Change of F for each column at which it ends.
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
                projection = project_masses(
                    passes.oracle(components),
                    program,
                    prices=prices,
                    tolerance=EXACT,
                    deadline=np.inf if last is None else deadline,
                )
                if projection.status == "interrupted":
                    raise KeyboardInterrupt
                if projection.status == "time_limit":  # the E-step before is complete
                    status = "time_limit"
                    break
                if projection.distance > LOOSE:
                    loose.append(iteration)
                prices = projection.prices
            step = passes.expectation(components, prices)
            objective = step.objective(prices)
            if program is not None:
                gap = -objective - projection.value
            last = (components, prices, step, gap)
            history.append(objective)
            if report is not None:
                report(iteration + 1, objective)
            dead = dead_components(step.statistics)
            change = np.inf if len(history) < 2 else objective - history[-2]
            if change <= tol * components.columns and not dead.size and fresh < iteration - 1:
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


# Rules on rows and what they cost; the model's own terms, and the scope of rules on masses.
OF_ROWS = Radius, ForbiddenArcs, GroupCost, MustLink, CannotLink
MODEL, MASSES = ("row sum", "nonnegativity", "mass definition"), frozenset({"masses"})


def _refuse_rows(names: list[Any]) -> None:
    """Raise on rules that are not on masses of groups alone."""
    if names:
        raise DeclarationError(
            f"mixtures take rules on the masses of groups only, not {', '.join(map(repr, names))}",
            "an E-step has prices of masses, none of single rows or costs",
            "use balance, max_gap, cluster_share ..., or FairKMeans",
        )


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
        Rules that do not fit the groups, or are on single rows or costs.
    DataError
        A group weighs too little for rules between groups.
    """
    _refuse_rows([name for name, rule in each_rule(rules) if isinstance(rule, OF_ROWS)])
    # the rules see groups and shares only, so K rows per group stand for all
    groups = np.repeat(np.asarray(names), clusters)
    problem = FairAssignment(
        groups=groups,
        fairness=rules or None,
        costs=np.zeros((groups.size, clusters)),
        sample_weight=np.repeat(shares / clusters, clusters),
    )
    _refuse_rows(
        [k for k, t in problem.constraints.items() if k not in MODEL and t.scope != MASSES]
    )
    program = compile_rules(problem).program
    light = int(shares.argmin())
    if shares[light] < LIGHTEST and _compared(program, light):
        raise DataError(
            f"group {names.tolist()[light]!r} weighs too little for rules between groups",
            f"{shares[light]:.1e} of all rows; an E-step tells fractions of groups apart that"
            f" weigh {LIGHTEST:g} or more",
            "leave the rows of that group out, or raise their sample_weight",
        )
    return program


def _compared(program: MassProgram, group: int) -> bool:
    """Whether rules compare fractions of a group with those of others, whose prices it may then hide.

    Between two groups, equations have prices of the lighter one only.
    """
    shares = program.shares
    if program.only_equations and shares.size == 2:
        return False
    units = np.repeat(shares, program.masses.shape[1])
    sizes = abs(program.own_rows) @ sp.diags_array(units)
    own = sizes @ np.repeat(np.arange(shares.size) == group, program.masses.shape[1])
    return bool((own > 0.1 * sizes.max(axis=1).toarray().ravel()).any())


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


# Mixtures under a penalty on unfairness: generalised EM (FMC-EM) and gradient ascent (FMC-GD).

# A step is kept when it gains this share of what its model promised.
SHARE = 1e-3
# The quadratic term grows until a step is kept; past the last, there is no ascent.
STIFFER, SOFTER, STIFFEST = 4.0, 0.5, 1e12


@dataclass(frozen=True, eq=False)
class State:
    """Components with what a pass over the rows says about them.

    Attributes
    ----------
    components : Components
    psi : array (n, K)
        Responsibilities.
    log_likelihood : float
        Mean log-likelihood.
    fractions : array (G, K)
        Mean responsibilities of groups.
    """

    components: Components
    psi: Floats
    log_likelihood: float
    fractions: Floats

    @classmethod
    def of(cls, components: Components, sample: Sample) -> State:
        """Make the pass."""
        joint = sample.log_joint(components)
        value = float(sample.weights @ log_sums(joint))
        return cls(components, joint, value, sample.masses(joint) / sample.shares[:, None])


@dataclass(eq=False)
class _Ascent:
    """What both algorithms share: the penalty, the clock and the record."""

    sample: Sample
    penalty: Penalty
    tol: float
    max_iter: int
    deadline: float
    report: Callable[[int, float], None] | None
    balanced: bool = False
    stiffness: float = 1.0
    history: list[float] = field(default_factory=list)
    reseeded: list[tuple[int, int]] = field(default_factory=list)

    def objective(self, s: State) -> float:
        return s.log_likelihood - self.penalty.value(s.fractions)

    def run(self, state: State, improve: Callable[[State], State | None]) -> MixtureFit:
        """Improve until an iteration gains too little."""
        best = self.objective(state)
        kept, rank = (0, best, state.components), (-1, 0.0)
        status = "max_iter"
        small = 0
        try:
            for iteration in range(self.max_iter):
                if time.perf_counter() > self.deadline:
                    status = "time_limit"
                    break
                better = improve(state)
                if better is None:
                    status = "converged" if iteration else "stalled"
                    break
                gained = self.objective(better) - best
                state, best = better, best + gained
                self.history.append(best)
                now = self.balance(state) if self.balanced else (iteration, best)
                if now > rank:
                    kept, rank = (iteration + 1, best, state.components), now
                if self.report is not None:
                    self.report(iteration + 1, best)
                small = small + 1 if gained <= self.tol * state.components.columns else 0
                dead = np.flatnonzero(
                    self.sample.shares @ state.fractions < DEAD / state.psi.shape[1]
                )
                if dead.size:
                    state = self.restarted(state, dead)
                    best, small = self.objective(state), 0
                    self.reseeded += [(iteration + 1, int(k)) for k in dead]
                elif small >= 2:  # one short step may be a kink of the penalty
                    status = "converged"
                    break
        except KeyboardInterrupt:
            status = "interrupted"
        if not self.balanced:  # a component that died last is started again
            kept = len(self.history), best, state.components
        last, best, c = kept
        zero = np.zeros((self.sample.shares.size, c.clusters))
        history, reseeded = tuple(self.history), tuple(self.reseeded)
        return MixtureFit(c, zero, best, 0.0, history, status, reseeded, last)

    def balance(self, state: State) -> tuple[int, float]:
        """Return (clusters that have rows, balance) of the labels argmax ψ: larger is better."""
        s, (G, K) = self.sample, state.fractions.shape
        masses = label_masses(state.psi.argmax(axis=1), s.index, s.weights, (G, K))
        return int((masses.sum(axis=0) > 0.0).sum()), smallest_ratio(masses)

    def restarted(self, state: State, dead: Indices) -> State:
        """Return the state with dead components started again, at the row least explained."""
        sums = log_sums(self.sample.log_joint(state.components))
        farthest = self.sample.rows[np.array([int(sums.argmin())])]
        return State.of(state.components.restarted(dead, farthest), self.sample)

    def stepped(
        self,
        state: State,
        gradient: Floats,
        metric: Floats,
        slope: Floats,
        value: Callable[[Components, State], float],
    ) -> State | None:
        """Return the state after one step that raises ``value``, None when there is none."""
        here = value(state.components, state)
        while self.stiffness <= STIFFEST:
            step, gain = penalty_step(
                gradient, self.stiffness * metric, state.fractions, slope, self.penalty
            )
            if not gain > 1e-15 * max(1.0, abs(here)):
                return None
            new, gained = None, -np.inf
            with np.errstate(all="ignore"), contextlib.suppress(np.linalg.LinAlgError):
                new = State.of(state.components.moved(step), self.sample)
                gained = value(new.components, new) - here
            if new is not None and gained >= SHARE * gain:  # a step too long ends beyond the floats
                if gained >= 0.5 * gain:
                    self.stiffness = max(self.stiffness * SOFTER, 1e-3)
                return new
            self.stiffness *= STIFFER
        self.stiffness = 1.0
        return None


def penalised(
    components: Components,
    sample: Sample,
    *,
    lam: float,
    size_penalty: float = 0.0,
    balanced: bool = False,
    inner_steps: int | None = 1,
    tol: float = 1e-6,
    max_iter: int = 200,
    deadline: float = np.inf,
    report: Callable[[int, float], None] | None = None,
) -> MixtureFit:
    r"""Maximise :math:`\ell(\Theta) - \lambda\Delta(\Theta)` by generalised EM (FMC-EM), or FMC-GD.

    An iteration of EM fixes the responsibilities of Θᵗ and takes ascent steps on
    :math:`Q(\Theta | \Theta^t) - \lambda\Delta(\Theta)`, none of which lowers it; so
    :math:`\ell - \lambda\Delta` never falls either. One of FMC-GD is a proximal gradient step:
    one step length for all coordinates, which shrinks until the objective rises.

    Parameters
    ----------
    components : Components
        Start.
    sample : Sample
        Rows.
    lam : float
        λ >= 0, in units of the mean log-likelihood.
    size_penalty : float
        ρ >= 0 of the further penalty on the smallest fraction; see `Penalty`.
    balanced : bool
        Return the iterate whose labels argmax ψ are best balanced, not the last one.
    inner_steps : int or None
        Steps per iteration of EM; None for gradient steps.
    tol : float
        Gain of the objective for each column at which it ends.
    max_iter : int
        Iterations.
    deadline : float
        ``time.perf_counter()`` value after which no iteration starts.
    report : callable, optional
        Called with (iteration, objective).
    """
    penalty = Penalty(Gaps(sample.shares.size), lam, size_penalty)
    run = _Ascent(sample, penalty, tol, max_iter, deadline, report, balanced)

    def improve(state: State) -> State | None:
        s = sample.statistics(state.components, state.psi)
        if inner_steps is None:
            gradient = state.components.gradient(s)
            slope = slopes(state.components, sample, state.psi)
            ones = np.ones(gradient.size)
            return run.stepped(state, gradient, ones, slope, lambda _, new: run.objective(new))

        def value(c: Components, new: State) -> float:
            return c.expected(s) - run.penalty.value(new.fractions)

        chosen: State | None = None
        for _ in range(inner_steps):
            now = chosen or state
            new = run.stepped(
                now,
                now.components.gradient(s),
                now.components.information(),
                slopes(now.components, sample, now.psi),
                value,
            )
            if new is None:
                break
            chosen = new
        return chosen

    return run.run(State.of(components, sample), improve)
