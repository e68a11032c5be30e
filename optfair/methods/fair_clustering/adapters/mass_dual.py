"""Route of the structure ``mass-assignment``: the mass-dual algorithm, with its certificate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from optfair.backends.request import Outcome, Request
from optfair.backends.terminal import round_progress
from optfair.compile.value_line import ValueLine, value_line
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.core.problem import Problem
from optfair.core.solution import LazyValues
from optfair.methods.fair_clustering.algorithms.price_search import (
    CURVED,
    POLYHEDRAL,
    MassResult,
    solve_mass_dual,
)
from optfair.methods.fair_clustering.assignment import FairAssignment
from optfair.proofs.bounds import LowerBound
from optfair.proofs.rounding import gamma, loss
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile

from optfair.methods.fair_clustering.mass_rules import CompiledRules, compile_rules, warm_prices

__all__ = ["MassProof", "PricedProof", "run"]

Floats = NDArray[np.float64]

CHUNK = 65_536


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Run the mass-dual algorithm on a problem that has the structure."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    p = cast(FairAssignment, problem)
    rules = compile_rules(p)
    compiled_at = time.perf_counter()
    aim = POLYHEDRAL if rules.program.polyhedral else CURVED
    with round_progress(request.verbose, "mass-dual") as report:
        result = solve_mass_dual(
            rules.program,
            p.cost,
            p.data["groups"],
            p.data["weights"],
            feasible=rules.feasible,
            prices=warm_prices(p, request),
            tolerance=min(aim, 0.4 * request.tolerance),
            deadline=request.deadline,
            report=report,
        )
    solved_at = time.perf_counter()
    proof = MassProof(p, rules, result.y, result.z)
    return proof.outcome(result, _values(p, result), (begin, compiled_at, solved_at))


def _values(p: FairAssignment, result: MassResult) -> dict[str, Floats]:
    K = p.cost.clusters
    A = np.zeros((p.cost.rows, K))
    A[result.rows, result.clusters] = result.fractions
    # zero-weight rows count for nothing in the masses, so their fractions are free
    w, groups, G = p.data["weights"], p.data["groups"], p.shares.size
    entry = groups[result.rows] * K + result.clusters
    entries_weight = np.asarray(w[result.rows] * result.fractions, dtype=float)
    M = np.asarray(np.bincount(entry, entries_weight, G * K), dtype=float).reshape(G, K)
    return {"assignment": A, "masses": M}


def _again(kind: type[PricedProof], problem: Any, y: Floats, z: Floats) -> PricedProof:
    """Return the proof of a pair of the rules, compiled where it is."""
    return kind(problem, compile_rules(problem), y, z)


def _frozen(array: Floats) -> Floats:
    array = np.asarray(array)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class PricedProof:
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

    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""
        raise NotImplementedError

    def sign_multipliers(self) -> Floats:
        """Return the multipliers of the signs (n x K)."""
        raise NotImplementedError

    def bound(self, prices: Floats, rules: float) -> tuple[float, float]:
        """Return q, rounded down, from the value of the rules; and the size of its numbers."""
        raise NotImplementedError

    def outcome(
        self, result: Any, values: dict[str, Floats], times: tuple[float, float, float]
    ) -> Outcome:
        """Return what the route hands back; ``times`` are those of begin, compiled and solved."""
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
        begin, compiled_at, solved_at = times
        return Outcome(
            result.status,
            {k: _frozen(v) for k, v in values.items()},
            multipliers,
            self,
            {
                "compile": compiled_at - begin,
                "solve": solved_at - compiled_at,
                "recover": time.perf_counter() - solved_at,
            },
            tuple(result.history),
        )

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals with the multipliers given."""
        program = self.rules.program
        form = program.form
        prices = np.asarray(multipliers["mass definition"], dtype=float)
        rules = program.proved_bound(self.y, self.z, prices)
        bound, unit = self.bound(prices, rules.value)
        outside = max(
            (c.distance(self.z[c.start : c.stop], dual=True) for c in form.cones), default=0.0
        )
        dual = max(outside, program.stationarity(self.y, self.z)) / unit
        s = form.slack(self.y)
        jordan = max(
            (c.complementarity(s[c.start : c.stop], self.z[c.start : c.stop]) for c in form.cones),
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
        return np.asarray(self.problem.cost.columns(rows) + prices[groups].T)

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
        bound, size = rules, 0.0
        off = float(gamma(p.cost.points.shape[1] + 8.0))
        for i in range(0, n, CHUNK):
            rows = slice(i, i + CHUNK)
            reduced = self._reduced(rows, prices)
            # a distance has a rounding a column: lowered by that, whichever is the least
            reduced -= off * (np.abs(reduced) + 2.0 * np.abs(prices[p.data["groups"][rows]].T))
            low = reduced.min(axis=0)
            bound += float(w[rows] @ low)
            size += float(w[rows] @ np.abs(low))
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
            found = replace(self, rules=tilted, y=y, z=z).check({}, self.own)
            return LowerBound(found.bound, found.unpaid)

        return value_line((first, last), low, high, self.z, bound)
