"""Optima of linear programs to the last digit: an optimal basis, solved in fractions."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.linear_program import Kept, solve_form
from optfair.backends.pivots import settled
from optfair.backends.registry import conic_interface, solver_of
from optfair.backends.request import Request
from optfair.compile.conic_proof import ConicProof, ExactOptimum, RescaledProof
from optfair.compile.form import compile_problem
from optfair.core.certificate import Optimality
from optfair.core.solution import Solution, Status
from optfair.errors import ClassError, Infeasible, OptfairError, SolverFailure
from optfair.proofs import check_proof
from optfair.proofs.digits import LONGEST, balanced, solve_exactly
from optfair.proofs.portable import feasible_exactly
from optfair.proofs.reduction import Entries, Excluded, Link, chain_fault
from optfair.solution.conic_form import ConicForm
from optfair.solution.residuals import measure

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.numbers import Floats

# Rows of a basis that is solved beyond single entries, and times that a basis is looked for.
LARGEST, ROUNDS = 3_000, 8
# Entries of equations that are combined, and how far from dependent they are then.
EQUATIONS, DEPENDENT, PARALLEL = 40_000, 1e-13, 1e-8
# Binary digits by which a wrong basis is told at first, and what may be rounding of them.
ENOUGH, NIL = 640, Fraction(1, 2**300)
# Magnified slacks and multipliers beyond this are cut off: they are not in question.
FAR = 10_000

Ratios = list[Fraction]


class NotOptimal(SolverFailure):
    """No basis was optimal in fractions; the last, if any, has this point and these multipliers."""

    remedy = "solve without exact=True: the bound is proved to the tolerance all the same"

    def __init__(self, why: str, basis: tuple[Ratios, Ratios] | None) -> None:
        super().__init__("no basis was found that is optimal in fractions", why, self.remedy)
        self.basis = basis


class Falling(NotOptimal):
    """The objective falls without limit: from a point along a direction, both in fractions."""

    remedy = "bound the variables it depends on"

    def __init__(self, point: Ratios, direction: Ratios) -> None:
        super().__init__("the objective falls without limit, if by less than floats show", None)
        self.point, self.direction = point, direction


class Contradictory(SolverFailure):
    """No point satisfies the rows to the last digit: a combination of them says so."""

    def __init__(self, why: str, link: Link) -> None:
        super().__init__("the rows have no point in common", why)
        self.link = link


def exactly(solution: Solution, seconds: float | None = None) -> Solution:
    """Return a solution of a linear program with its optimum in fractions.

    Parameters
    ----------
    solution : Solution
        Proved by multipliers of a compiled program.
    seconds : float, optional
        Time it may take.

    Raises
    ------
    ClassError
        Not a linear program; or its bound rests on something else than such multipliers.
    Infeasible, Unbounded
        The declared floats contradict each other, or let the objective fall without limit, in digits
        that no tolerance shows.
    SolverFailure
        No basis was found that is optimal in fractions.
    """
    proof: Any = solution.proof
    while isinstance(proof, RescaledProof):
        proof = proof.divided
    if not isinstance(proof, ConicProof) or not proof.compiled.form.polyhedral:
        raise ClassError(
            f"exact=True is for linear programs; this one is {solution.problem.problem_class},"
            f" solved by {solution.solver}",
            "an optimum in fractions comes from an optimal basis of a compiled linear program",
            "name a solver of linear programs, or leave exact=True out",
        )
    begin = time.perf_counter()
    again: Any = solution.problem.conic_proof(proof.stored()[0], proof.x, proof.z)
    compiled = again.compiled
    kept = next((k for k in compiled.ended.values() if isinstance(k, Kept)), None)
    try:
        x, z = exact_optimum(compiled.form, seconds, kept)
    except Contradictory as e:
        raise _infeasible(compiled, e) from None
    except Falling as e:
        raise _unbounded(solution.problem, e) from None
    except NotOptimal as e:
        if e.basis is not None:
            near = _in_floats(*e.basis)
            own = ConicProof(solution.problem, compiled, near[0], near[1])
            e.solution = _proved_by(solution, own, begin)
        raise
    near = _in_floats(x, z)
    exact = ExactOptimum(
        solution.problem, compiled, near[0], near[1], point=tuple(x), prices=tuple(z)
    )
    return _proved_by(solution, exact, begin)


def _in_floats(*pair: Ratios) -> list[Floats]:
    try:
        return [np.array(v, dtype=float) for v in pair]
    except OverflowError:
        raise NotOptimal("its numbers leave the range of floats", None) from None


def _proved_by(solution: Solution, proof: ConicProof, begin: float) -> Solution:
    """Return the solution that a pair is, in place of another."""
    values, multipliers = proof.compiled.by_name(proof.x, proof.z)
    values = {**solution.values, **values}
    measured = measure(solution.problem, values, multipliers, proof)
    sign = 1.0 if solution.problem.sense == "minimize" else -1.0
    bound = -sign * np.inf if measured.check is None else measured.check.bound
    off = measured.against(measured.objective, bound)
    spent = solution.seconds.get("recover", 0.0) + time.perf_counter() - begin
    grade = off.grade(float(np.finfo(float).eps)).by_default(solution.solver)
    return replace(
        solution,
        status=Status("optimal", "feasible", "feasible", grade),
        objective=measured.objective,
        bound=bound,
        values=values,
        multipliers=multipliers,
        proof=proof,
        seconds={**solution.seconds, "recover": spent},
        unit=measured.unit,
    )


def basic(solution: Solution, seconds: float, tolerance: float) -> Solution | None:
    """Return an optimum in fractions, or the last feasible point of a basis; None where neither is.

    Raises
    ------
    Infeasible
        The rows exclude each other, and the answer is beyond the tolerance.
    """
    try:
        return exactly(solution, seconds)
    except Infeasible as e:
        if solution.residuals().feasibility > tolerance:  # a conflict in its last digits is none
            raise Infeasible.of(e.certificate, e.conflict) from None
    except SolverFailure as e:
        last: Solution | None = e.solution
        return last
    except OptfairError:
        pass
    return None


def everywhere(certificate: Optimality, seconds: float) -> Optimality:
    """Return the certificate of a solution whose bound needs no radius, by numbers of more digits.

    That of the same solution where it needs none, or is proved within one and there is no other.

    Raises
    ------
    UnsupportedProblem, SolverFailure
        A bound that a solver reports is not proved in this way either.
    """
    from optfair.backends.solve import solve_as_asked

    solution, request = certificate.solution, Request(certificate.tolerance, time_limit=seconds)
    if solution.grade.word == "proved":
        return certificate
    try:
        sharp = solve_as_asked(solution.problem, solver_of("digits"), request)
    except OptfairError:
        if solution.grade.sound:
            return certificate
        raise
    better = sharp.grade.word == "proved" or not solution.grade.sound
    return Optimality(sharp, certificate.tolerance) if better else certificate


def contradicts(basis: Solution, answer: Solution, tolerance: float) -> bool:
    """Whether a basis in fractions is better than an answer; or worse, where nothing is better."""
    sign = 1.0 if answer.problem.sense == "minimize" else -1.0
    worse = sign * (answer.objective - basis.objective)
    worse = abs(worse) if basis.exact is not None else worse
    varying = abs(answer.objective - answer.problem.objective_constant)
    return worse > tolerance * max(answer.unit, varying)


def _infeasible(compiled: Compiled, sides: Contradictory) -> Infeasible:
    """Return what to raise where floats contradict each other, with the proof."""
    from optfair.backends.facial_reduction import FacialContradiction

    form = compiled.form
    z = np.zeros(form.b.size)
    z[list(sides.link)] = 1.0
    names = tuple(k for k, v in compiled.by_name(np.zeros(form.q.size), z)[1].items() if v.any())
    proof = FacialContradiction(form, z, names, proof=Excluded((sides.link,), None))
    return Infeasible(
        f"no point satisfies {', '.join(map(repr, names))} to the last digit",
        f"{sides.evidence}: {proof}, verified in fractions",
        "solve without exact=True, to a tolerance; or leave out rows that follow from others",
        certificate=proof,
        conflict=names,
    )


def _unbounded(problem: Problem, fall: Falling) -> OptfairError:
    """Return what to raise where the objective falls without limit, with the ray where it is proved."""
    from optfair.backends.farkas import Ray, proved_unbounded

    largest = max(map(abs, fall.direction))
    way = [v / largest for v in fall.direction]
    try:
        d, start = _in_floats(way, fall.point)
    except NotOptimal as e:
        return e
    ray = Ray(problem, d, start, exact_d=tuple(way), exact_start=tuple(fall.point))
    return proved_unbounded(ray) or fall


def in_fractions(problem: Problem, seconds: float) -> ExactOptimum | None:
    """Return the optimum of a small linear program, whatever solvers say; None of others.

    Raises
    ------
    Infeasible, Unbounded
        It has none, exactly.
    """
    compiled = compile_problem(problem, conic_interface())
    try:
        pair = _settled(compiled.form, time.perf_counter() + seconds)
        near = [] if pair is None else _in_floats(*pair)
    except Contradictory as e:
        raise _infeasible(compiled, e) from None
    except Falling as e:
        raise _unbounded(problem, e) from None
    except NotOptimal:
        return None
    if pair is None:
        return None
    point, prices = map(tuple, pair)
    return ExactOptimum(problem, compiled, near[0], near[1], point=point, prices=prices)


def _settled(form: ConicForm, end: float) -> tuple[Ratios, Ratios] | None:
    """Return what pivots in fractions end with, None of a form that is large, or late."""
    last = settled(form, end)
    if last is None:
        return None
    if last.direction is not None and last.point is not None:
        raise Falling(last.point, last.direction)
    prices = last.prices or []
    if last.point is not None:
        return last.point, prices
    link = {i: v for i, v in enumerate(prices) if v}
    if chain_fault(Entries.of(form), [link]):
        return None
    raise Contradictory("pivots in fractions end with it", link)


def exact_optimum(
    form: ConicForm, seconds: float | None = None, kept: Kept | None = None
) -> tuple[Ratios, Ratios]:
    """Return an optimal point and multipliers of a polyhedral form in fractions.

    The basis that a simplex method ends with is solved exactly. Where it is not optimal to the
    last digit, the program is asked again around it with slacks and reduced costs magnified, as
    in the refinement of Gleixner, Steffy and Wolter (2016). Where floats find none, small programs
    are settled by pivots in fractions.

    Parameters
    ----------
    form : ConicForm
        Its floats are taken as exact.
    seconds : float, optional
        Time it may take.
    kept : Kept, optional
        Where an earlier solve of the same rows ended.

    Raises
    ------
    SolverFailure
        `NotOptimal`, of which `Falling` says that there is no optimum; or `Contradictory` where the
        rows contradict each other.
    """
    # powers of two change no digit, but at the end of the floats: the same basis, and every row
    # and column near 1
    declared, (row, column) = form, balanced(form.A)
    with np.errstate(all="ignore"):
        form = declared.in_units(row, column)
        same = form.in_units(1.0 / row, 1.0 / column)
    kept_all = all(np.array_equal(getattr(same, k), getattr(declared, k)) for k in ("q", "b"))
    if not kept_all or (same.A != declared.A).nnz:
        form, row, column = declared, np.ones(row.size), np.ones(column.size)
    end = np.inf if seconds is None else time.perf_counter() + seconds
    nothing = np.zeros(form.q.size, dtype=bool)
    options: dict[str, Any] = {"solver": "simplex", "threads": 1}
    options |= dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10)
    apart = _apart(form)
    asked, why, basis = apart(form), "no basis was found", None
    least, in_units, ended = Fraction(10**400), True, b""

    def declared_units(x: Ratios, z: Ratios) -> tuple[Ratios, Ratios]:
        back = [Fraction(float(u)) * v for u, v in zip(column, x, strict=True)]
        return back, [Fraction(float(u)) * v for u, v in zip(row, z, strict=True)]

    for _ in range(ROUNDS):
        said, last = solve_form(
            *(asked, nothing, asked.cost_scale("typical"), options, False),
            kept=kept,
            in_units=in_units,
        )
        kept = last if last is not None else kept
        if said.status == "infeasible":  # the last digits of dependent rows, magnified
            link = None if said.z is None else Entries.of(declared).contradiction(said.z, row)
            if link is not None:
                raise Contradictory(f"{why}, and its rows contradict each other", link)
            why += ", and no point next to it satisfies the rows to the last digit"
            break
        if kept is None or time.perf_counter() > end:
            break
        nonbasic = kept.nonbasic()
        again, ended = ended, np.concatenate(nonbasic).tobytes()
        in_units ^= again == ended  # units may hide what is magnified, and the other way round
        for digits in (ENOUGH, LONGEST):  # most wrong bases are so long before the last digit
            pair = _solved(form, *nonbasic, end - time.perf_counter(), digits)
            if pair is None:
                break
            (x, z), nil = pair, NIL if digits == ENOUGH else 0
            parts = exact_slack(form, x), z, _reduced(form, z)
            slack, seen, reduced = ([v if abs(v) > nil else Fraction(0) for v in p] for p in parts)
            short, wrong = _faults(form, slack, seen, reduced)
            if short or wrong:
                break
        if pair is None:
            why = "its basis has no solution in fractions, or too large a one"
            break
        if not short and not wrong:
            return declared_units(x, z)
        if not short and wrong < least:
            least, basis = wrong, declared_units(x, z)
        why = f"its best basis is off by {float(max(short, wrong) if basis is None else least):.1e}"
        asked = apart(_magnified(form, slack, seen, short, wrong))
    pair = _settled(declared, end)
    if pair is None:
        raise NotOptimal(why, basis)
    return pair


def _apart(form: ConicForm) -> Callable[[ConicForm], ConicForm]:
    """Return what combines equations so that none is nearly parallel to others: the bases stay.

    A simplex method takes such rows for dependent ones, and their sides for a contradiction.
    """
    at = np.flatnonzero(form.equal)
    if at.size > form.q.size or at.size * form.q.size > EQUATIONS:
        return lambda own: own
    Q, R = np.linalg.qr(form.rows[at].toarray().T)
    most, least = np.abs(np.diag(R)).max(initial=0.0), np.abs(np.diag(R)).min(initial=np.inf)
    if not DEPENDENT * most < least < PARALLEL * most:
        return lambda own: own
    rows = sp.lil_array(form.A)
    rows[at] = Q.T
    A = sp.csc_array(rows)

    def combined(own: ConicForm) -> ConicForm:
        b = own.b.copy()
        b[at] = scipy.linalg.solve_triangular(R, b[at], trans="T")
        return replace(own, A=A, b=b)

    return combined


def _solved(
    form: ConicForm,
    columns: NDArray[np.bool_],
    rows: NDArray[np.bool_],
    seconds: float,
    digits: int,
) -> tuple[Ratios, Ratios] | None:
    """Return the basic solution: rows that are not basic hold with equality, columns are 0."""
    A = sp.csr_array(form.A)
    n, m = form.q.size, form.b.size
    x, z = [Fraction(0)] * n, [Fraction(0)] * m
    count = np.diff(A.indptr)
    single = np.flatnonzero(rows & (count == 1))
    at = A.indptr[single]
    fixed, entry = A.indices[at], A.data[at]
    if (entry == 0.0).any() or np.unique(fixed).size != fixed.size or columns[fixed].any():
        return None
    for i, j, a in zip(single.tolist(), fixed.tolist(), entry.tolist(), strict=True):
        x[j] = Fraction(float(form.b[i])) / Fraction(a)
    free = ~columns
    free[fixed] = False
    R, C = np.flatnonzero(rows & (count != 1)), np.flatnonzero(free)
    if R.size != C.size or R.size > LARGEST:
        return None
    B = A[R][:, C]
    sides = exact_slack(form, x)
    costs = [Fraction(float(-form.q[j])) for j in C]
    solved = solve_exactly(B, [sides[i] for i in R], seconds, digits)
    priced = solve_exactly(sp.csr_array(B.T), costs, seconds, digits)
    if solved is None or priced is None:
        return None
    for j, v in zip(C.tolist(), solved[0], strict=True):
        x[j] = Fraction(v, solved[1])
    for i, v in zip(R.tolist(), priced[0], strict=True):
        z[i] = Fraction(v, priced[1])
    left = _reduced(form, z)
    for i, j, a in zip(single.tolist(), fixed.tolist(), entry.tolist(), strict=True):
        z[i] = -left[j] / Fraction(a)
    return x, z


def _over_one(values: Ratios) -> tuple[list[int], int]:
    common = lcm(*{v.denominator for v in values}) if values else 1
    return [v.numerator * (common // v.denominator) for v in values], common


def exact_slack(form: ConicForm, x: Ratios) -> Ratios:
    """Return b - Ax in fractions."""
    return _added(form.b, -1, form.A, x)


# Share of its terms below which a direction does not move a row, and entries of the rows up to which
# one is sought in fractions.
STILL, NEARBY = 1e-9, 20_000


def falls(form: ConicForm, d: Sequence[Fraction]) -> bool:
    """Whether the objective falls without limit along a direction that leaves no cone, all of it exactly."""
    stated, n = form.plain, form.q.size
    if stated is None or form.rounded or len(d) != n:
        return False
    rate = sum((Fraction(float(q)) * v for q, v in zip(form.q, d, strict=True) if v), Fraction(0))
    if rate >= 0 or any(_added(np.zeros(n), 1, form.P, list(d))):
        return False
    slack = exact_slack(replace(stated, b=np.zeros(form.b.size)), list(d))
    for c in stated.cones:
        own, _ = check_proof.integers(list(slack[c.start : c.stop]))
        known = c.kind in ("zero", "nonneg", "soc", "psd")
        if any(own) and not (
            known and check_proof.inside(c.kind, own, [c.order, c.upper], dual=False)
        ):
            return False
    return True


def direction_nearby(form: ConicForm, d: Floats) -> tuple[Fraction, ...] | None:
    """Return a direction in fractions near d that moves no row which d does not move but by rounding.

    Of equations, of squares and of cones that stay where they are few columns are corrected.
    """
    stated, largest = form.plain, float(np.abs(d).max(initial=0.0))
    if stated is None or form.rounded or not largest or form.A.nnz + form.P.nnz > NEARBY:
        return None
    near = np.where(np.abs(d) > STILL * largest, d / largest, 0.0)
    A, m = sp.csr_array(sp.vstack([stated.A, form.P])), form.b.size
    still = np.abs(A @ near) <= STILL * (abs(A) @ np.abs(near))
    still[:m] |= form.equal
    still[m:] = True
    for c in stated.cones:
        if c.kind not in ("zero", "nonneg"):
            still[c.start : c.stop] = still[c.start : c.stop].all()
    room = np.where(near != 0.0, np.inf, 0.0)
    move = feasible_exactly(A, np.zeros(A.shape[0]), np.flatnonzero(still), near, room)
    if move is None:
        return None
    exact = [Fraction(float(v)) for v in near]
    for i, v in zip(move.places, move.numerators, strict=True):
        exact[i] += Fraction(v, move.denominator)
    return tuple(exact)


def _reduced(form: ConicForm, z: Ratios) -> Ratios:
    """Return q + A'z in fractions."""
    return _added(form.q, 1, form.A.T, z)


def _added(side: Floats, sign: int, matrix: Any, v: Ratios) -> Ratios:
    """Return a side and a sign times Mv, from integers over one denominator."""
    entries, (own, under) = sp.coo_array(matrix), _over_one(v)
    whole, unit = _over_one([Fraction(a) for a in entries.data.tolist()])
    total = [0] * side.size
    for i, j, a in zip(entries.row.tolist(), entries.col.tolist(), whole, strict=True):
        if own[j]:
            total[i] += a * own[j]
    scale = sign * under * unit
    return [Fraction(float(b)) + Fraction(t, scale) for b, t in zip(side, total, strict=True)]


def _faults(
    form: ConicForm, slack: Ratios, z: Ratios, reduced: Ratios
) -> tuple[Fraction, Fraction]:
    """Return the largest violation of a row, and of a sign or a column of the dual."""
    wrong = max((abs(r) for r in reduced), default=Fraction(0))
    for c in form.cones:
        if c.kind != "zero":
            wrong = max([wrong, *(-v for v in z[c.start : c.stop])])
    return violation(form, slack), wrong


def violation(form: ConicForm, slack: Ratios) -> Fraction:
    """Return by how much a slack is outside points and half-lines at most."""
    short = Fraction(0)
    for c in form.cones:
        own = slack[c.start : c.stop]
        short = max([short, *(map(abs, own) if c.kind == "zero" else (-v for v in own))])
    return short


def _magnified(
    form: ConicForm, slack: Ratios, z: Ratios, short: Fraction, wrong: Fraction
) -> ConicForm:
    """Return a program with the same basic solution, in which what is wrong has size 1.

    Its costs are -A'z: of a basic solution every reduced cost is 0. Slacks and multipliers that
    are far from 0 stay there when they are cut off.
    """
    z_seen, slack_seen = (
        np.array([float(min(max(v * 2 ** _power(off), -FAR), FAR)) for v in part])
        for part, off in ((z, wrong), (slack, short))
    )
    return replace(form, q=-(form.A.T @ z_seen), b=slack_seen, offset=0.0)


def _power(size: Fraction) -> int:
    """Return the power of two that brings a number to about 1; 0 for none."""
    if size == 0:
        return 0
    return max(0, size.denominator.bit_length() - size.numerator.bit_length())
