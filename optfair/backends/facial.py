"""Infeasible and unattained without a Farkas vector: certificates by facial reduction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.farkas import InfeasibilityProof, carriers
from optfair.backends.registry import conic_interface
from optfair.compile.form import compile_problem
from optfair.core.certificate import Certificate, Verdict
from optfair.errors import Infeasible, OptfairError
from optfair.proofs import check_proof
from optfair.proofs.cones import Cone
from optfair.proofs.reduction import Entries, Excluded, excluded, missed
from optfair.solution.conic_form import ConicForm
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

WEAKLY = "weakly infeasible: no strictly separating certificate exists"


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
        count, names = len(self.proof.links), ", ".join(map(repr, self.conflict))
        how = "a Farkas vector in fractions" if count == 1 else f"{count} steps of facial reduction"
        return f"{how} over {names}"

    __repr__ = __str__


def form_of(record: dict[str, Any]) -> ConicForm:
    """Return the cone program that `portable.form_record` wrote, by the same floats.

    Raises
    ------
    Rejected
        The record is no program, or a number in it is no float.
    """
    check_proof.Form(record)  # entries are in range, cones fit the rows

    def floats(values: Any) -> Any:
        exact = [check_proof.number(v) for v in values]
        check_proof.require(
            all(float(v) == v for v in exact), "a number of the program is no float"
        )
        return np.array(list(map(float, exact)), dtype=float)

    b, q = floats(record["b"]), floats(record["q"])
    (i, j, a), (k, j2, p) = record["A"], record["P"]
    cones, at = [], 0
    for kind, size, more in record["cones"]:
        told: dict[str, Any] = {}
        if kind == "psd":
            told = {"order": more[0], "upper": bool(more[1])}
        elif kind == "pow":
            told = {"power": float(check_proof.number(more))}
        cones.append(Cone(kind, at, at + size, **told))
        at += size
    return ConicForm(
        sp.csc_array((floats(p), (k, j2)), shape=(q.size, q.size)),
        q,
        float(floats([record["offset"]])[0]),
        sp.csc_array((floats(a), (i, j)), shape=(b.size, q.size)),
        b,
        tuple(cones),
        sign=float(record["sign"]),
    )


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


@dataclass(frozen=True, eq=False, repr=False)
class UnattainedOptimum(Certificate):
    """No point has an objective as good as a limit, and no multipliers exclude that limit.

    Parameters
    ----------
    form : ConicForm
        The compiled problem.
    limit : float
        Of the compiled objective, without its constant.
    proof : Excluded
        That no point is as good, and that no multipliers show more.
    """

    form: ConicForm
    limit: float
    proof: Excluded

    @property
    def value(self) -> float:
        """The limit of the declared objective."""
        return float(self.form.sign * (self.limit + self.form.offset))

    def verify(self) -> Verdict:
        """Recompute both chains in fractions."""
        fault = self.proof.fault(Entries.of(self.form).at_most(self.form.q, self.limit))
        if self.proof.others is None:
            fault = "that no multipliers exclude the limit is not shown"
        if self.form.P.nnz:
            fault = "the objective is not linear"
        return Verdict(not fault, (fault,) if fault else ())

    def __str__(self) -> str:
        return (
            f"{self.value:.10g} is not attained: {len(self.proof.links)} steps of facial reduction"
        )

    __repr__ = __str__


def unattained(solution: Solution) -> UnattainedOptimum | None:
    """Return the proof that an optimum of a semidefinite program is not attained, None without one."""
    form = getattr(getattr(solution.proof, "compiled", None), "form", None)
    if form is None:
        return None
    chain = missed(form, form.sign * solution.objective - form.offset)
    return None if chain is None else UnattainedOptimum(form, *chain)
