"""Farkas vectors as solvers report them: rounding is taken out, and nothing else is proved."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends.farkas import InfeasibilityProof, proved_infeasible
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

GOALS = {
    "norm": lambda x: cp.norm(x - 3),
    "largest": lambda x: cp.max(cp.abs(x - 3)),
    "sum": lambda x: cp.norm1(x - 3),
    "exponential": lambda x: cp.sum(cp.exp(x)),
}


def apart(goal: str, reach: float) -> Any:
    x = cp.Variable(5, name="x")
    a = np.random.default_rng(1).normal(size=5)
    rows = [cp.norm(x) <= 1, a @ x >= reach * np.linalg.norm(a)]
    return of.from_cvxpy(cp.Problem(cp.Minimize(GOALS[goal](x)), rows), ["ball", "far"])


@pytest.mark.parametrize("goal", GOALS)
def test_auxiliary_rows_of_the_objective_do_not_spoil_a_certificate(goal: str) -> None:
    with pytest.raises(of.Infeasible) as caught:
        apart(goal, 1.1).solve("clarabel")
    assert caught.value.certificate is not None and caught.value.certificate.verify()
    assert set(caught.value.conflict) == {"ball", "far"}


def form(low: float) -> ConicForm:
    """Return least t with t >= x, t >= -x, x >= low and x <= 1."""
    A = [[1.0, -1.0], [-1.0, -1.0], [-1.0, 0.0], [1.0, 0.0]]
    return ConicForm(
        P=sp.csc_array((2, 2)),
        q=np.array([0.0, 1.0]),
        offset=0.0,
        A=sp.csc_array(A),
        b=np.array([0.0, 0.0, -low, 1.0]),
        cones=(Cone("nonneg", 0, 4),),
        sign=1,
    )


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-9, 5e-6])
def test_rounding_is_taken_out_as_far_as_the_proof_needs(noise: float) -> None:
    reported = np.array([noise, 0.3 * noise, 1.0, 1.0])
    assert bool(InfeasibilityProof(form(2.0), reported).verify()) == (noise == 0.0)
    found = proved_infeasible(form(2.0), reported, lambda z: (str(np.flatnonzero(z)),))
    assert found is not None and found.verify()
    assert found.z.tolist() == [0.0, 0.0, 1.0, 1.0] and found.conflict == ("[2 3]",)


@pytest.mark.parametrize("z", [[0, 0, 1, 1], [1, 1, 1, 1], [1e-9, 0, 1, 1], [0, 0, 1, 1e-8]])
def test_what_is_feasible_is_never_proved_infeasible(z: list[float]) -> None:
    assert proved_infeasible(form(0.5), np.array(z, dtype=float), lambda _: ()) is None


@pytest.mark.parametrize("z", [[0, 0, 1, 0], [0, 0, -1, -1], [0, 0, 0, 0]])
def test_wrong_vectors_are_no_proof(z: list[float]) -> None:
    assert proved_infeasible(form(2.0), np.array(z, dtype=float), lambda _: ()) is None


@pytest.mark.parametrize("z", [[0, 0, 1, 1.001], [0, 0, 1.001, 1], [1e-3, 0, 1, 1]])
def test_what_a_vector_leaves_over_is_paid_with_bounds(z: list[float]) -> None:
    """x >= 2 and x <= 1: a column between bounds need not cancel, a free one is left out."""
    found = proved_infeasible(form(2.0), np.array(z, dtype=float), lambda _: ())
    assert found is not None and str(found.verify()) == "verified"
