"""Solve a problem in other words: what it was recast to, level by level, on the face of its points."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, product
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from optfair.backends import cone_program
from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.registry import conic_interface
from optfair.backends.request import LEAST, SMALL, Outcome, Request, SolverProfile, stages
from optfair.backends.unattained import AGAIN, DISTANCES, FEW
from optfair.compile.conic_proof import form_check, shortfall
from optfair.compile.form import compile_problem
from optfair.convexity.derivatives import gradient_at
from optfair.convexity.expression import Leaf, Node
from optfair.convexity.reading import leaf_of
from optfair.convexity.recast import Recast
from optfair.core.certificate import Certificate, DualCheck, Verdict, drift
from optfair.core.expressions import Values
from optfair.core.identity import fingerprint
from optfair.errors import (
    Infeasible,
    OptfairError,
    SolverFailure,
    Unbounded,
    UnsupportedProblem,
)
from optfair.numbers import Floats
from optfair.proofs.cones import Cone
from optfair.proofs.faces import denominators, integer_range, turned
from optfair.proofs.reduction import Entries, Link, chain_fault, links_of, restated
from optfair.proofs.reduction import chain as contradiction
from optfair.proofs.reduction import steps as counted
from optfair.solution.units import Handed, equilibrium

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.solution.conic_form import ConicForm

# Levels that are tried.
LEVELS = 60
# Entries of a point, in sides, beyond which violations within a tolerance may hide that it is on no face.
OUT = 1e4
# Steps of facial reduction; what is asked of the program there, as a share of the tolerance, and in
# which units.
STEPS, SHARPER, UNITS = 5, (1e-2, 1e-4), ("", "sides", "point")
# Entries of all equations up to which points are moved onto them.
DENSE = 1_000_000
# What is said of a problem that was solved on the face of its points, and of a point far out.
ON_FACE = "rows that are 0 at every feasible point were stated as equations"
FAR_OUT = "a point was moved far out, towards a limit that is not attained"


@dataclass(frozen=True, eq=False)
class RecastProof:
    """A bound on the problem that another, convex one leads to.

    Attributes
    ----------
    problem : Problem
        Whose optimum it bounds.
    way : Recast
        How it was recast; with its level, where there are levels.
    relaxed : Solution
        Of the recast problem, with its own proof.
    values, multipliers : mapping
        The numbers it is about.
    """

    problem: Problem
    way: Recast
    relaxed: Solution
    values: Values
    multipliers: Mapping[str, Any]
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recast the declared problem, check every proof, and recompute the bound."""
        nothing = -np.inf if self.problem.sense == "minimize" else np.inf
        own = self.relaxed.proof
        again: Recast | None = self.problem.recast
        if again is None or own is None:
            return DualCheck(nothing, np.inf)
        again = again if again.way != "level" else again.at(self.way.level)
        same = fingerprint(again.inner) == fingerprint(self.relaxed.problem)
        if not same or not again.inner.certificate.verify():
            return DualCheck(nothing, np.inf)
        inner = own.check(self.relaxed.values, self.relaxed.multipliers)
        apart = max(drift(values, self.values), drift(multipliers, self.multipliers))
        return replace(
            inner,
            bound=again.bound(inner.bound),
            estimate=None,
            consistency=max(inner.consistency, apart),
            complementarity=0.0,
            rows=0.0,
        )


@dataclass(frozen=True, eq=False, repr=False)
class RecastCertificate(Certificate):
    """What is proved of the recast problem holds of the declared one: no point, or no limit."""

    problem: Problem
    way: Recast
    inner: Certificate

    def verify(self) -> Verdict:
        """Recast the declared problem anew and check the certificate of the inner one."""
        verdict = self.way.verify()
        return self.inner.verify() if verdict else verdict

    def __str__(self) -> str:
        return f"{self.way}: {self.inner}"

    __repr__ = __str__


# Blocks that are turned, and what is then shown to be 0: bases by cone, and combinations of rows.
Step = tuple[Mapping[int, Floats], tuple[Link, ...]]


@dataclass(frozen=True, eq=False)
class FaceProof:
    """A primal-dual pair of the program that has what is 0 at every feasible point as equations.

    Attributes
    ----------
    problem : Problem
        Whose optimum it bounds.
    compiled : Compiled
        Its cone program.
    steps : tuple of (dict, tuple)
        How its blocks are turned, and which combinations of rows show what is 0, step by step.
    x, z : array
        The pair, z in the rows of the program that is restated.
    """

    problem: Problem
    compiled: Compiled
    steps: tuple[Step, ...]
    x: Floats
    z: Floats
    source: str = "facial reduction"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Go through the steps in exact arithmetic, and recompute the bound on the face."""
        form = _stepped(self.compiled.form, self.steps)
        if form is None or self.z.shape != form.b.shape:
            return DualCheck(-self.compiled.form.sign * np.inf, np.inf)
        apart = max(drift(values, self.compiled.values(self.x)), drift(multipliers, {}))
        return form_check(form, self.x, self.z, apart)

    def entry_sizes(self, name: str, values: Values, stated: Any = None) -> Floats:
        """Return the size of each entry of a constraint, 0 where its right-hand side tells it."""
        return self.compiled.entry_sizes(name, values, stated)


@dataclass(frozen=True, eq=False, repr=False)
class FaceContradiction(InfeasibilityProof):
    """No point satisfies the program that has what is 0 at every feasible point as equations.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array
        A Farkas vector in the rows of the program that is restated, where there are no links.
    conflict : tuple of str
        Names of all constraints.
    steps : tuple of (dict, tuple)
        As in `FaceProof`.
    links : tuple of dict
        Combinations of the rows that are restated, which end in 0 < 0.
    """

    steps: tuple[Step, ...] = field(kw_only=True)
    links: tuple[Link, ...] = field(kw_only=True)

    def verify(self) -> Verdict:
        """Go through the steps in exact arithmetic, and recompute the contradiction on the face."""
        if (face := _stepped(self.form, self.steps)) is None:
            return Verdict(False, ("a step shows nothing",))
        if not self.links:
            return InfeasibilityProof(face, self.z).verify()
        fault = chain_fault(Entries.of(face), self.links)
        return Verdict(not fault, (fault,) if fault else ())

    def __str__(self) -> str:
        return f"a contradiction after {counted(self.steps)}"

    __repr__ = __str__


def _stepped(form: ConicForm, steps: tuple[Step, ...]) -> ConicForm | None:
    """Return the program that the steps lead to, None where one shows nothing."""
    for bases, links in steps:
        near = turned(form, bases) if bases else form
        if near is None or (face := restated(near, links)) is None:
            return None
        form = face
    return form


def on_its_face(
    problem: Problem, request: Request, answer: Solution | None = None
) -> Outcome | None:
    """Return what solves a problem on the face that every feasible point is in, None where none is shown.

    A semidefinite program may have a gap between its optimum and all that multipliers prove, or
    none that attain it: rows that are 0 at every feasible point have too few. There are no prices.
    Of an answer that is proved nothing more is asked unless its point is far out.

    Raises
    ------
    Infeasible
        No point is on the face.
    """
    begin = time.perf_counter()
    if not {"psd", "soc"} & {*problem.problem_class.cones}:
        return None
    if answer is not None and answer.grade.sound:
        sides = [t.largest_side for t in problem.constraints.values()]
        most = OUT * max([problem.data_unit, *sides])
        if all(np.abs(v).max(initial=0.0) <= most for v in answer.values.values()):
            return None
    try:
        compiled = compile_problem(problem, conic_interface())
    except UnsupportedProblem:
        return None
    face, steps = compiled.form, list[Step]()
    curved = any(c.kind in ("psd", "soc") for c in face.cones) and not compiled.integer.any()
    while curved and face.A.nnz <= FEW and len(steps) < STEPS:
        left = min(AGAIN, request.deadline - time.perf_counter())
        if left <= 0.0 or (more := next(_further(face, left), None)) is None:
            break
        face = more[1]
        steps.append(more[0])
    compiled_at, best = time.perf_counter(), (np.inf, face.q, face.b)
    known: Floats | None = None
    for share, units in product(SHARPER, UNITS) if steps else ():
        left = request.deadline - time.perf_counter()
        if left <= 0.0 or best[0] == 0.0 or time.perf_counter() > compiled_at + AGAIN:
            break
        near = face.handed(compiled.integer, turned=False, units=(units, known))
        own = near or Handed.of(face, np.ones(face.b.size), np.ones(face.q.size))
        unit, sharp = own.form.cost_scale("largest"), share * request.tolerance
        raw = cone_program.solve_form(own.form, unit, tolerance=sharp, time_limit=left)
        if raw.status == "infeasible":
            z, names = own.multipliers_back(raw.z), tuple(problem.constraints)
            links = contradiction(Entries.of(face)) or ()
            none = FaceContradiction(compiled.form, z, names, steps=tuple(steps), links=links)
            if none.verify():
                raise Infeasible(
                    "no point satisfies all constraints",
                    f"{none}, verified on the compiled data",
                    "diagnose() looks for those that exclude each other",
                    certificate=none,
                    conflict=names,
                )
        if raw.status not in ("optimal", "inaccurate"):
            continue
        known = raw.x * own.columns
        z = own.multipliers_back(raw.z)
        for x in (_onto(face, known), known):
            lacking = shortfall(problem, face, x, z, request.tolerance)
            held = _feasible(problem, compiled.values(x), request)
            best = min(best, (lacking if held else lacking + 1.0, x, z), key=itemgetter(0))
    if best[0] == np.inf:
        return None
    proof = FaceProof(problem, compiled, tuple(steps), *best[1:])
    seconds = stages(begin, compiled_at, time.perf_counter())
    return Outcome("optimal", compiled.values(best[1]), {}, proof, seconds)


def _onto(form: ConicForm, x: Floats) -> Floats:
    """Return a point that was moved onto the equations by as little as it needs."""
    rows = sp.csr_array(form.rows[np.flatnonzero(form.equal)])
    if np.prod(rows.shape) > DENSE:
        return x
    size = abs(rows).max(axis=1).toarray().ravel() if rows.nnz else np.ones(rows.shape[0])
    unit = 1.0 / np.where(size > 0.0, size, 1.0)
    M, off = unit[:, None] * rows.toarray(), unit * form.slack(x)[form.equal]
    return np.asarray(x + np.linalg.lstsq(M, off)[0]) if off.any() else x


def _further(form: ConicForm, left: float) -> Iterator[tuple[Step, ConicForm]]:
    """Yield a step that shows more rows to be 0, with the program on the face; as it stands first."""
    for bases in chain([{}], _across(form, left)):
        near = turned(form, bases) if bases else form
        links = () if near is None else links_of(Entries.of(near))
        face = restated(near, links) if near is not None and links else None
        if face is not None:
            yield (bases, links), face


def _across(form: ConicForm, left: float) -> Iterator[dict[int, Floats]]:
    r"""Yield bases in which a face may lie along the axes.

    Multipliers with :math:`A^T w = 0,\; b^T w = 0,\; w \in K^*` show what every feasible point has no
    room for: :math:`\langle F, S \rangle = 0`. Integers that span the range of F are among the
    columns of a basis, those of unit vectors are the others; then those that make F diagonal.
    """
    near = form.in_units(*equilibrium(form))
    m, n = near.A.shape
    each, size, shut, placed = sp.eye_array(m, format="csr"), np.zeros(m), [], list[Cone]()
    for c in near.cones:
        at = np.arange(c.start, c.stop)
        if c.kind in ("exp", "pow"):
            shut.append(each[at])
        elif c.kind != "zero":
            placed.append(c)
            size[at[c.diagonal] if c.kind == "psd" else at[:1] if c.kind == "soc" else at] = 1.0
    if all(c.kind != "psd" for c in placed) or form.congruent is not None:
        return  # between lines in different units there are no small integers
    lines = sp.csr_array(np.vstack([near.b, size]))
    equations = sp.vstack([near.rows.T, lines, *shut])
    sides, cones = np.zeros(equations.shape[0]), [Cone("zero", 0, equations.shape[0])]
    sides[n + 1] = 1.0
    for c in placed:
        start = cones[-1].stop
        cones.append(replace(c, start=start, stop=start + c.stop - c.start))
    A = sp.csc_array(sp.vstack([equations, *(-each[c.start : c.stop] for c in placed)]))
    b = np.concatenate([sides, np.zeros(A.shape[0] - sides.size)])
    none = sp.csc_array((m, m))
    raw = cone_program.solve_cone_program(none, np.zeros(m), A, b, tuple(cones), time_limit=left)
    if raw.status not in ("optimal", "inaccurate"):
        return
    plain, diagonal = dict[int, Floats](), dict[int, Floats]()
    for k, c in enumerate(form.cones):
        F = c.matrix(raw.x[c.start : c.stop]) if c.kind == "psd" else np.zeros((0, 0))
        R = integer_range(F, sharp=True) if np.trace(F) > SMALL else None
        if R is None:
            continue
        order = scipy.linalg.qr(R.T, pivoting=True)[2]
        rest = np.eye(c.order)[:, np.sort(order[R.shape[1] :])]
        plain[k] = diagonal[k] = np.hstack([rest, R])
        inverse = np.linalg.pinv(R)
        with suppress(np.linalg.LinAlgError):
            L = np.linalg.cholesky(inverse @ F @ inverse.T)
            L = L / np.diag(L)
            columns = R @ np.round(L * denominators(L))
            divisors = np.gcd.reduce(columns.astype(np.int64), axis=0)
            diagonal[k] = np.hstack([rest, columns / np.maximum(divisors, 1)])
    yield plain
    yield diagonal


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the recast problem; of levels, lower one until none below is possible."""
    request.refuse_options(profile)
    way = problem.recast
    if way is None:
        raise UnsupportedProblem(f"{profile.name} needs a problem that is convex in other words")
    begin = time.perf_counter()
    inside = replace(
        request, options={}, warm_start=None, tolerance=max(1e-10, 0.1 * request.tolerance)
    )
    try:
        solved, status = _solved(problem, way, inside, request)
    except Infeasible as met:
        # the logarithm of an objective that is 0 is no reason
        e = _without_goal(way, inside) if way.way == "logarithm" else met
        if e.certificate is None:
            raise
        raise Infeasible(
            f"no point satisfies the constraints, which were recast: {way.word}",
            str(e.certificate),
            "diagnose() names a conflict",
            certificate=RecastCertificate(problem, way, e.certificate),
            conflict=e.conflict,
        ) from None
    except Unbounded as e:
        if way.sense == "maximize" and way.in_logarithms:
            known = e.certificate
            proof_of = None if known is None else RecastCertificate(problem, way, known)
            raise Unbounded(
                e.cause, f"{way.word}: {e.evidence}", e.remedy, ray=e.ray, certificate=proof_of
            ) from None
        if way.way == "logarithm" and (near := _next_to_nothing(problem, way, inside, request)):
            return near
        raise SolverFailure(
            "no point attains the optimum: the objective falls for ever without reaching a limit",
            f"{way.word}: {e.evidence}",
            "bound the variables it depends on",
        ) from None
    way, solution, values = solved
    multipliers = {} if problem.integers else _multipliers(problem, way, solution, values)
    seconds = {"solve": time.perf_counter() - begin}
    proof = RecastProof(problem, way, solution, values, multipliers)
    return Outcome(status, values, multipliers, proof, seconds)


def _without_goal(way: Recast, inside: Request) -> Infeasible:
    """Return that the rows alone have no point.

    Raises
    ------
    SolverFailure
        They have one.
    """
    from optfair.backends.solve import solve_as_asked

    try:
        solve_as_asked(way.inner.with_terms({}, way.inner.constraints), None, inside)
    except Infeasible as e:
        return e
    raise SolverFailure("the objective is 0 at every feasible point: it has no logarithm")


def _next_to_nothing(
    problem: Problem, way: Recast, inside: Request, request: Request
) -> Outcome | None:
    """Return a point whose objective is as near to its limit 0 as is asked, None where none is found."""
    from optfair.backends.solve import solve_as_asked
    from optfair.backends.unattained import nearing

    with contextlib.suppress(OptfairError):
        rows = way.inner.with_terms({}, way.inner.constraints)
        return nearing(problem, _values(way, solve_as_asked(rows, None, inside)), request.tolerance)
    return None


Solved = tuple[Recast, "Solution", dict[str, Any]]


def _solved(problem: Problem, way: Recast, inside: Request, request: Request) -> tuple[Solved, str]:
    from optfair.backends.solve import solve_as_asked

    if way.way != "level":
        solution = solve_as_asked(way.inner, None, inside)
        return (way, solution, _values(way, solution)), "optimal"
    sign = 1.0 if problem.sense == "minimize" else -1.0

    def objective(values: Values) -> float:
        """Return what is minimised, without the number that levels leave out."""
        with np.errstate(all="ignore"):
            return sign * float(problem.objective_at(values)) - way.offset

    best: dict[str, Any] = {n: np.zeros(v.shape) for n, v in problem.variables.items()}
    if way.inner.constraints:
        start = way.inner.with_terms({}, way.inner.constraints)
        best = _values(way, solve_as_asked(start, None, inside))
    upper, lower = objective(best), -np.inf
    for level in (0.0, 1.0, 1e3, 1e6):  # a high level asks for a denominator that is not 0
        if np.isfinite(upper):
            break
        try:
            best = _values(way, solve_as_asked(way.at(level).inner, None, inside))
        except Unbounded as e:
            ahead = (v for v in _along(way, best, e.ray) if np.isfinite(objective(v)))
            best = next(ahead, best)
        except SolverFailure:
            continue
        upper = objective(best)
    if not np.isfinite(upper):
        raise SolverFailure("no point was met at which the objective is defined")
    proved: Solved | None = None
    rough = replace(inside, tolerance=request.tolerance)  # where only the sign counts
    met, further = upper, 0.4  # what is reached, if only along a ray
    first = seen = abs(upper)  # sizes of numbers that an objective near 0 is one of
    for k in range(LEVELS):
        met = min(met, upper)
        if met < -LEAST * (first or 1.0):
            raise SolverFailure(
                "the objective has no limit that levels prove",
                f"{sign * (met + way.offset):.3g} is reached along a ray",
                "bound the variables it depends on",
            )
        seen = max(seen, abs(upper))
        unit = max(SMALL * (seen or 1.0), abs(upper))
        if upper - lower <= 0.5 * request.tolerance * unit:
            break
        # just below what is known to be reached; now and then halfway to what is not
        level, asked = met - further * request.tolerance * unit, inside
        if level <= lower or (k % 3 == 2 and np.isfinite(lower)):
            level, asked = (met + lower) / 2, rough
        try:
            here = way.at(level)
            solution = solve_as_asked(here.inner, None, asked)
        except SolverFailure as e:  # its bound may do: only its sign counts
            if e.solution is None or not e.solution.bound > 0.0:
                break
            solution = e.solution
        except Unbounded as e:  # lower levels are reached along a ray
            met, further = level, 8.0 * further
            for further_on in _along(way, best, e.ray):
                reached = objective(further_on)
                if reached < upper and _feasible(problem, further_on, request):
                    upper, best = reached, further_on
                if reached <= level:
                    break
            continue
        values, before = _values(here, solution), (lower, upper)
        if solution.bound > 0.0:
            lower, proved = level, (here, solution, best)
        reached = objective(values)
        if np.isfinite(reached) and reached < upper and _feasible(problem, values, request):
            upper, best = reached, values
        if (lower, upper) == before:  # so near that rounding decides
            further *= 64.0
        if time.perf_counter() > request.deadline:
            break
    if proved is None:
        raise SolverFailure("no level was proved to be out of reach", solution=None)
    close = request.tolerance * max(SMALL * (seen or 1.0), abs(upper))
    status = "optimal" if upper - lower <= close else "inaccurate"
    return (proved[0], proved[1], best), status


def _along(way: Recast, values: Values, ray: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield points ever farther out along a ray from a point."""
    if ray is None or way.in_logarithms:
        return
    for distance in DISTANCES:
        yield {n: v + distance * np.asarray(ray.get(n, 0.0)) for n, v in values.items()}


def _feasible(problem: Problem, values: Values, request: Request) -> bool:
    off = (t.relative_violation(values) for t in problem.constraints.values())
    return max(off, default=0.0) <= request.tolerance


def _values(way: Recast, solution: Solution) -> dict[str, Any]:
    variables, known = way.problem.variables, solution.values  # what no term uses has no value
    if not way.in_logarithms:
        return {n: known[n] if n in known else np.zeros(v.shape) for n, v in variables.items()}
    logs = {n: known.get(f"log {n}", np.zeros(v.shape)) for n, v in variables.items()}
    return {n: np.exp(v) for n, v in logs.items()}


def _multipliers(
    problem: Problem, way: Recast, solution: Solution, values: Values
) -> dict[str, Any]:
    r"""Return the multipliers of the declared rows.

    With :math:`g = \varphi(f)` at :math:`f = 0` a row has :math:`\mu_f = \varphi' \mu_g`, and the
    objective's own :math:`\varphi'` divides all; they are ratios of gradients.
    """
    plain = {leaf_of(v): np.ravel(values[n], order="F") for n, v in problem.variables.items()}
    moved = {
        leaf: np.ravel(solution.values.get(name, np.zeros(leaf.size)), order="F")
        for leaf, name in way.names.items()
    }
    beforehand = moved if way.in_logarithms else plain

    def slope(before: Node, after: Node) -> float:
        f, g = _gradient(before, beforehand), _gradient(after, moved)
        if f is None or g is None:
            return 1.0
        size = float(f @ f)
        ratio = float(f @ g) / size if size > 0.0 else 1.0
        return ratio if np.isfinite(ratio) else 1.0

    before, after = way.goal
    if way.way == "level":
        value = gradient_at(way.goal[1], moved)
        if value is None:  # the size of a level is not known, so no price is
            return {}
        own = float(value[0].high.max())
    else:
        own = slope(before, after)
    own = own if own > 0.0 else 1.0
    out: dict[str, Any] = {}
    for name, t in problem.constraints.items():
        if name not in way.rows:
            z = solution.multipliers.get(name, np.zeros(t.shape))  # tangents leave out some
            out[name] = np.asarray(z, dtype=float) / own
            continue
        if any(_gradient(piece.before, beforehand) is None for piece in way.rows[name]):
            continue  # of a row without a known slope there is no price
        z = np.zeros(int(np.prod(t.shape)))
        for piece in way.rows[name]:
            at = int(piece.name.removeprefix(name).split()[0] if piece.name != name else 0)
            mu = float(np.ravel(solution.multipliers.get(piece.name, 0.0))[0])
            flip = -1.0 if " above" in piece.name.removeprefix(name) else 1.0
            z[at] += flip * mu * abs(slope(piece.before, piece.after)) / own
        out[name] = np.reshape(z, t.shape, order="F")
    return out


def _gradient(node: Node, point: Mapping[Leaf, Floats]) -> Floats | None:
    enclosed = gradient_at(node, dict(point))
    if enclosed is None:
        return None
    with np.errstate(invalid="ignore"):  # where a function has steps, no slope is known
        return np.concatenate([(g.low[0] + g.high[0]) / 2 for g in enclosed[1].values()])
