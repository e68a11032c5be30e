"""Routes of fair assignments and responsibilities: the mass-dual algorithms, with their certificates."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import scipy.sparse as sp

from optfair.backends.isolation import round_progress
from optfair.backends.request import Outcome, Request, SolverProfile, stages
from optfair.compile.conic_proof import ValueLine, value_line
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.core.problem import Problem
from optfair.core.solution import LazyValues
from optfair.methods.fair_clustering.algorithms.charged_rows import (
    HARD_OVERDRAFT,
    SPILL,
    ChargedRows,
    Demands,
    factors_of,
)
from optfair.methods.fair_clustering.algorithms.entropic_projection import project
from optfair.methods.fair_clustering.algorithms.linked_rows import LinkedRows, solve_linked
from optfair.methods.fair_clustering.algorithms.price_search import (
    CURVED,
    LEAST_BOX,
    POLYHEDRAL,
    solve_mass_dual,
)
from optfair.methods.fair_clustering.algorithms.pricing import (
    group_log_sums,
    group_softmax,
    lowered,
    mass_pass,
)
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.methods.fair_clustering.cost_rules import EXCESS, CostTerm, unreachable_costs
from optfair.methods.fair_clustering.links import linked_rows, pairs_of, units_of
from optfair.methods.fair_clustering.mass_rules import CompiledRules, compile_rules, warm_prices
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.numbers import Floats
from optfair.proofs.bounds import LowerBound
from optfair.proofs.rounding import gamma, loss
from optfair.solution.conic_form import ConicForm

CHUNK = 65_536


def run_mass_dual(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Run the mass-dual algorithm on a problem that has the structure."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    p = cast(FairAssignment, problem)
    rules, demands = compile_rules(p), p.demands
    if demands.of_costs:
        return _run_charged(p, rules, demands, request, begin)
    if p.links:
        return _run_linked(p, rules, request, begin)
    compiled_at = time.perf_counter()
    aim = POLYHEDRAL if rules.program.polyhedral else CURVED
    with round_progress(request.verbose, "mass-dual", "first prices", price_round) as report:
        result = solve_mass_dual(
            rules.program,
            p.cost,
            p.data["groups"],
            p.data["weights"],
            feasible=rules.feasible,
            prices=warm_prices(p, request),
            # prices that the problem has are all but right
            share=1.0 if request.warm_start or p.data.get("prices") is None else LEAST_BOX,
            tolerance=min(aim, 0.4 * request.tolerance),
            deadline=request.deadline,
            report=report,
            known=None if request.warm_start else p.data.get("known"),
        )
    times = begin, compiled_at, time.perf_counter()
    return MassProof(p, rules, result.y, result.z).outcome(result, _values(p, result), times)


def price_round(entry: Any) -> str:
    """Say of a round of a price search how far it is."""
    size = f"{entry.rows} free rows, {entry.arcs} arcs"
    return f"{size}, bound {entry.bound:.10g}, gap {entry.gap:.1e}"


def _values(p: FairAssignment, result: Any) -> dict[str, Floats]:
    K = p.cost.clusters
    A = np.zeros((p.cost.rows, K))
    A[result.rows, result.clusters] = result.fractions
    # zero-weight rows count for nothing in the masses, so their fractions are free
    w, groups, G = p.data["weights"], p.data["groups"], p.shares.size
    entry = groups[result.rows] * K + result.clusters
    entries_weight = np.asarray(w[result.rows] * result.fractions, dtype=float)
    M = np.asarray(np.bincount(entry, entries_weight, G * K), dtype=float).reshape(G, K)
    return {"assignment": A, "masses": M}


def _again(kind: type[PricedProof], problem: Any, y: Floats, z: Floats, **more: Any) -> PricedProof:
    """Return the proof of a pair of the rules, compiled where it is."""
    return kind(problem, compile_rules(problem), y, z, **more)


def _frozen(array: Floats) -> Floats:
    array = np.asarray(array)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class PricedProof(ABC):
    r"""Bound from the prices Λ of the masses: that of the rows and that of the rules.

    .. math::
        q(\Lambda) = q_{\text{rows}}(\Lambda)
                     + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    The second part is the Lagrangian value of the rules' multipliers z, whose derivative in
    M is Λ itself. The multipliers of the other terms follow from Λ.
    """

    problem: Any
    rules: CompiledRules
    y: Floats
    z: Floats
    own: Any = None
    source: str = "duality"

    def __reduce__(self) -> Any:
        return _again, (type(self), self.problem, self.y, self.z)

    @property
    def prices(self) -> Floats:
        """Λ (G x K)."""
        return self.rules.program.prices(self.y, self.z)

    @abstractmethod
    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""

    @abstractmethod
    def sign_multipliers(self) -> Floats:
        """Return the multipliers of the signs (n x K)."""

    @abstractmethod
    def bound(self, prices: Floats, rules: float) -> tuple[float, float]:
        """Return q, rounded down, from the value of the rules; and the size of its numbers."""

    def recovered(
        self, values: dict[str, Floats]
    ) -> tuple[dict[str, Floats], Mapping[str, Any], PricedProof]:
        """Return values and multipliers as they are handed back, and this proof of them."""
        prices = self.prices
        named = self.rules.compiled.by_name(self.y, self.z)[1]
        entries: dict[str, Any] = {
            "row sum": lambda: _frozen(self.row_multipliers()),
            "nonnegativity": lambda: _frozen(self.sign_multipliers()),
            "mass definition": _frozen(prices),
            **{name: _frozen(v) for name, v in named.items()},
        }
        multipliers = LazyValues(entries)
        object.__setattr__(self, "own", multipliers)
        return {k: _frozen(v) for k, v in values.items()}, multipliers, self

    def outcome(
        self, result: Any, values: dict[str, Floats], times: tuple[float, float, float]
    ) -> Outcome:
        """Return what the route hands back; ``times`` are those of begin, compiled and solved."""
        values, multipliers, _ = self.recovered(values)
        return Outcome(
            result.status, values, multipliers, self, stages(*times), tuple(result.history)
        )

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals with the multipliers given."""
        program, form = self.rules.program, self.rules.program.form
        prices = np.asarray(multipliers["mass definition"], dtype=float)
        rules = program.proved_bound(self.y, self.z, prices)
        bound, unit = self.bound(prices, rules.value)
        outside = max(
            (c.distance(self.z[c.start : c.stop], dual=True) for c in form.cones), default=0.0
        )
        dual = max(outside, program.stationarity(self.y, self.z)) / unit
        s = form.slack(self.y)
        jordan = max(
            (c.products(s[c.start : c.stop], self.z[c.start : c.stop])[0] for c in form.cones),
            default=0.0,
        )
        apart = float((np.abs(prices - self.prices) / (1.0 + np.abs(prices))).max(initial=0.0))
        return DualCheck(
            bound,
            dual,
            jordan / unit,
            max(apart, self._drift(multipliers)),
            unpaid=rules.unpaid,
            free=() if rules.unpaid is None else form.column_names(rules.unpaid.columns),
            rows=self.rules.violation(self.y, values.get("masses", self.y[program.masses])),
        )

    def _drift(self, multipliers: Mapping[str, Any]) -> float:
        """Return how far multipliers somebody handed in are from those that follow from Λ."""
        if multipliers is self.own:  # read-only, and derived from Λ when first read
            return 0.0
        derived: dict[str, Floats] = {
            "row sum": self.row_multipliers(),
            "nonnegativity": self.sign_multipliers(),
            **self.rules.compiled.by_name(self.y, self.z)[1],
        }
        return drift(multipliers, derived)


@dataclass(frozen=True, eq=False)
class MassProof(PricedProof):
    r"""Bound of an assignment, recomputed from the rows.

    .. math:: q_{\text{rows}}(\Lambda) = \sum_i w_i \min_k (D_{ik} + \Lambda_{g_i k})

    The multipliers of the row sums are :math:`-w_i \min_k`, those of the signs the reduced costs.
    """

    def _reduced(self, rows: slice, prices: Floats) -> Floats:
        groups = self.problem.data["groups"][rows]
        # clusters along the first axis, also of the prices: three times as fast
        charged = np.take(np.ascontiguousarray(prices.T), groups, axis=1)
        return np.asarray(self.problem.cost.columns(rows) + charged)

    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""
        n, w, prices = self.problem.cost.rows, self.problem.data["weights"], self.prices
        lows = [self._reduced(slice(i, i + CHUNK), prices).min(axis=0) for i in range(0, n, CHUNK)]
        return np.asarray(-w * np.concatenate(lows))

    def sign_multipliers(self) -> Floats:
        """Return the multipliers of the signs (n x K)."""
        w = self.problem.data["weights"]
        reduced = self._reduced(slice(None), self.prices)
        return np.ascontiguousarray((w * (reduced - reduced.min(axis=0))).T)

    def bound(self, prices: Floats, rules: float) -> tuple[float, float]:
        """Return q, rounded down, from the value of the rules; and the size of its numbers."""
        p = self.problem
        n, w = p.cost.rows, p.data["weights"]
        largest = np.abs(prices).max(axis=1, initial=0.0)
        bound, size = rules, 0.0
        for i in range(0, n, CHUNK):
            rows = slice(i, i + CHUNK)
            low = self._reduced(rows, prices).min(axis=0)
            charged = largest[p.data["groups"][rows]]
            worth = lowered(low, w[rows], p.cost.rounding, charged)
            bound, size = bound + worth[0], size + worth[1]
        unit = 1.0 + max(size, float(np.abs(prices).max(initial=0.0)))
        return bound - loss(n, size + abs(rules)), unit

    def line(self, ends: tuple[Any, Any], low: float, high: float) -> ValueLine | None:
        """Return the line under the optimal value between two values of a parameter of a rule."""
        own = self.rules
        first, last = (compile_rules(p).program.form for p in ends)
        if first.A.shape != own.program.form.A.shape:
            return None

        def bound(form: ConicForm, columns: Floats, rows: Floats) -> LowerBound:
            tilted = replace(own, program=replace(own.program, form=form))
            y, z = np.concatenate([self.y, columns]), np.concatenate([self.z, rows])
            check = replace(self, rules=tilted, y=y, z=z).check({}, self.own)
            return LowerBound(check.bound, check.unpaid)

        return value_line((first, last), low, high, self.z, bound)


# Rows that must be together: units of them take the place of rows. Links that keep rows apart have
# prices.


def _run_linked(p: FairAssignment, rules: CompiledRules, request: Request, begin: float) -> Outcome:
    linked = units_of(p)
    compiled_at = time.perf_counter()
    aim = POLYHEDRAL if rules.program.polyhedral else CURVED
    with round_progress(request.verbose, "mass-dual", "first prices", price_round) as report:
        result = solve_linked(
            linked,
            rules.program,
            p.cost,
            pairs_of(p, False),
            warm_prices(p, request),
            tolerance=min(aim, 0.4 * request.tolerance),
            deadline=request.deadline,
            report=report,
        )
    times = begin, compiled_at, time.perf_counter()
    masses = gathered_masses(result.fractions, p.data["groups"], p.data["weights"], p.shares.size)
    values = {"assignment": result.fractions, "masses": masses}
    return LinkedProof(p, rules, result.y, result.z, apart=result.links).outcome(
        result, values, times
    )


@dataclass(frozen=True, eq=False)
class LinkedProof(PricedProof):
    r"""Bound of an assignment of linked rows, recomputed from the rows.

    .. math::
        q_{\text{rows}}(\Lambda) = \sum_u \min_k \textstyle\sum_{i \in u}
            \big(w_i (D_{ik} + \Lambda_{g_i k}) + \sum_{p \ni i} v_{pk}\big) - \sum_{pk} v_{pk}

    over units u of rows that must be together, with prices v ≥ 0 of the pairs that are kept apart.
    Each row takes its share of the reduced costs of its unit, and the multipliers of the links
    within add up to the difference.
    """

    apart: Any = None

    def __reduce__(self) -> Any:
        return partial(_again, apart=self.apart), (type(self), self.problem, self.y, self.z)

    @cached_property
    def linked(self) -> LinkedRows:
        """The units, from the links of the problem."""
        return units_of(self.problem)

    def _kept_apart(self, together: bool = False) -> Any:
        """Return the matrices of links under one another: pairs that are kept apart, or together."""
        terms = [t.apart for t in self.problem.links.values() if t.together is together]
        return sp.csr_array(sp.vstack([sp.csr_array((0, self.problem.cost.rows)), *terms]))

    def _rows(self, prices: Floats) -> tuple[Floats, Floats]:
        """Return the weighted reduced costs of the rows (n x K), and the size of their parts."""
        p = self.problem
        D, paid = p.cost.matrix(), prices[p.data["groups"]]
        w = p.data["weights"][:, None]
        links = self._kept_apart().T @ self.apart
        return w * (D + paid) + links, w * (np.abs(D) + np.abs(paid)) + links

    def _spread(self) -> tuple[Floats, Floats]:
        """Return the reduced costs of the rows, and their shares of those of their units."""
        rows, _ = self._rows(self.prices)
        linked = self.linked
        return rows, linked.part[:, None] * (linked.merged @ rows)[linked.unit]

    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""
        return np.asarray(-self._spread()[1].min(axis=1))

    def sign_multipliers(self) -> Floats:
        """Return the multipliers of the signs (n x K)."""
        shared = self._spread()[1]
        return np.asarray(shared - shared.min(axis=1, keepdims=True))

    def link_multipliers(self) -> dict[str, Floats]:
        """Return the multipliers of the links, by name."""
        rows, shared = self._spread()
        within = self.linked.link_prices(self._kept_apart(True), shared - rows)
        named: dict[str, Floats] = {}
        for together, prices in ((True, within), (False, self.apart)):
            links = {k: t for k, t in self.problem.links.items() if t.together is together}
            ends = np.cumsum([len(t.pairs) for t in links.values()])[:-1]
            named |= dict(zip(links, np.split(prices, ends), strict=False))
        return named

    def recovered(
        self, values: dict[str, Floats]
    ) -> tuple[dict[str, Floats], Mapping[str, Any], PricedProof]:
        """Return values and multipliers as they are handed back, and this proof of them."""
        values, plain, _ = super().recovered(values)
        own = {k: (lambda k=k: plain[k]) for k in plain}
        links = {k: (lambda k=k: _frozen(self.link_multipliers()[k])) for k in self.problem.links}
        multipliers = LazyValues({**own, **links})
        object.__setattr__(self, "own", multipliers)
        return values, multipliers, self

    def bound(self, prices: Floats, rules: float) -> tuple[float, float]:
        """Return q, rounded down, from the value of the rules; and the size of its numbers."""
        p, linked = self.problem, self.linked
        rows, size = self._rows(prices)
        # a sum over the rows of a unit, or the links of a row, is off by their roundings at most
        links = int(np.bincount(pairs_of(p, False).ravel(), minlength=1).max())
        most = int(np.bincount(linked.unit).max()) + links
        off = (2.0 * p.cost.rounding + gamma(most + 8.0)) * (linked.merged @ size)
        low = (linked.merged @ rows - off).min(axis=1)
        paid = float(self.apart.sum())
        total = float(np.abs(low).sum()) + paid
        unit = 1.0 + max(total, float(np.abs(prices).max(initial=0.0)))
        terms = p.cost.rows + self.apart.size
        return rules + float(low.sum()) - paid - loss(terms, total + abs(rules)), unit

    def _drift(self, multipliers: Mapping[str, Any]) -> float:
        """Return how far multipliers somebody handed in are from those that follow from Λ."""
        if multipliers is self.own:
            return 0.0
        return max(super()._drift(multipliers), drift(multipliers, self.link_multipliers()))


# Rules on costs: what is barred has a penalty, and costs of groups have prices.


def _run_charged(
    p: FairAssignment, rules: CompiledRules, demands: Demands, request: Request, begin: float
) -> Outcome:
    compiled_at = time.perf_counter()
    rows = ChargedRows(
        rules.program,
        p.cost,
        p.data["groups"],
        p.data["weights"],
        p.objective_unit,
        demands,
        rules.feasible,
        warm_prices(p, request),
        tolerance=0.4 * request.tolerance,
        deadline=request.deadline,
        overdraft=HARD_OVERDRAFT,
        duals=p.data.get("duals"),
        links=linked_rows(p),
    )
    flow, *_ = rows.solved(p.cost)
    upper = np.full(p.shares.size, np.inf) if demands.upper is None else demands.upper
    barred = flow.spilled > SPILL
    if (barred or flow.missed > EXCESS * upper.min()) and flow.status == "optimal":
        raise unreachable_costs(p, barred=barred)
    solved_at = time.perf_counter()
    factors = factors_of(flow.duals, p.shares, demands.worst) if demands.by_group else np.ones(1)
    extra = {
        name: _frozen(
            flow.duals[1][np.isfinite(t.upper)]
            if t.upper is not None
            else p.data["weights"] * flow.penalty
        )
        for name, t in p.constraints.items()
        if isinstance(t, CostTerm)
    }
    budgets = float(flow.duals[1][np.isfinite(upper)] @ upper[np.isfinite(upper)])
    result = flow.result
    proof = _charged_proof(
        *(p, result.y, result.z, result.links), extra, budgets, factors, flow.penalty
    )
    values, own, _ = proof.inner.recovered(_values(p, flow))
    multipliers = LazyValues({**{k: (lambda k=k: own[k]) for k in own}, **extra})
    object.__setattr__(proof, "handed", multipliers)
    return Outcome(
        flow.status,
        values,
        multipliers,
        proof,
        stages(begin, compiled_at, solved_at),
        tuple(flow.result.history),
    )


def _charged_proof(
    p: FairAssignment,
    y: Floats,
    z: Floats,
    links: Floats | None,
    extra: Mapping[str, Floats],
    budgets: float,
    factors: Floats,
    penalty: float,
) -> ChargedProof:
    """Return the proof of prices at what rows are charged."""
    demands = p.demands
    by_row = factors[p.data["groups"]] if demands.by_group else None
    charge = replace(demands.charge, factors=by_row, penalty=penalty)
    stated = p.charged(replace(p.cost, charge=charge)), compile_rules(p), y, z
    inner = LinkedProof(*stated, apart=links) if p.links else MassProof(*stated)
    return ChargedProof(p, inner, extra, budgets, factors, penalty)


@dataclass(frozen=True, eq=False)
class ChargedProof:
    r"""Bound from prices of masses at charged costs, less what the prices of budgets pay.

    .. math:: q(\Lambda; (\theta_g + \nu_g) D / \pi_g + P\, 1_{\text{barred}}) - \nu^T u
    """

    problem: FairAssignment
    inner: PricedProof
    extra: Mapping[str, Floats]
    budgets: float
    factors: Floats
    penalty: float
    handed: Any = None
    source: str = "duality"

    def __reduce__(self) -> Any:
        inner = self.inner
        links = getattr(inner, "apart", None)
        rest = self.extra, self.budgets, self.factors, self.penalty
        return _charged_proof, (self.problem, inner.y, inner.z, links, *rest)

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals with the multipliers given."""
        own = self.inner.own
        if multipliers is not self.handed:
            own = {k: v for k, v in multipliers.items() if k not in self.extra}
        kernels = self.inner.check(values, own)
        bound = kernels.bound - self.budgets
        bound -= loss(self.problem.shares.size + 4, abs(kernels.bound) + self.budgets)
        apart = drift(multipliers, self.extra)
        return replace(kernels, bound=bound, consistency=max(kernels.consistency, apart))


# The route of the structure ``entropic-projection``.

# Distance from the rules that the search aims at, and its share of the tolerance: the gap is the
# distance times the prices.
AIM, SHARE = 1e-11, 1e-3


def run_entropic_mass(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Run Newton's method on the prices of masses, on responsibilities that obey rules."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    p: Any = problem
    groups, w = p.data["groups"], p.data["weights"]
    start, rules = warm_prices(p, request), compile_rules(p)
    compiled_at = time.perf_counter()
    about = "entropic projection", "first prices", price_round
    with round_progress(request.verbose, *about) as report:
        aim = min(AIM, SHARE * request.tolerance)
        more: Any = {"tolerance": aim, "deadline": request.deadline, "report": report}
        result = project(p.log_prob, groups, w, rules.program, prices=start, **more)
    times = begin, compiled_at, time.perf_counter()
    proof = EntropicProof(p, rules, result.y, result.z)
    R = group_softmax(p.log_prob, groups, proof.prices)
    values = {"responsibilities": R, "masses": gathered_masses(R, groups, w, p.shares.size)}
    return proof.outcome(result, values, times)


@dataclass(frozen=True, eq=False)
class EntropicProof(PricedProof):
    r"""Bound of a projection, recomputed from the rows.

    .. math::
        q_{\text{rows}}(\Lambda) = -\sum_i w_i \log\sum_k \psi_{ik} e^{-\Lambda_{g_i k}}

    The multipliers of the row sums are :math:`w_i (\log\sum_k \psi_{ik} e^{-\Lambda_{g_i k}} - 1)`,
    those of the signs 0: every responsibility is positive.
    """

    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""
        p = self.problem
        sums = group_log_sums(p.log_prob, p.data["groups"], self.prices)
        return np.asarray(p.data["weights"] * (sums - 1.0))

    def sign_multipliers(self) -> Floats:
        """Return the multipliers of the signs (n x K)."""
        return np.zeros(self.problem.log_prob.shape)

    def bound(self, prices: Floats, rules: float) -> tuple[float, float]:
        """Return q, rounded down, from the value of the rules; and the size of its numbers."""
        data, log_prob = self.problem.data, self.problem.log_prob
        mass = mass_pass(log_prob, data["groups"], data["weights"], prices, curvature=False)
        largest = float(np.abs(prices).max(initial=0.0))
        sized = 1.0 + abs(mass.value) + largest
        sized += float(np.abs(log_prob[np.isfinite(log_prob)]).max(initial=0.0))
        bound = rules - mass.value - loss(sum(log_prob.shape), sized)
        return bound, 1.0 + max(abs(mass.value), largest)
