"""Farkas certificates of infeasibility, checked on the compiled data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.backends.rays import find_ray
from optfair.core.certificate import Certificate, Verdict
from optfair.errors import SolverFailure, Unbounded
from optfair.proofs.bounds import infeasibility
from optfair.proofs.grade import within
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Binary digits of a vector that is tried first.
DIGITS = 24
# Entries of a reported vector below such a share of the largest may be rounding.
NOISE = (0.0, 1e-9, 1e-7, 1e-5)


@dataclass(frozen=True, eq=False, repr=False)
class InfeasibilityProof(Certificate):
    r"""A vector z in the dual cone whose combination of the rows nothing can satisfy.

    For every x with b - Ax in the cone :math:`0 \le z^T(b - Ax) = b^T z - r^T x`, with
    :math:`r = A^T z`; so there is none when :math:`b^T z < \min_x r^T x` over the bounds that
    other rows put on x. Where nothing bounds a column, r must be 0 there. All of it is
    checked in exact arithmetic.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        The Farkas vector.
    conflict : tuple of str
        Names of the terms that exclude each other.
    """

    form: ConicForm
    z: NDArray[np.float64]
    conflict: tuple[str, ...] = ()

    def verify(self) -> Verdict:
        """Recompute the contradiction, with everything that rounding leaves paid for."""
        proof = infeasibility(self.form, np.asarray(self.z, dtype=float))
        if proof.proved:
            return Verdict(True)
        if proof.columns is None:
            return Verdict(False, (proof.fault,))
        names = ", ".join(map(repr, self.form.column_names(proof.columns)))
        because = f"not rigorous: free column {names}"
        grade = within(proof.radius, because)
        return Verdict(False, (f"it excludes points {grade.limits} only: {because}",), grade)

    def __str__(self) -> str:
        return f"Farkas certificate over {', '.join(map(repr, self.conflict))}"

    __repr__ = __str__


def carriers(multipliers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the terms that carry a Farkas vector."""
    sizes = {k: float(np.abs(v).max(initial=0.0)) for k, v in multipliers.items()}
    largest = max(sizes.values(), default=0.0)
    return tuple(k for k, v in sizes.items() if v > 1e-4 * largest)


def proved_infeasible(
    form: ConicForm,
    z: NDArray[np.float64],
    conflict: Callable[[NDArray[np.float64]], tuple[str, ...]],
) -> InfeasibilityProof | None:
    """Return a proof that verifies, from a vector that a solver reports.

    A solver leaves rounding where the vector has zeros. On rows that bound the objective by an
    auxiliary variable there is nothing else in that variable's column, so the rounding cancels
    with nothing; small entries are therefore set to zero as far as the proof needs it. Where the
    exact vector has few digits, rounding to these makes it exact: that is tried first.

    Parameters
    ----------
    form : ConicForm
        The compiled constraints.
    z : array (m,)
        What the solver reports.
    conflict : callable
        From a vector to the names of the terms that carry it.
    """
    largest = float(np.abs(z).max(initial=0.0))
    if largest > 0.0:
        unit = np.ldexp(1.0, DIGITS)
        short = np.round(z / largest * unit) / unit
        if infeasibility(form, short, repair=False).proved:
            return InfeasibilityProof(form, short, conflict(short))
    cleaned = [np.where(np.abs(z) > share * largest, z, 0.0) for share in NOISE]
    for exact in (*cleaned, _without_open(form, cleaned[-1])):
        if infeasibility(form, exact).proved:
            return InfeasibilityProof(form, exact, conflict(exact))
    return None


def _without_open(form: ConicForm, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Leave out the cones that meet a column which nothing bounds and which does not cancel.

    Those of an objective are of this kind: they have no part in a contradiction.
    """
    proof = infeasibility(form, z)
    if proof.columns is None:
        return z
    met = np.zeros(form.b.size, dtype=bool)
    met[form.columns_of_rows[:, proof.columns].indices] = True
    for c in form.cones:
        if c.kind not in ("zero", "nonneg") and met[c.start : c.stop].any():
            met[c.start : c.stop] = True
    return np.where(met, 0.0, z)


def claimed_infeasible(problem: Problem, solver: str, why: str = "") -> SolverFailure:
    """Return what to raise when a solver says infeasible and nothing proves it."""
    return SolverFailure(
        f"{solver} says that no point satisfies the constraints, which is not proved here",
        why or "it leaves no certificate that could be verified",
        "diagnose() looks for a proof; or try another solver, or remove or soften constraints: "
        + ", ".join(map(repr, problem.constraints)),
        claim="infeasible",
        claimed_by=solver,
    )


def claimed_unbounded(problem: Problem, solver: str, why: str = "") -> SolverFailure:
    """Return what to raise when a solver says unbounded and nothing proves it."""
    terms = ", ".join(map(repr, problem.objective))
    return SolverFailure(
        f"{solver} says that the objective ({terms}) improves without limit,"
        " which is not proved here",
        why or "no ray with a feasible point could be verified",
        "bound the variables it depends on; or try another solver, or soften constraints",
        claim="unbounded",
        claimed_by=solver,
    )


def unbounded(
    problem: Problem,
    solver: str,
    point: Mapping[str, Any] | None = None,
    why: str = "",
    seconds: float | None = None,
) -> Unbounded | SolverFailure:
    """Return what to raise when a solver says unbounded: proved by a ray, or its word."""
    if problem.problem_class.convex:
        ray = find_ray(problem, point, seconds)
        if ray is not None and ray.verify():
            return Unbounded(
                f"the objective ({', '.join(map(repr, problem.objective))}) improves without limit",
                f"{ray}, from a feasible point, verified on the compiled data",
                "bound the variables it depends on",
                ray=ray.direction,
                certificate=ray,
            )
    return claimed_unbounded(problem, solver, why)
