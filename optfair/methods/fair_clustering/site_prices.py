"""Fair facility location without its integer program: prices of rows and masses, and sites they suggest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import row_scale, solve_linear_program
from optfair.backends.registry import conic_interface
from optfair.compile.conic_proof import same_rows
from optfair.compile.form import compile_problem
from optfair.core.certificate import Certificate, Verdict
from optfair.core.problem import Problem
from optfair.errors import Infeasible, SolverFailure, UnsupportedProblem
from optfair.methods.fair_clustering.algorithms.costs import Charge, SeparableCost
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import solve_mass_dual
from optfair.methods.fair_clustering.algorithms.set_search import covering_sites
from optfair.methods.fair_clustering.facility_location import LEVELS, FairFacilityLocation
from optfair.methods.fair_clustering.mass_rules import compile_rules
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.numbers import Floats, Indices, check_positive, checked, one_of
from optfair.proofs.rounding import gamma
from optfair.transforms.relaxation import relaxed

# Steps of the prices; those without a better bound after which steps are halved; the first step
# and the smallest; part of the last direction that is kept.
STEPS, PATIENCE, FIRST, LEAST, KEPT = 1_000, 12, 1.2, 1e-3, 0.3
# Steps between two sets of sites that are tried; price of a closed site, in the largest cost.
TRIED_EACH, CLOSED = 20, 8.0
# Sites that neighbours are made of, in numbers of open ones; what opening a step ago counts.
FEW, FADE = 3, 0.99
# Part of the time that sites which cover all rows may be sought for.
COVERING = 0.25
# Relative violation of a rule that is rounding.
ROUNDING = 1e-8


@dataclass(frozen=True, eq=False)
class LocatedSites:
    """Sites, an assignment to them, and a proved bound for all choices.

    Attributes
    ----------
    problem : FairFacilityLocation
    sites : array of int
        Sites that are open.
    assignment : array (n, m)
        Fractions; 0 at sites that are closed.
    objective, bound, gap : float
        Cost with opening costs; no choice costs less; relative difference.
    row_prices, mass_prices : arrays (n,), (G, m)
        Prices u and Λ that prove the bound; of a bottleneck, that some weight must go farther than
        the last cost below the bound.
    conflict : Certificate or None
        What proves that instead, where prices do not: a tree of cases, each without a choice.
    steps : int
        Steps of the prices.
    status : {"optimal", "stalled", "time_limit"}
    seconds : float
    """

    problem: FairFacilityLocation = field(repr=False)
    sites: Indices
    assignment: Floats = field(repr=False)
    objective: float
    bound: float
    gap: float
    row_prices: Floats = field(repr=False)
    mass_prices: Floats = field(repr=False)
    steps: int
    status: str
    seconds: float
    conflict: Certificate | None = None

    def verify(self) -> Verdict:
        """Recompute the cost and the rules from the assignment, and the bound from the prices."""
        p, reasons = self.problem, []
        values: dict[str, Any] = {
            "assignment": self.assignment,
            "masses": gathered_masses(
                self.assignment, p.data["groups"], p.data["weights"], p.shares.size
            ),
            "open": np.isin(np.arange(self.assignment.shape[1]), self.sites).astype(float),
        }
        radii = p.radii() if p.data["goal"] == "bottleneck" else np.zeros(1)
        if "levels" in p.variables:
            levels = np.zeros(p["levels"].size)
            levels[: radii.size - 1] = radii[1:] <= self.objective
            values["levels"] = levels
        for name, term in p.constraints.items():
            if not (off := term.relative_violation(values)) <= ROUNDING:
                reasons.append(f"{name!r} is violated by {off:.1e}")
        cost = p.objective_value(values)
        if not abs(cost - self.objective) <= 1e-9 * abs(cost):
            reasons.append(f"the assignment costs {cost:.10g}, not {self.objective:.10g}")
        if p.data["goal"] == "bottleneck":
            if self.bound not in radii or not self._excludes(radii):
                reasons.append(f"radii below {self.bound:.10g} are not excluded")
        elif not (bound := _Prices(p).proved(self.row_prices, self.mass_prices)) >= self.bound:
            reasons.append(f"the prices prove {bound:.10g}, not {self.bound:.10g}")
        return Verdict(not reasons, tuple(reasons))

    def _excludes(self, radii: Floats) -> bool:
        """Whether all radii below the bound are excluded by what is kept."""
        at = int(np.searchsorted(radii, self.bound))
        if at == 0:
            return True
        narrow = self.problem.beyond(radii[at - 1])
        if self.conflict is None:
            return _Prices(narrow).proved(self.row_prices, self.mass_prices) > 0.0
        conflict: Any = self.conflict
        if isinstance(conflict, NoCover):
            return bool(NoCover(narrow).verify())
        return _same(conflict.problem, _all_within(narrow)) and bool(conflict.verify())


@dataclass(frozen=True, eq=False, repr=False)
class NoCover(Certificate):
    """Every set of so many sites leaves a row beyond the radius, whatever the rules.

    Parameters
    ----------
    problem : FairFacilityLocation
        Of the weight beyond the radius.
    """

    problem: FairFacilityLocation

    @property
    def conflict(self) -> tuple[str, ...]:
        """Names of the constraints."""
        return "number of centers", "row sum"

    def verify(self) -> Verdict:
        """Go through all cases again."""
        sites, _ = covering_sites(_reach(self.problem), self.problem.data["n_centers"])
        return Verdict(
            sites is None, () if sites is None else ("these sites have every row in reach",)
        )

    def __str__(self) -> str:
        return f"no {self.problem.data['n_centers']} sites have every row within reach"

    __repr__ = __str__


def _reach(narrow: FairFacilityLocation) -> NDArray[np.bool_]:
    """Return which sites are within the radius of the rows that have weight."""
    held = narrow.data["weights"] > 0
    return np.asarray(narrow.data["cost"].matrix()[held] == 0.0)


@checked(problem=one_of(FairFacilityLocation), gap=check_positive, time_limit=check_positive)
def located_sites(
    problem: FairFacilityLocation, *, gap: float = 1e-3, time_limit: float = 60.0
) -> LocatedSites:
    r"""Choose sites by prices of rows and masses, with a proved bound, where the MILP is slow.

    .. math::
        L(u, \Lambda) = \sum_i w_i u_i + \min_y \sum_j y_j \Big(f_j -
        \sum_i w_i (u_i - D_{ij} - \Lambda_{g_i j})_+\Big)
        + \min_M \{h(M) - \langle \Lambda, M \rangle : \text{rules}\}

    bounds every choice of sites from below, for any prices; its maximum is the bound of the linear
    relaxation with :math:`A_{ij} \le y_j`. Steps along subgradients raise it; the sites that it
    opens on the way are tried by exact assignments (mass-dual), and the best is kept. A pass
    costs n·m, and nothing of that size is handed to a solver.

    A bottleneck is one of the costs: its bracket is halved. At a radius r the problem of the least
    weight that must go farther (``problem.beyond(r)``) is located by the same prices until a bound
    above 0 excludes r or sites within r are found; what prices leave open an integer program
    decides, with a tree of infeasible cases as proof.

    Parameters
    ----------
    problem : FairFacilityLocation
        With ``goal="median"``, or "bottleneck" without opening costs; without capacities, fractions
        of rows allowed, linear rules on masses.
    gap : float
        Relative gap at which it ends.
    time_limit : float
        Wall seconds.

    Returns
    -------
    LocatedSites

    Raises
    ------
    UnsupportedProblem
        Another goal, capacities, whole rows, rules that are not linear rules on masses.
    SolverFailure
        The rules hold for no set of sites that was tried.

    Examples
    --------
    >>> import optfair as of
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> p = of.fair_clustering.FairFacilityLocation(
    ...     X[:200], groups=sex[:200], sites=X[:20], n_centers=4, fairness=of.max_gap(0.1)
    ... )
    >>> found = of.fair_clustering.located_sites(p, gap=0.02)
    >>> found.gap <= 0.02, bool(found.verify())
    (True, True)

    References
    ----------
    Geoffrion: Lagrangean Relaxation for Integer Programming, Mathematical Programming Study 2
    (1974). Cornuejols, Fisher, Nemhauser: Location of Bank Accounts, Management Science 23 (1977).
    """
    _refuse_others(problem)
    if problem.data["goal"] == "bottleneck":
        return _bottleneck(problem, gap, time_limit)
    return _located(problem, gap, time_limit)


def _located(
    problem: FairFacilityLocation, gap: float, time_limit: float, *, decide: bool = False
) -> LocatedSites:
    """Locate by prices; to decide whether the optimum is 0, end when a bound says no."""
    begin = time.perf_counter()
    prices = _Prices(problem)
    m, G = prices.m, prices.shares.size
    best: tuple[float, Indices, Floats] | None = None
    tried: set[tuple[int, ...]] = set()

    def attempt(sites: Indices) -> Floats | None:
        """Try a set of sites; return its prices of masses."""
        nonlocal best
        key = tuple(np.sort(sites).tolist())
        if key in tried or not key:
            return None
        tried.add(key)
        priced = prices.assigned(np.array(key))
        if priced is not None and (best is None or priced[0] < best[0]):
            best = priced[0], np.array(key), priced[1]
        return None if priced is None else priced[2]

    opening = attempt(prices.spread_out())
    lam = np.zeros((G, m)) if opening is None else opening
    u = (prices.D + lam[prices.groups]).min(axis=1)
    high_u, high_lam, bound = u, lam, -np.inf
    often = np.zeros(m)
    theta, quiet, kept, status, steps = FIRST, 0, 0.0, "stalled", 0
    rows_way, masses_way = np.zeros(prices.n), np.zeros((G, m))
    for steps in range(1, STEPS + 1):
        value, y, share, masses = prices.step(u, lam)
        often = often * FADE + y
        if value > bound + 1e-9 * abs(bound):
            quiet = 0
        else:
            quiet += 1
        if value > bound:
            bound, high_u, high_lam = value, u, lam
        if steps % TRIED_EACH == 1 or (quiet == 0 and steps > 4 * TRIED_EACH and steps % 5 == 0):
            attempt(np.flatnonzero(y))
        objective = best[0] if best is not None else abs(bound) * 1.1 + prices.typical
        if best is not None and objective - bound <= 0.9 * gap * abs(objective):
            status = "optimal"
            break
        if decide and (bound > ROUNDING or objective <= ROUNDING):
            status = "decided"
            break
        if time.perf_counter() - begin > time_limit:
            status = "time_limit"
            break
        if quiet >= PATIENCE:
            theta, quiet, kept = 0.5 * theta, 0, 0.0
            u, lam = high_u, high_lam
            if theta < LEAST:
                break
        rows_way, masses_way = 1.0 - share + kept * rows_way, masses + kept * masses_way
        kept = KEPT
        scale = prices.shares[:, None] / prices.most
        size = float(prices.w @ np.square(rows_way)) + float((np.square(masses_way) / scale).sum())
        if not size > 0.0:
            break
        length = theta * max(objective - value, 1e-9 * abs(objective)) / size
        u, lam = u + length * rows_way, lam + length * masses_way / scale
    proved = prices.proved(high_u, high_lam)
    if best is None and prices.most >= m:  # all sites hold what any of them hold
        attempt(np.arange(m))
    # neighbours: an open site for one of those that the prices opened most often, or for none
    far = np.argsort(-often, kind="stable")[: FEW * prices.most]
    if prices.opening.any():
        far = np.append(far, m)
    improved = status == "stalled"
    while improved and best is not None:
        improved, now = False, best
        for j in far[~np.isin(far, now[1])]:
            for i in now[1]:
                room = best[0] - proved - gap * abs(best[0]) - (ROUNDING if decide else 0.0)
                if room <= 0.0 or time.perf_counter() - begin > time_limit:
                    break
                rest = now[1][now[1] != i]
                attempt(rest if j == m else np.append(rest, j))
                improved = best[0] < now[0]
                if improved:
                    break
            if improved:
                break
    if best is None and decide:
        best = np.inf, np.zeros(0, dtype=np.intp), np.zeros(prices.D.shape)
    if best is None:
        raise SolverFailure(
            "no sites were found whose assignment obeys the rules",
            f"{len(tried)} sets of sites were tried; no choice costs less than {proved:.6g}",
            "allow more sites or looser rules, or solve the problem by a general solver",
        )
    value, sites, A = best
    room = max(0.0, value - proved) / (abs(value) or 1.0) if sites.size else np.inf
    if status == "stalled" and room <= gap:
        status = "optimal"
    seconds = time.perf_counter() - begin
    return LocatedSites(
        problem, sites, A, value, proved, room, high_u, high_lam, steps, status, seconds
    )


def _bottleneck(p: FairFacilityLocation, gap: float, time_limit: float) -> LocatedSites:
    """Halve the bracket of the radius: below it no choice is left, at its upper end there is one."""
    begin = time.perf_counter()
    radii, D = p.radii(), p.data["cost"].matrix()
    held = p.data["weights"] > 0
    low, high, at, status, steps = -1, radii.size, radii.size - 1, "optimal", 0
    # radii that prices leave open, in between: first they close in from both sides
    open_low, open_high = radii.size, -1
    proof: tuple[Floats, Floats, Certificate | None] = (
        np.zeros(D.shape[0]),
        np.zeros((p.shares.size, D.shape[1])),
        None,
    )
    best: tuple[Indices, Floats] | None = None
    while high - low > 1:
        left = time_limit - (time.perf_counter() - begin)
        if best is not None and radii[high] - radii[low + 1] <= gap * abs(radii[high]):
            break
        below, above = min(open_low, high) - low, high - max(open_high, low)
        narrowed = open_low <= open_high and below <= 1 and above <= 1
        tried, A, conflict = _within(p.beyond(radii[at]), left, decide=narrowed)
        steps += 0 if tried is None else tried.steps
        if A is not None:
            best = np.flatnonzero(A[held].any(axis=0)), A
            high = int(np.searchsorted(radii, D[held][A[held] > 0].max()))
        elif tried is None:
            low, proof = at, (*proof[:2], conflict)
        elif conflict is not None or tried.bound > 0.0:
            low, proof = at, (tried.row_prices, tried.mass_prices, conflict)
        elif narrowed or left <= 0.0:
            status = "time_limit"
            break
        else:
            open_low, open_high = min(open_low, at), max(open_high, at)
        if open_low > open_high or (open_low - low <= 1 and high - open_high <= 1):
            at = (low + high) // 2
        elif open_low - low >= high - open_high:
            at = (low + open_low) // 2
        else:
            at = (open_high + high) // 2
    if best is None:
        raise SolverFailure(
            "no sites were found whose assignment obeys the rules",
            f"of all radii up to {radii[-1]:.6g}",
            "allow more sites or looser rules, or solve the problem by a general solver",
        )
    value, bound = float(radii[high]), float(radii[low + 1])
    room = (value - bound) / (abs(value) or 1.0)
    seconds = time.perf_counter() - begin
    u, lam, conflict = proof
    return LocatedSites(
        p, best[0], best[1], value, bound, room, u, lam, steps, status, seconds, conflict
    )


def _within(
    narrow: FairFacilityLocation, time_limit: float, *, decide: bool
) -> tuple[LocatedSites | None, Floats | None, Certificate | None]:
    """Say whether all rows find sites within a radius: by sites that cover them, by prices, else, to decide, by a tree of cases."""
    begin = time.perf_counter()
    reach = _reach(narrow)
    sites, decided = covering_sites(reach, narrow.data["n_centers"], begin + COVERING * time_limit)
    if decided and sites is None:
        return None, None, NoCover(narrow)
    if sites is not None:
        covered = _Prices(narrow).assigned(sites)
        A = None if covered is None else _inside(narrow, covered[1])
        if A is not None:
            return None, A, None
    left = time_limit - (time.perf_counter() - begin)
    tried = _located(narrow, 1.0, max(left, 1e-3), decide=True)
    A = _inside(narrow, tried.assignment) if tried.objective <= ROUNDING else None
    left = time_limit - (time.perf_counter() - begin)
    if A is not None or tried.bound > 0.0 or left <= 0.0 or not decide:
        return tried, A, None
    try:
        sites = narrow.opened(_all_within(narrow).solve(time_limit=left))
    except Infeasible as e:
        return tried, None, e.certificate
    except SolverFailure:
        return tried, None, None
    priced = _Prices(narrow).assigned(sites)
    return tried, None if priced is None else _inside(narrow, priced[1]), None


def _all_within(narrow: FairFacilityLocation) -> Problem:
    """Return the problem in which no row goes farther."""
    barred = np.nonzero(narrow.data["cost"].matrix())
    return narrow.with_constraints(within=narrow["assignment"][barred] == 0)


def _same(one: Problem, other: Problem) -> bool:
    """Whether two problems have the same integers and compile to the same rows, whatever they minimise."""
    if one.integers != other.integers or one.constraints.keys() != other.constraints.keys():
        return False
    a, b = (compile_problem(relaxed(p), conic_interface()).form for p in (one, other))
    return same_rows(replace(a, P=b.P, q=b.q), b) and np.array_equal(a.b, b.b)


def _inside(narrow: FairFacilityLocation, A: Floats) -> Floats | None:
    """Return an assignment without what rounding left beyond the radius, where rules still hold."""
    A = np.where(narrow.data["cost"].matrix() > 0.0, 0.0, A)
    full = A.sum(axis=1, keepdims=True)
    weightless = narrow.data["weights"] == 0.0
    if not (full[~weightless] > 0.5).all():
        return None
    A[weightless & (full[:, 0] <= 0.5), int(np.argmax(A.sum(axis=0)))] = 1.0
    A /= A.sum(axis=1, keepdims=True)
    w, groups = narrow.data["weights"], narrow.data["groups"]
    values: dict[str, Any] = {"masses": gathered_masses(A, groups, w, narrow.shares.size)}
    rules = [t for t in narrow.constraints.values() if t.scope <= {"masses"}]
    return A if all(t.relative_violation(values) <= ROUNDING for t in rules) else None


def _refuse_others(p: FairFacilityLocation) -> None:
    own = {"row sum", "nonnegativity", "mass definition", "open sites", "at most open"}
    own |= {"number of centers", *LEVELS}
    strange = [
        k for k, t in p.constraints.items() if not t.scope <= {"masses"} and k not in own
    ] + [k for k in p.objective if k not in ("cost", "opening", "radius")]
    reason = ""
    if p.data["goal"] == "center":
        reason = "its goal is the largest cost of a row"
    elif p.data["goal"] == "bottleneck" and "opening" in p.objective:
        reason = "a bottleneck has no opening costs here"
    elif p.data["whole"] or "assignment" in p.integers:
        reason = "rows go to one site as a whole"
    elif strange:
        reason = f"{strange[0]!r} is no rule on masses"
    elif not compile_rules(p).program.polyhedral:
        reason = "its rules are not linear"
    if reason:
        raise UnsupportedProblem(
            "these sites are not located by prices",
            reason,
            "solve the problem: a general solver takes it",
        )


class _Prices:
    """The Lagrangian of a facility location, and assignments to given sites."""

    def __init__(self, p: FairFacilityLocation) -> None:
        rules = compile_rules(p)
        self.program: MassProgram = rules.program
        self.feasible = rules.feasible
        self.w, self.groups, self.shares = (p.data[k] for k in ("weights", "groups", "shares"))
        self.D = p.data["cost"].matrix()
        self.n, self.m = self.D.shape
        self.opening, self.most = p.data["opening_costs"], p.data["n_centers"]
        self.rounding = p.data["cost"].rounding
        self.typical = float(np.abs(self.D).mean()) or 1.0

    def spread_out(self) -> Indices:
        """Return sites chosen one after the other, each for the most it saves."""
        near = np.full(self.n, np.inf)
        chosen: list[int] = []
        for _ in range(self.most):
            saved = self.w @ np.minimum(self.D, near[:, None]) + self.opening
            j = int(np.argmin(saved))
            if chosen and saved[j] >= self.w @ near:
                break
            chosen.append(j)
            near = np.minimum(near, self.D[:, j])
        return np.array(chosen)

    def assigned(self, sites: Indices) -> tuple[float, Floats, Floats] | None:
        """Return cost, fractions and prices of masses of the best assignment, None without one."""
        closed = ~np.isin(np.arange(self.m), sites)
        penalty = CLOSED * sites.size * float(np.abs(self.D).max() or 1.0)
        barred = np.broadcast_to(closed, self.D.shape)
        result = solve_mass_dual(
            self.program,
            SeparableCost("precomputed", self.D, charge=Charge(barred=barred, penalty=penalty)),
            self.groups,
            self.w,
            feasible=self.feasible,
        )
        A = np.zeros(self.D.shape)
        A[result.rows, result.clusters] = result.fractions
        if float(self.w @ A[:, closed].sum(axis=1)) > 1e-9:
            return None
        A[:, closed] = 0.0
        A /= A.sum(axis=1, keepdims=True)
        masses = gathered_masses(A, self.groups, self.w, self.shares.size)
        y = result.y.copy()
        y[self.program.masses] = masses
        value = float(self.w @ (self.D * A).sum(axis=1)) + float(self.opening[sites].sum())
        prices = self.program.prices(result.y, result.z)
        prices[:, closed] = 0.0
        return value + self.program.form.objective(y), A, prices

    def step(self, u: Floats, lam: Floats) -> tuple[float, Any, Floats, Floats]:
        """Return the value, the open sites, how often rows are served and by how much masses differ."""
        saved, served = self._saved(u, lam)
        y = self._open(self.opening - saved)
        A = served[:, y]
        own = np.zeros((self.shares.size, self.m))
        own[:, y] = gathered_masses(A.astype(float), self.groups, self.w, self.shares.size)
        rest, masses, *_ = self._rest(lam)
        value = float(self.w @ u) + float((self.opening - saved)[y].sum()) + rest
        return value, y, A.sum(axis=1), own - masses

    def _saved(self, u: Floats, lam: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        excess = u[:, None] - self.D - lam[self.groups]
        return self.w @ np.maximum(excess, 0.0), excess > 0.0

    def _open(self, net: Floats) -> NDArray[np.bool_]:
        order = np.argsort(net, kind="stable")[: self.most]
        y = np.zeros(self.m, dtype=bool)
        y[order[net[order] < 0.0]] = True
        y[order[0]] = True  # some site is open in every choice
        return y

    @cached_property
    def _rows(self) -> tuple[Any, Floats, Floats, Floats]:
        form = self.program.form
        scale = row_scale(form.A)
        simplex, shares = self.program.simplex_rows, self.program.shares
        high = form.b * scale
        low = np.where(form.equal, high, -np.inf)
        rows = sp.vstack([form.A * scale[:, None], simplex], format="csc")
        return rows, np.concatenate([low, shares]), np.concatenate([high, shares]), scale

    def _rest(self, lam: Floats) -> tuple[float, Floats, Floats, Floats, Floats]:
        """Return min {h(M) - <Λ, M>}, its masses, all of y, and the multipliers of rules and shares."""
        form, at = self.program.form, self.program.masses
        cost = form.q.copy()
        cost[at] -= lam
        unit = float(np.abs(cost).max()) or 1.0
        rows, low, high, scale = self._rows
        lower = np.full(cost.size, -np.inf)
        lower[at] = 0.0
        answer = solve_linear_program(
            cost / unit, rows, low, high, lower, np.full(cost.size, np.inf), tolerance=1e-9
        )
        if answer.status != "optimal":
            raise SolverFailure("the rules' linear program failed", answer.status, "rescale costs")
        duals = answer.prices * unit
        z = -duals[: scale.size] * scale
        value = float(cost @ answer.x) + form.offset
        return value, answer.x[at], answer.x, z, duals[scale.size :]

    def proved(self, u: Floats, lam: Floats) -> float:
        """Return a bound at given prices that holds in exact arithmetic."""
        net = self.opening - self._saved(u, lam)[0]
        y = self._open(net)
        _, _, x, z, level = self._rest(lam)
        z = np.where(self.program.form.nonnegative, np.maximum(z, 0.0), z)
        rules = self.program.proved_bound(x, z, lam + level[:, None])
        if rules.unpaid is not None:
            return -np.inf
        sizes = np.abs(u)[:, None] + np.abs(self.D) + np.abs(lam)[self.groups]
        # a row that is not served may be so but for rounding
        each = self.w @ sizes + np.abs(self.opening)
        size = float(self.w @ np.abs(u)) + self.most * float(each.max())
        size += float(self.shares @ (np.abs(level) + np.abs(lam).max(axis=1))) + abs(rules.value)
        value = float(self.w @ u) + float(net[y].sum()) + float(level @ self.shares) + rules.value
        return float(value - (gamma(self.n + self.m + 32.0) + self.rounding) * size)
