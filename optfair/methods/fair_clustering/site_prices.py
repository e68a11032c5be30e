"""Fair facility location without its integer program: prices of rows and masses, and sites they suggest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.registry import conic_interface
from optfair.compile.conic_proof import same_rows
from optfair.compile.form import compile_problem
from optfair.core.certificate import Certificate, Verdict
from optfair.core.problem import Problem
from optfair.errors import Infeasible, SolverFailure, UnsupportedProblem
from optfair.methods.fair_clustering.algorithms.site_tree import (
    SHARE,
    SiteNode,
    SiteTree,
    bound_of_cases,
    covering_sites,
)
from optfair.methods.fair_clustering.facility_location import LEVELS, FairFacilityLocation
from optfair.methods.fair_clustering.location_bound import ROUNDING, Lagrangian, SitePrices
from optfair.methods.fair_clustering.mass_rules import compile_rules, on_masses, rule_variables
from optfair.methods.fair_clustering.metrics import gathered_masses
from optfair.numbers import Floats, Indices, check_positive, checked, one_of
from optfair.transforms.relaxation import relaxed

# Steps of the prices; those without a better bound after which steps are halved; the first step
# and the smallest; part of the last direction that is kept.
STEPS, PATIENCE, FIRST, LEAST, KEPT = 1_000, 12, 1.2, 1e-3, 0.3
# Steps between two sets of sites that are tried.
TRIED_EACH = 20
# Sites that neighbours are made of, in numbers of open ones; what opening a step ago counts.
FEW, FADE = 3, 0.99
# Rows times sites up to which sites are branched on.
CELLS = 20_000
# Part of the time that sites which cover all rows may be sought for.
COVERING = 0.25


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
    cases : SiteSplit, SitePrices or None
        Cases of open and closed sites, each with prices that prove the bound of it; None where
        ``row_prices`` and ``mass_prices`` prove that of all.
    steps : int
        Steps of the prices.
    status : {"optimal", "stalled", "time_limit", "interrupted"}
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
    cases: SiteNode | None = field(default=None, repr=False)

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
        elif not (bound := self._proved()) >= self.bound:
            reasons.append(f"the prices prove {bound:.10g}, not {self.bound:.10g}")
        return Verdict(not reasons, tuple(reasons))

    def _proved(self) -> float:
        """Return what the prices prove, of every case or of all choices."""
        lagrangian = Lagrangian(self.problem)
        if self.cases is None:
            return lagrangian.proved(self.row_prices, self.mass_prices)
        return bound_of_cases(lagrangian, self.cases)

    def _excludes(self, radii: Floats) -> bool:
        """Whether all radii below the bound are excluded by what is kept."""
        at = int(np.searchsorted(radii, self.bound))
        if at == 0:
            return True
        narrow = self.problem.beyond(radii[at - 1])
        if self.conflict is None:
            return Lagrangian(narrow).proved(self.row_prices, self.mass_prices) > 0.0
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
        L(u, \Lambda) = \sum_i w_i u_i + \min_{y, M} \Big\{\sum_j y_j \Big(f_j -
        \sum_i w_i (u_i - D_{ij} - \Lambda_{g_i j})_+\Big)
        + h(M) - \langle \Lambda, M \rangle : \text{rules},\; M_{gj} \le \pi_g y_j\Big\}

    bounds every choice of sites from below, for any prices, with capacities among the rules and
    penalties of softened ones in h; its maximum is the bound of the linear relaxation. Steps along subgradients raise it; the
    sites that it opens on the way are tried by exact assignments (mass-dual), and the best is kept.
    A pass costs n·m, and nothing of that size is handed to a solver.

    What is left is branched on: a site is open or closed. Prices of a case are the multipliers of a
    linear program, which gets :math:`A_{ij} \le y_j` where they are exceeded; they close, too, all sites
    that would cost too much. This ends at the gap that is asked for, where the rows times the sites
    that prices leave open are at most 20,000; beyond, neighbours of the best sites are tried, and the
    gap is what it is. Time that is over, or Ctrl-C, ends it with the best sites and a proved bound.

    A bottleneck is one of the costs: its bracket is halved. At a radius r the problem of the least
    weight that must go farther (``problem.beyond(r)``) is located by the same prices until a bound
    above 0 excludes r or sites within r are found; what prices leave open an integer program
    decides, with a tree of infeasible cases as proof.

    Parameters
    ----------
    problem : FairFacilityLocation
        With ``goal="median"``, or "bottleneck" without opening costs and penalties; fractions of rows
        allowed, linear rules on masses, hard or softened.
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
        Another goal, whole rows, rules that are not linear rules on masses.
    SolverFailure
        The rules hold for no set of sites that was tried.

    Examples
    --------
    >>> import optfair as of
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> p = of.fair_clustering.FairFacilityLocation(
    ...     X[:200], groups=sex[:200], sites=X[:20], n_centers=4, fairness=of.max_gap(0.1)
    ... )
    >>> found = of.fair_clustering.located_sites(p, gap=1e-6)
    >>> found.gap <= 1e-6, bool(found.verify())
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
    return _SiteSearch(problem, gap, time_limit, decide).run()


class _SiteSearch:
    """Prices are raised, sites that they open are tried, and what they leave open is branched on."""

    def __init__(
        self, problem: FairFacilityLocation, gap: float, time_limit: float, decide: bool
    ) -> None:
        self.problem, self.gap, self.decide = problem, gap, decide
        self.begin = time.perf_counter()
        self.deadline = self.begin + time_limit
        self.lagrangian = Lagrangian(problem)
        self.best: tuple[float, Indices, Floats] | None = None
        self.tried: dict[tuple[int, ...], SitePrices | None] = {}
        n, m, G = self.lagrangian.n, self.lagrangian.m, self.lagrangian.shares.size
        self.u, self.lam, self.often = np.zeros(n), np.zeros((G, m)), np.zeros(m)
        self.proved, self.status, self.steps = -np.inf, "stalled", 0
        self.cases: SiteNode | None = None

    def run(self) -> LocatedSites:
        """Search until the gap is reached or nothing helps; Ctrl-C ends it with the best sites."""
        try:
            self._climb()
            self.proved = self.lagrangian.proved(self.u, self.lam)
            if self.best is None and self.lagrangian.most >= self.lagrangian.m:
                self.attempt(np.arange(self.lagrangian.m))  # all hold what any of them hold
            if self.status == "stalled" and not self.decide:
                self._branch()
            if self.status == "stalled":
                self._exchange()
        except KeyboardInterrupt:
            if self.best is None:
                raise
            self.status = "interrupted"
            if self.proved == -np.inf:
                self.proved = self.lagrangian.proved(self.u, self.lam)
        return self._located()

    @property
    def objective(self) -> float:
        """Cost of the best sites."""
        return np.inf if self.best is None else self.best[0]

    @property
    def late(self) -> bool:
        """Whether time is over."""
        return time.perf_counter() > self.deadline

    def attempt(self, sites: Indices) -> SitePrices | None:
        """Try a set of sites; return its prices."""
        key = tuple(np.sort(sites).tolist())
        if key in self.tried or not key:
            return self.tried.get(key)
        priced = self.lagrangian.assigned(np.array(key))
        self.tried[key] = None if priced is None else priced[2]
        if priced is not None and priced[0] < self.objective:
            self.best = priced[0], np.array(key), priced[1]
        return self.tried[key]

    def _climb(self) -> None:
        """Raise the bound along subgradients."""
        own, gap = self.lagrangian, self.gap
        opening = self.attempt(own.spread_out())
        lam = self.lam if opening is None else opening.masses
        u = (own.D + lam[own.groups]).min(axis=1)
        self.u, self.lam, bound = u, lam, -np.inf
        theta, quiet, kept = FIRST, 0, 0.0
        rows_way, masses_way = np.zeros(own.n), np.zeros(lam.shape)
        for step in range(1, STEPS + 1):
            self.steps = step
            value, y, share, masses = own.step(u, lam)
            self.often = self.often * FADE + y
            quiet = 0 if value > bound + 1e-9 * abs(bound) else quiet + 1
            if value > bound:
                bound, self.u, self.lam = value, u, lam
            if step % TRIED_EACH == 1 or (quiet == 0 and step > 4 * TRIED_EACH and step % 5 == 0):
                self.attempt(own.likely(y))
            known = self.best is not None
            objective = self.objective if known else abs(bound) * 1.1 + own.typical
            if known and objective - bound <= SHARE * gap * abs(objective):
                self.status = "optimal"
                return
            if self.decide and (bound > ROUNDING or objective <= ROUNDING):
                self.status = "decided"
                return
            if self.late:
                self.status = "time_limit"
                return
            if quiet >= PATIENCE:
                theta, quiet, kept = 0.5 * theta, 0, 0.0
                u, lam = self.u, self.lam
                if theta < LEAST:
                    return
            rows_way, masses_way = 1.0 - share + kept * rows_way, masses + kept * masses_way
            kept = KEPT
            scale = own.shares[:, None] / own.most
            size = float(own.w @ np.square(rows_way)) + float((masses_way**2 / scale).sum())
            if not size > 0.0:
                return
            length = theta * max(objective - value, 1e-9 * abs(objective)) / size
            u, lam = u + length * rows_way, lam + length * masses_way / scale

    def _branch(self) -> None:
        """Close the gap by cases of open and closed sites, where they are few enough."""
        own = self.lagrangian
        prices, left = own.completed(self.u, self.lam), self.deadline
        tree = SiteTree(own, prices, lambda: self.objective, self.attempt, self.gap, left)
        cases = tree.run(CELLS)
        self.status = tree.status
        if cases is not None and (bound := bound_of_cases(own, cases)) > self.proved:
            self.cases, self.proved = cases, bound
        if self.status == "interrupted" and self.best is None:
            raise KeyboardInterrupt

    def _exchange(self) -> None:
        """Try neighbours: an open site for one of those that prices opened most often, or for none."""
        own, m = self.lagrangian, self.lagrangian.m
        far = np.argsort(-self.often, kind="stable")[: FEW * own.most]
        if own.opening.any():
            far = np.append(far, m)
        while self.best is not None:
            now, spare = self.best, ROUNDING if self.decide else 0.0
            for j, i in product(far[~np.isin(far, now[1])], now[1]):
                if self.late or self.best[0] - self.proved <= self.gap * abs(self.best[0]) + spare:
                    return
                rest = now[1][now[1] != i]
                self.attempt(rest if j == m else np.append(rest, j))
                if self.best[0] < now[0]:
                    break
            if not self.best[0] < now[0]:
                return

    def _located(self) -> LocatedSites:
        m = self.lagrangian.m
        if self.best is None and self.decide:
            self.best = np.inf, np.zeros(0, dtype=np.intp), np.zeros((self.lagrangian.n, m))
        if self.best is None:
            raise SolverFailure(
                "no sites were found whose assignment obeys the rules",
                f"{len(self.tried)} sets of sites were tried;"
                f" no choice costs less than {self.proved:.6g}",
                "allow more sites or looser rules, or solve the problem by a general solver",
            )
        value, sites, A = self.best
        room = float(max(0.0, value - self.proved) / (abs(value) or 1.0)) if sites.size else np.inf
        if self.status in ("stalled", "optimal"):
            self.status = "optimal" if room <= self.gap else "stalled"
        return LocatedSites(
            self.problem,
            sites,
            A,
            value,
            self.proved,
            room,
            self.u,
            self.lam,
            self.steps,
            self.status,
            time.perf_counter() - self.begin,
            cases=self.cases,
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
        covered = Lagrangian(narrow).assigned(sites)
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
    priced = Lagrangian(narrow).assigned(sites)
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
    values["open"] = (values["masses"].sum(axis=0) > 0.0).astype(float)
    rules = [t for t in narrow.constraints.values() if on_masses(t, rule_variables(narrow))]
    return A if all(t.relative_violation(values) <= ROUNDING for t in rules) else None


def _refuse_others(p: FairFacilityLocation) -> None:
    own = {"row sum", "nonnegativity", "mass definition", "open sites", "at most open"}
    own |= {"number of centers", "cost", "opening", "radius", *LEVELS}
    names = rule_variables(p)
    terms = {**p.constraints, **p.objective}
    strange = [k for k, t in terms.items() if k not in own and not on_masses(t, names)]
    reason = ""
    if p.data["goal"] == "center":
        reason = "its goal is the largest cost of a row"
    elif p.data["goal"] == "bottleneck" and len(p.objective) > 1:
        reason = f"a bottleneck is the largest cost alone here, without {[*p.objective][1]!r}"
    elif p.data["whole"] or "assignment" in p.integers:
        reason = "rows go to one site as a whole"
    elif strange:
        reason = f"{strange[0]!r} is no rule on masses"
    elif not (rules := compile_rules(p)).program.polyhedral:
        reason = "its rules are not linear"
    elif rules.room[rules.program.form.equal].nnz:
        reason = "a rule says what masses are where a site is open, and not what they are at most"
    if reason:
        raise UnsupportedProblem(
            "these sites are not located by prices",
            reason,
            "solve the problem: a general solver takes it",
        )
