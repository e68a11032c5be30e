"""Solvers asked in turn, each for more, until an answer holds what it says."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optfair.backends.boxes import excluded_by_boxes
from optfair.backends.branching import without_a_point
from optfair.backends.endless import beginnings, endless
from optfair.backends.exact import basic, contradicts, in_fractions
from optfair.backends.facial_reduction import ON_FACE, edged, excluded_by_faces, faced, on_its_face
from optfair.backends.integer_programs import EARLY, with_the_rest_solved
from optfair.backends.registry import adapter_of, outcome_of, profiles, reordered
from optfair.backends.request import Outcome, Request, Retry, SolverProfile
from optfair.backends.unattained import FAR_OUT, UNSURE, extends, nearing
from optfair.core.certificate import BEYOND, reported
from optfair.core.problem import Problem
from optfair.core.solution import Solution, Status
from optfair.errors import Infeasible, OptfairError, SizeLimited, SolverFailure, UnsupportedProblem
from optfair.numbers import Floats
from optfair.proofs.effort import in_haste, until
from optfair.solution.residuals import Residuals, measure

logger = logging.getLogger("optfair")

# Solvers asked after an answer that nothing proves yet: each may take so many times as long, and some
# seconds, as a process that one without a clock needs takes (LISWET10 of Maros and Meszaros, by piqp).
HOPE, WORTH, LEAST = 2, 5.0, 10.0
# Entries of linear programs whose basis is solved in fractions: for a proof, its seconds; for a point.
BASIS, BASIS_SECONDS, KEPT = 10_000, 10.0, 2_000
# Equations that may be solved for a bound before such a basis is looked for: more of them take longer.
BEFORE = 600
CASES, TREE_SECONDS = 1_000, 5.0  # of a tree that proves an integer problem infeasible
UNEVEN = 2_000  # rows times columns of equations of integers that are looked through before it
# Share of the time left that a solver may take with others to be asked after it, or asked for little.
PATIENCE, QUICK = 0.6, 0.25
# Part of its share after which a solver that stops for time was stopped by that.
CUT = 0.9
# Entries of quadratic programs whose first answer is proved by what takes little time, or not at
# once: another answer may be had for less. Cones of their rows.
SMALL, FLAT = 20_000, {"zero", "nonneg"}
PIVOTS = "pivots in fractions settled it"
CLOSE = 1e-5  # of its unit: an objective so near to 0 may have 0 for a limit, whatever is attained


class Search:
    """Solvers asked in turn, each for more where its result is rejected; the best is kept.

    Parameters
    ----------
    problem, request
        What is to be solved, and how.
    candidates : sequence of SolverProfile
        Whom to ask, in this order.
    begin : float
        ``time.perf_counter()`` when they were looked for.
    named : bool
        Whether somebody named the solver: then nothing but its own numbers counts.
    """

    def __init__(
        self,
        problem: Problem,
        request: Request,
        candidates: Sequence[SolverProfile],
        begin: float,
        *,
        named: bool,
    ) -> None:
        self.problem, self.request, self.candidates = problem, request, candidates
        self.provable = problem.problem_class.convex and not problem.integers
        self.begin, self.named, self.spent = begin, named, {"choose": time.perf_counter() - begin}
        self.attempts, self.refused = dict[str, None](), dict[str, OptfairError]()  # each once
        self.claims: list[SolverFailure] = []
        self.best: tuple[tuple[Any, ...], Solution] | None = None
        self.answer: Solution | None = None
        self.hope, self.asked, self.further, self.bent = HOPE, 0, False, False
        # seconds, and whether a share ended the last who was asked
        self.compiled, self.cut = 0.0, False
        self.near: Floats | None = None  # its answer in compiled columns
        self.again: tuple[Any, ...] | None = None  # what was looked at in haste, and what passed
        self.general = candidates[0].via != "structured"  # others multiply large matrices
        if self.general and not named and problem.problem_class.name == "LP":
            begin = time.perf_counter()
            self.candidates = reordered(problem, candidates)
            self.spent["compile"] = time.perf_counter() - begin
        # another route, as tangents on boxes: it may prove what cones prove within a radius
        self.elsewhere = any(c.via == "structured" for c in candidates[1:])

    def run(self) -> Solution:
        """Ask until there is an answer: proved, or after as many asks as a proof is worth."""
        stop = "time_limit"
        if self.general and self._edged and (none := excluded_by_faces(self.problem, plain=True)):
            raise none
        if self.general and self.problem.integers and (none := self._uneven):
            raise none
        try:
            for i, profile in enumerate(self.candidates):
                enough = self._ask_in_turn(profile, len(self.candidates) - i - 1)
                near = self._feasible if i == 0 and self.answer is None and self.provable else None
                if near is not None and (far := self._far_out(near, quick=True)) is not None:
                    self.answer = far
                    break
                if (self.general and self._restated(i == 0)) or enough:
                    break
        except KeyboardInterrupt:
            if self.answer is None and self.again is not None:
                self.answer = self.again[-1]  # it passed, and may yet have been proved
            if self.answer is None and self._feasible is None:
                raise
            stop = "interrupted"
            self.attempts["stopped by hand"] = None
        if self.answer is None and self.best is not None and stop != "interrupted":
            self._prove(self.best[1])
        if self._edged and stop != "interrupted" and (none := excluded_by_faces(self.problem)):
            raise none
        if self.answer is not None:
            near, stop = self._feasible, self.answer.status.termination
            if near is not None and stop in EARLY and near.grade.sound:  # of an earlier one
                word = near if contradicts(near, self.answer, 0.0) else self.answer
                self.answer = replace(word, status=replace(word.status, termination=stop))
            if not (self.further or self.attempts):
                return self.answer
            seconds = dict(self.answer.seconds)
            if self.further:
                seconds["further"] = time.perf_counter() - self.begin - sum(seconds.values())
            return replace(self.answer, attempts=tuple(self.attempts), seconds=seconds)
        return self._given_up(stop)

    def _ask_in_turn(self, profile: SolverProfile, left: int) -> bool:
        """Ask a solver, then for more; return whether nobody else need be asked."""
        enough = self._ask_for_more(profile, left)
        if self.again is not None and not (self.answer and self.answer.grade.word == "proved"):
            (profile, request), outcome, split, _ = self.again
            self._take(profile, self._judged(profile, request, outcome, split=split))
            enough = enough or self._enough()
        self.again = None
        return enough

    def _ask_for_more(self, profile: SolverProfile, left: int) -> bool:
        self.elsewhere = self.elsewhere and profile.via != "structured"
        for retry in [None, *_retries(profile, self.problem)]:
            first = retry is None
            request = self.request if retry is None else self.request.retried(retry, self.near)
            ready = self.compiled if first else 0.0  # somebody else compiles anew
            if self.asked and time.perf_counter() + ready > self.request.deadline:
                return True
            self.asked += 1
            if self.answer is not None:  # a proof is worth some times of what the answer took
                self.hope, self.further = self.hope - first, True
                most = max(LEAST, WORTH * sum(self.answer.seconds.values()))
                until = min(self.request.deadline, time.perf_counter() + most)
                request = replace(request, time_limit=max(1e-3, until - request.started))
            try:
                solution = self._ask(profile, request, left)
            except (UnsupportedProblem, SolverFailure, SizeLimited) as e:
                self.refused.setdefault(profile.name, e)
                self.attempts[f"{profile.name}: {e.cause}"] = None
                if isinstance(e, SolverFailure) and e.claim:
                    self.claims.append(e)
                    twice = [c.claim for c in self.claims].count(e.claim) > 1  # a third proves none
                    if twice and self.answer is None and self._feasible is None:
                        return True
                if first or self._enough():
                    return self._enough()  # no other options make it able to
                continue
            self._take(profile, solution)
            if self._enough() or self._radial or self.cut:  # more takes longer
                return self._enough()
        return False

    def _take(self, profile: SolverProfile, solution: Solution | None) -> None:
        """Take what passed verification for the answer, where it is better than the one there is."""
        if solution is not None and (self.answer is None or solution.grade.sound):
            self.answer = solution
            if solution.grade.word != "proved" and solution.status.termination == "optimal":
                self._prove(solution)
        elif solution is not None:
            self.attempts[f"{profile.name}: {solution.grade}, no better"] = None

    @property
    def _radial(self) -> bool:
        """Whether the answer holds within a radius and tangents on boxes are still to be asked."""
        return self.elsewhere and self.answer is not None and self.answer.grade.word == "within"

    def _prove(self, solution: Solution) -> None:
        """Hold an answer of a small linear program against a basis in fractions; by default take that."""
        form = getattr(getattr(solution.proof, "compiled", None), "form", None)
        left = min(BASIS_SECONDS, self.request.deadline - time.perf_counter())
        if not (self.named or solution.grade.sound or left <= 0.0):
            near = abs(solution.objective) <= CLOSE * self.problem.objective_unit
            far_off = extends(self.problem, solution.values, UNSURE)
            asked = (self.provable and (near or far_off)) or not solution.attained
            far = self._far_out(solution) if asked else None
            if far is not None or not solution.attained:
                self.answer = far or self.answer
                return
        asked = not self.named or (self.answer is not None and not solution.grade.sound)
        tolerance = self.request.tolerance
        wanted = asked and left > 0.0 and self.provable and _has_basis(form)
        if not wanted or (basis := basic(solution, left, tolerance)) is None:
            return
        if not (self.named or basis.residuals().above(tolerance)):
            self.attempts[f"{solution.solver}: a basis was solved in fractions"] = None
            self.answer = basis
        elif self.answer is solution and contradicts(basis, solution, tolerance):
            self.answer = None
            self._keep(solution, solution.residuals())
            other = f"{basis.objective:.8g} of a basis in fractions"
            self.attempts[f"{solution.solver}: {solution.objective:.8g}, not {other}"] = None

    @property
    def _edged(self) -> bool:
        late = time.perf_counter() >= self.request.deadline
        return not (late or self.named) and edged(self.problem, self.answer)

    def _enough(self) -> bool:
        return self.answer is not None and (self._final or self.hope == 0)

    @property
    def _final(self) -> bool:
        """Whether nothing better than the answer can be hoped for."""
        answer = self.answer
        if answer is None or not self.provable or answer.status.termination != "optimal":
            return answer is not None
        return self.bent or (answer.grade.sound and not self._radial)

    def _ask(self, profile: SolverProfile, request: Request, left: int) -> Solution | None:
        """Return what a solver solved; None for a result that is rejected."""
        tried = time.perf_counter()
        if self.asked > 1:
            before = sum(v for k, v in self.spent.items() if k != "attempts")
            self.spent["attempts"] = tried - self.begin - before
        # not of routes that know their problem best, and not where more time is a better point
        quick = "entries" in profile.fixed  # of a small share of work, and of the time
        split = left > 0 and profile.via != "structured" and (quick or not self.problem.integers)
        share = tried + (QUICK if quick else PATIENCE) * (self.request.deadline - tried)
        request = request.until(share) if split else request
        logger.info("%s is asked", profile.name)
        run = adapter_of(profile)
        self.spent["import"] = self.spent.get("import", 0.0) + time.perf_counter() - tried
        outcome = outcome_of(run, self.problem, profile, request)
        early = self.spent.pop("compile", 0.0)  # before anybody was asked
        if early:
            compiled = early + outcome.seconds.get("compile", 0.0)
            outcome = replace(outcome, seconds={**outcome.seconds, "compile": compiled})
        self.compiled = outcome.seconds.get("compile", 0.0)
        long = time.perf_counter() - tried > CUT * (share - tried)
        self.cut = split and long and outcome.termination == "time_limit"
        form: Any = getattr(getattr(outcome.proof, "compiled", None), "form", None)
        first = self.asked == 1 and self.provable
        based = first and not self.named and _has_basis(form)
        if not (based or (first and _retries(profile, self.problem) and _quadratic(form))):
            return self._judged(profile, request, outcome, split=split)
        with in_haste(BEFORE if based else 0) as haste:
            solution = self._judged(profile, request, outcome, split=split)
        proved = solution is not None and solution.grade.word == "proved"
        if not haste.left_out or (based and proved):
            return solution
        # a bound is what is proved at length; and a bent objective no other answer proves
        if self.bent or proved:
            return self._judged(profile, request, outcome, split=split)
        self.again = (profile, request), outcome, split, solution
        if solution is not None and not based:
            self.attempts[f"{profile.name}: {solution.grade}"] = None
        return solution if based else None

    def _judged(
        self, profile: SolverProfile, request: Request, outcome: Outcome, *, split: bool
    ) -> Solution | None:
        """Return what a solver left, verified; None for a result that is rejected."""
        asked = self.problem, profile, request
        solution, off, complaints = _verified(*asked, outcome, self.spent, self.attempts)
        self.near, self.bent = getattr(solution.proof, "x", None), off.bent(request.tolerance)
        holds = max(off.feasibility, off.rows) <= request.tolerance
        bare = complaints and holds and self.provable and outcome.termination not in EARLY
        if bare and (near := faced(outcome, request)) is not None:
            other = _verified(*asked, near, self.spent, self.attempts)
            solution, off, complaints = (solution, off, complaints) if other[2] else other
        if self.problem.integers:
            near = with_the_rest_solved(outcome, solution, self.request, KEPT, holds=holds)
            if near is not None:
                given = solution.objective
                solution, off, complaints = _verified(*asked, near, self.spent, self.attempts)
                if complaints and holds:  # its bound is not one
                    better = f"{solution.objective:.8g}, better than {given:.8g}"
                    complaints = (f"its integers leave a point of {better}", *complaints)
        # of others it may be better by what violations are worth at their multipliers
        known = None if complaints or solution.grade.sound or self.provable else self._feasible
        done = solution.status.termination == "optimal"
        if done and known is not None and contradicts(known, solution, request.tolerance):
            complaints = (f"a point of {known.objective:.8g} is known",)
            off = replace(off, gap=np.inf)
        if outcome.termination == "time_limit" and not done and split and not complaints:
            complaints = ("its share of the time was over",)
        if not complaints:
            return solution
        self._keep(solution, off)
        reason = f"{profile.name} ({outcome.termination}): {'; '.join(complaints)}"
        self.attempts[reason] = None
        logger.info("result rejected, %s", reason)
        if outcome.termination == "interrupted":
            raise KeyboardInterrupt(reason)
        return None

    def _keep(self, solution: Solution, off: Residuals) -> None:
        """Keep the best attempt: feasible, then with a bound that counts, then by its gap."""
        if not solution.values or not np.isfinite(solution.objective):
            return
        worst, gap = max(off.feasibility, off.rows), off.gap if np.isfinite(off.gap) else np.inf
        feasible = worst <= self.request.tolerance
        grade = off.grade(max(self.request.tolerance, 2.0 * gap))
        key = (not feasible, 0.0 if feasible else worst, not grade.sound, gap)
        if self.best is None or key < self.best[0]:
            self.best = (key, solution)

    @property
    def _feasible(self) -> Solution | None:
        """The best attempt, when it is feasible."""
        return self.best[1] if self.best is not None and not self.best[0][0] else None

    @property
    def _uneven(self) -> Infeasible | None:
        """Return a proof that a few equations leave a remainder in integers: solvers branch for ever."""
        own = self.problem.integers
        terms = self.problem.constraints.items()
        rows = {n: t for n, t in terms if t.evidence.set == "Zero" and t.scope}
        if not any(t.scope & own for t in rows.values()):
            return None
        used = frozenset[str]().union(*(t.scope for t in rows.values()))
        columns = sum(self.problem.variables[n].size for n in used)
        if not 0 < sum(t.build().size for t in rows.values()) * columns <= UNEVEN:
            return None
        return without_a_point(self.problem.with_terms({}, rows), 0.0, 0)

    def _excluded(self) -> Infeasible | None:
        """Return a proof that no point is feasible, by a small tree of cases, or by boxes."""
        left = min(TREE_SECONDS, self.request.deadline - time.perf_counter())
        claimed = [c.claim for c in self.claims][:1] == ["infeasible"]
        curved = self.problem.problem_class.name != "LP" and not self.named
        wanted = claimed if self.problem.integers else curved and self._feasible is None
        none = without_a_point(self.problem, left, CASES) if wanted and left > 0.0 else None
        if none is None and claimed and not (self.named or self.problem.problem_class.convex):
            left = min(TREE_SECONDS, self.request.deadline - time.perf_counter())
            none = excluded_by_boxes(self.problem, left) if left > 0.0 else None
        return none

    def _given_up(self, stop: str) -> Solution:
        """Return the best attempt where the search was stopped, else raise why there is no answer."""
        with until(self.request.deadline):
            return self._last_word(stop)

    def _last_word(self, stop: str) -> Solution:
        request, best = self.request, None if self.best is None else self.best[1]
        late = time.perf_counter() + self.compiled > request.deadline
        if self.best is not None and self._feasible is not None:  # a point, and what bounds it
            wrong = ("infeasible",) if self.best[0][2] else ("infeasible", "unbounded")
            self.claims = [c for c in self.claims if c.claim not in wrong]
        claim = self.claims[0].claim if self.claims else "unbounded"
        if stop != "interrupted" and (exact := self._in_fractions()) is not None:
            return exact
        starts = beginnings(self.problem, best, request)
        if claim == "unbounded" and not late and (fall := endless(self.problem, starts)):
            raise fall
        if none := self._excluded():
            raise none
        if not late and stop != "interrupted" and (far := self._far_out(best)) is not None:
            return far
        if self.claims:
            self.claims[0].solution = best
            raise self.claims[0]
        feasible = self._feasible
        if feasible is not None and (late or stop == "interrupted"):
            status = replace(feasible.status, termination=stop)
            return replace(feasible, status=status, attempts=tuple(self.attempts))
        reasons = list(self.refused.values())
        unable = all(isinstance(e, (UnsupportedProblem, SizeLimited)) for e in reasons)
        if len(reasons) == len(self.candidates) and (unable or len(reasons) == 1):
            raise reasons[0]  # nothing was solved: the default's reason says most
        if late:
            raise SolverFailure(
                f"the time limit of {request.time_limit:g} s came before a feasible point",
                " | ".join(self.attempts),
                "give more time, or soften constraints so that a first point is easy",
                solution=best,
            )
        cause = f"no result passed verification at tolerance {request.tolerance:g}"
        gap = f"{feasible.gap:.1e}" if feasible is not None and self.problem.integers else ""
        larger = f"a tolerance above its gap of {gap}" if gap else "a larger tolerance"
        remedy = f"ask for {larger}, try another solver, or rescale the data"
        if best is not None and not best.attained:
            cause += ", and no point is optimal: the objective improves on, however far out"
            remedy = "bound the variable along which it improves"
        elif best is not None and BEYOND <= self._largest(best) < np.inf:
            remedy = f"state the data in other units, in which values are below {BEYOND:.0e}"
        remedy += "; the best attempt is the solution of this error"
        raise SolverFailure(cause, " | ".join(self.attempts), remedy, solution=best)

    def _in_fractions(self) -> Solution | None:
        """Return the optimum of a small linear program, or raise why it has none: no rounding misleads it."""
        left = min(TREE_SECONDS, self.request.deadline - time.perf_counter())
        pc = self.problem.problem_class
        asked = bool(self.claims) or self.best is not None  # else nobody took it, who say why
        if self.named or not asked or pc.name != "LP" or not pc.convex or left <= 0.0:
            return None
        try:
            proof = in_fractions(self.problem, left)
        except Infeasible as e:
            if self._feasible is None:  # a conflict in its last digits is none
                raise Infeasible.of(e.certificate, e.conflict) from None
            return None
        except SolverFailure:
            return None
        if proof is None:
            return None
        self.attempts[PIVOTS] = None
        outcome = Outcome("optimal", *proof.compiled.by_name(proof.x, proof.z), proof, {})
        own = self.problem, self.candidates[0], self.request, outcome
        solution, _, complaints = _verified(*own, self.spent, self.attempts)
        return None if complaints else solution

    @staticmethod
    def _largest(best: Solution) -> float:
        """Return the largest size of the objective and of what it is made of."""
        residuals = best.residuals()
        return max(residuals.largest, residuals.extent)

    def _restated(self, first: bool) -> bool:
        """Whether what is unproved, or far out, is solved on the face that every feasible point is in."""
        if self.named or self.problem.integers or not (first or self._enough()):
            return False
        outcome = on_its_face(self.problem, self.request, self.answer)
        self.answer = self._held(ON_FACE, "recast", outcome) or self.answer
        return self._enough()

    def _far_out(self, best: Solution | None, *, quick: bool = False) -> Solution | None:
        """Return a point as near to a limit that no point attains as was asked, with its bound."""
        asked = self.problem, getattr(best, "values", {}), self.request.tolerance, best
        outcome = None if self.named else nearing(*asked, quick=quick)
        return self._held(FAR_OUT, "boxes", outcome)

    def _held(self, note: str, route: str, outcome: Outcome | None) -> Solution | None:
        """Return what passes verification, of what no solver was asked for."""
        if outcome is None:
            return None
        self.attempts[note] = None
        profile = next(p for p in profiles().values() if p.route == route)
        asked = self.problem, profile, self.request, outcome
        solution, _, complaints = _verified(*asked, self.spent, self.attempts)
        return None if complaints else solution


def _retries(profile: SolverProfile, problem: Problem) -> list[Retry]:
    """Return what else to ask a solver about a problem, in order."""
    own = problem.problem_class.name
    return [r for r in profile.retry if not r.classes or own in r.classes]


def _has_basis(form: Any) -> bool:
    """Whether a compiled program is linear, and small enough for a basis in fractions."""
    return form is not None and form.polyhedral and form.A.nnz <= BASIS


def _quadratic(form: Any) -> bool:
    """Whether a solver is asked again about a quadratic program in less time than dear moves take."""
    if form is None or not form.P.nnz or form.A.nnz > SMALL:
        return False
    return {c.kind for c in form.cones} <= FLAT


def _verified(
    problem: Problem,
    profile: SolverProfile,
    request: Request,
    outcome: Outcome,
    spent: dict[str, float],
    attempts: Iterable[str],
) -> tuple[Solution, Residuals, tuple[str, ...]]:
    """Build the solution, recompute its residuals, and say what is wrong with it."""
    begin = time.perf_counter()
    values, multipliers, proof = outcome.values, outcome.multipliers, outcome.proof
    measured = measure(problem, values, multipliers, proof, request.deadline)
    objective = measured.objective if outcome.values else np.nan
    bound = measured.bound
    off = measured.against(objective, bound)
    above, grade = off.above(request.tolerance), off.grade(request.tolerance)
    if above and outcome.termination != "local":
        # what passes by the sizes that solvers measure by is an answer, on its word; not beside counts
        loose = measured.against(objective, measured.word, loose=True)
        near = not problem.integers or off.rows <= request.tolerance**0.5
        if near and not loose.above(request.tolerance):
            off, grade, above = loose, reported(profile.name, "; ".join(above)), ()
            bound = measured.word
    grade = grade.by_default(profile.name)
    feasible = off.feasibility <= request.tolerance
    # a solver that stopped with more time left than it used was stopped by no clock
    used = outcome.seconds.get("solve", 0.0) if outcome.values else 1e300
    own = outcome.termination == "time_limit" and used < request.deadline - time.perf_counter()
    termination, complaints = outcome.termination, tuple[str, ...]()
    above = above if outcome.values else ("it left no point",)
    if termination == "local" and outcome.values:
        # no bound was asked of it: what it left must hold, and is never called optimal
        broken = {k: v for k, v in off.primal.items() if not v <= request.tolerance}
        complaints = tuple(f"{k!r} is violated by {v:.1e}" for k, v in broken.items())
    elif not above:
        termination = "optimal"
    elif (own and request.time_limit is None) or not (termination in EARLY and feasible):
        complaints = ("it stopped at a limit of its own before it was done",) * own + above
    termination = "solver_limit" if own and termination == "time_limit" else termination
    dual = "feasible" if off.dual <= request.tolerance else "unknown"
    status = Status(termination, "feasible" if feasible else "infeasible", dual, grade)
    solution = Solution(
        problem=problem,
        solver=profile.name,
        version=profile.version,
        status=status,
        objective=objective,
        bound=bound,
        values=values,
        multipliers=multipliers,
        proof=proof,
        seconds={**spent, **outcome.seconds, "verify": time.perf_counter() - begin},
        options=_asked(request, profile, outcome),
        attempts=tuple(attempts),
        progress=outcome.progress,
        unit=measured.unit,
    )
    return solution, off, complaints


def _asked(request: Request, profile: SolverProfile, outcome: Outcome) -> dict[str, Any]:
    """Return the options on record, and whether a warm start was used."""
    asked = {**request.to_dict(), **outcome.iterations}
    if outcome.kept:
        asked["kept"] = outcome.kept
    if request.warm_start is not None:
        cold = f"not used: {profile.name} starts anew"
        asked["warm_start"] = outcome.warm_start or ("used" if profile.warm_start else cold)
    return asked
