"""Facial reduction: what is 0 at every feasible point is stated, and contradictions that it takes."""

from __future__ import annotations

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
from optfair.backends.endless import NoMultipliers, without_multipliers
from optfair.backends.farkas import (
    InfeasibilityProof,
    Ray,
    carriers,
    find_ray,
    proved_unbounded,
)
from optfair.backends.registry import conic_interface
from optfair.backends.request import SMALL, Outcome, Request, stages
from optfair.backends.unattained import extends
from optfair.compile.conic_proof import ConicProof, form_check, shortfall
from optfair.compile.form import already_compiled, compile_problem
from optfair.core.certificate import DualCheck, Verdict, drift, unvouched
from optfair.core.expressions import Values
from optfair.errors import Infeasible, OptfairError, UnsupportedProblem
from optfair.numbers import Floats
from optfair.proofs.cones import Cone
from optfair.proofs.digits import whole_multiple
from optfair.proofs.faces import denominators, integer_range, on_face
from optfair.proofs.reduction import (
    Entries,
    Excluded,
    Link,
    chain_fault,
    excluded,
    links_of,
    restated,
)
from optfair.proofs.reduction import chain as contradiction
from optfair.proofs.reduction import steps as counted
from optfair.proofs.turned import turned
from optfair.solution.units import Handed, equilibrium
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.solution.conic_form import ConicForm

WEAKLY = "weakly infeasible: no strictly separating certificate exists"
# Of what is solved again: entries and rows, seconds, and the share of the tolerance.
FEW, AGAIN, SHARP = 20_000, 10.0, 1e-2
# Entries of a point, in sides, beyond which violations within a tolerance may hide that it is on no face.
OUT = 1e4
# Steps of facial reduction; what is asked of the program there, as a share of the tolerance, and in
# which units.
STEPS, SHARPER, UNITS = 5, (1e-2, 1e-4), ("", "sides", "point")
# Entries of all equations up to which points are moved onto them, and of the squares of semidefinite
# blocks, one of which a step of Clarabel factors before it looks at the clock.
DENSE, FACTORED = 1_000_000, 10_000_000
# What is said of a problem that was solved on the face of its points.
ON_FACE = "rows that are 0 at every feasible point were stated as equations"


@dataclass(frozen=True, eq=False, repr=False)
class FacialContradiction(InfeasibilityProof):
    r"""A chain of combinations of rows, each on the face that those before it show.

    A combination that cancels in every column and whose sides sum to 0 shows that the nonnegative
    rows in it are 0. With an entry on the diagonal of a semidefinite block its whole line is 0, and
    what was an inequality is an equation. The last combination is :math:`0 < 0`. All of it is
    recomputed in fractions.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        1 for the rows that occur.
    conflict : tuple of str
        Names of the terms that exclude each other.
    proof : Excluded
        The chain, and the one that shows that no Farkas vector exists.
    """

    proof: Excluded = field(kw_only=True)

    @property
    def weak(self) -> bool:
        """Whether it is proved that no Farkas vector exists."""
        return self.proof.others is not None

    def verify(self) -> Verdict:
        """Recompute both chains in fractions."""
        fault = self.proof.fault(Entries.of(self.form))
        return Verdict(not fault, (fault,) if fault else ())

    def __str__(self) -> str:
        names, chain = ", ".join(map(repr, self.conflict)), self.proof
        how = "a Farkas vector in fractions" if len(chain.links) == 1 else str(chain)
        return f"{how} over {names}"

    __repr__ = __str__


def facial_contradiction(problem: Problem, *, plain: bool = False) -> FacialContradiction | None:
    """Return the proof that no point satisfies semidefinite constraints, None without one.

    Parameters
    ----------
    problem : Problem
        Convex; integer variables are taken as continuous.
    plain : bool
        Whether to look no further unless an entry on a diagonal is 0 as it stands.
    """
    if "psd" not in problem.problem_class.cones:
        return None
    try:
        compiled = compile_problem(relaxed(problem), conic_interface())
    except OptfairError:  # it cannot be compiled as a cone program
        return None
    form = compiled.form
    if plain:
        empty = (np.diff(form.rows.indptr) == 0) & (form.b == 0.0)
        psd = [c for c in form.cones if c.kind == "psd"]
        if not any((empty[c.start : c.stop] & c.diagonal).any() for c in psd):
            return None
    chain = excluded(Entries.of(form))
    if chain is None:
        return None
    z = np.zeros(form.b.size)
    z[[i for link in chain.links for i in link]] = 1.0
    names = carriers(compiled.by_name(np.zeros(form.q.size), z)[1])
    return FacialContradiction(form, z, names, proof=chain)


def edged(problem: Problem, answer: Solution | None) -> bool:
    """Whether semidefinite constraints may exclude each other that points far out nearly satisfy."""
    if not (problem.problem_class.convex and "psd" in problem.problem_class.cones):
        return False
    compiled = already_compiled(problem)
    # a cost of nothing is proved of every point
    costs = compiled is None or compiled.form.q.any() or compiled.form.P.nnz
    return not (answer is not None and answer.grade.sound and problem.objective and costs)


def excluded_by_faces(problem: Problem, *, plain: bool = False) -> Infeasible | None:
    """Return what to raise where facial reduction proves that no point is feasible."""
    proof = facial_contradiction(problem, plain=plain)
    if proof is None or not proof.verify():
        return None
    names = proof.conflict
    cause = f"no point satisfies {', '.join(map(repr, names))}"
    return Infeasible(
        f"{cause}: {WEAKLY}" if proof.weak else cause,
        f"{proof}, verified on the compiled data",
        "allow what a diagonal entry of 0 forbids, or remove or soften one of them",
        certificate=proof,
        conflict=names,
    )


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
        apart = max(drift(values, self.compiled.values(self.x)), unvouched(multipliers))
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
        return f"a contradiction {self.limits} after {counted(self.steps)}".replace("  ", " ")

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class FaceRay(Ray):
    """A ray of the program that has what is 0 at every feasible point as equations.

    Parameters
    ----------
    steps : tuple of (dict, tuple)
        As in `FaceProof`.
    """

    steps: tuple[Step, ...] = ()

    def anew(self) -> Compiled:
        """Compile the problem and go through the steps in exact arithmetic."""
        compiled = super().anew()
        face = _stepped(compiled.form, self.steps)
        # steps that show nothing leave it as it is declared
        return replace(compiled, form=face or compiled.form)

    def __str__(self) -> str:
        return f"{super().__str__()} after {counted(self.steps)}"

    __repr__ = __str__


@dataclass(frozen=True, eq=False, repr=False)
class FaceWithoutMultipliers(NoMultipliers):
    """No multipliers bound an objective on the face that every feasible point is in.

    Parameters
    ----------
    steps : tuple of (dict, tuple)
        As in `FaceProof`.
    """

    steps: tuple[Step, ...] = ()

    def anew(self) -> ConicForm:
        """Compile the problem and go through the steps in exact arithmetic."""
        form = super().anew()
        return _stepped(form, self.steps) or form

    def __str__(self) -> str:
        return f"{super().__str__()}, on the face after {counted(self.steps)}"

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
    Infeasible, Unbounded
        No point is on the face, or the objective improves there without limit.
    """
    begin = time.perf_counter()
    if not {"psd", "soc"} & {*problem.problem_class.cones}:
        return None
    if answer is not None and answer.grade.sound and not extends(problem, answer.values, OUT):
        return None
    try:
        compiled = compile_problem(problem, conic_interface())
    except UnsupportedProblem:
        return None
    face, steps = compiled.form, list[Step]()
    curved = any(c.kind in ("psd", "soc") for c in face.cones) and not compiled.integer.any()
    curved &= sum((c.stop - c.start) ** 2 for c in face.cones if c.kind == "psd") <= FACTORED
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
            empty = FaceContradiction(compiled.form, z, names, steps=tuple(steps), links=links)
            if empty.verify():
                raise Infeasible(
                    "no point satisfies all constraints",
                    f"{empty}, verified on the compiled data",
                    "diagnose() looks for those that exclude each other",
                    certificate=empty,
                    conflict=names,
                )
        if raw.status == "unbounded":
            first = FaceRay(problem, np.zeros(0), steps=tuple(steps))
            ray = find_ray(problem, seconds=left, first=first)
            if ray is not None and (fall := proved_unbounded(ray)) is not None:
                raise fall
        if raw.status not in ("optimal", "inaccurate"):
            continue
        known = raw.x * own.columns
        z = own.multipliers_back(raw.z)
        for x in (_onto(face, known), known):
            lacking = shortfall(problem, face, x, z, request.tolerance)
            held = request.satisfied(problem, compiled.values(x))
            best = min(best, (lacking if held else lacking + 1.0, x, z), key=itemgetter(0))
    if steps and best[0] > 0.0:  # there need be no ray
        none = FaceWithoutMultipliers(problem, np.zeros(0), (), steps=tuple(steps))
        if (fall := without_multipliers(problem, none)) is not None:
            raise fall
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
    columns of a basis, those of unit vectors are the others; then those that make F diagonal. Of a
    second-order cone they are integers on its boundary that F is a multiple of, or next to it.
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
    if {"psd", "soc"}.isdisjoint(c.kind for c in placed) or form.congruent is not None:
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
        edge = _edge(raw.x[c.start : c.stop]) if c.kind == "soc" and not form.rounded else None
        if edge is not None:
            plain[k] = diagonal[k] = edge
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


def _edge(z: Floats) -> Floats | None:
    """Return integers on the boundary of a second-order cone next to multipliers that are not 0."""
    if not (z.size > 1 and z[0] > SMALL):
        return None
    near, last = whole_multiple(z), 1 + int(np.abs(z[1:]).argmax())
    if near is None or near[0] ** 2 != np.sum(near[1:] ** 2):  # inside, it leaves nothing but 0
        near = np.zeros(z.size)
        near[0], near[last] = 1.0, np.copysign(1.0, z[last])
    return near


def faced(outcome: Outcome, request: Request) -> Outcome | None:
    """Return the same point with multipliers of the face that these are next to, which prove more."""
    proof, left = outcome.proof, min(0.5 * request.seconds_left, AGAIN)
    if not isinstance(proof, ConicProof) or left <= 0.0:
        return None
    form = proof.compiled.form
    large = max(form.A.nnz, form.b.size) > FEW
    if form.polyhedral or large or (face := on_face(form, proof.z)) is None:
        return None
    from optfair.backends import cone_program

    own, root = face.stated
    unit, tolerance = own.cost_scale("largest"), SHARP * request.tolerance
    raw = cone_program.solve_form(own, unit, tolerance=tolerance, time_limit=left)
    if raw.status != "optimal":
        return None
    made = replace(proof, z=face.whole(raw.z * root))
    return replace(outcome, multipliers=made.compiled.multipliers(made.z), proof=made)
