"""Whether a Farkas certificate is about the constraints it names: they are compiled anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.policy import choose
from optfair.backends.solve import solve
from optfair.compile.form import compile_problem
from optfair.errors import Infeasible, OptfairError

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.solution.conic_form import ConicForm

__all__ = ["proof_faults"]


def proof_faults(part: Problem, proof: InfeasibilityProof) -> list[str]:
    """Return why a certificate does not show that the problem is infeasible, empty if it does."""
    found = list(proof.verify().reasons)
    if not any(_same(form, proof.form) for form in _forms(part)):
        found.append("the certificate is about other constraints than those named")
    return found


def _forms(part: Problem) -> Iterator[ConicForm]:
    """Compile the constraints as the solvers of the policy get them."""
    try:
        profiles = choose(part, None)
    except OptfairError:
        return
    for profile in profiles:
        try:
            if profile.cvxpy_name:
                yield compile_problem(part, profile.cvxpy_name).form
            else:  # a special algorithm compiles its own part of the problem
                solve(part, profile.name)
        except Infeasible as e:
            if isinstance(e.certificate, InfeasibilityProof):
                yield e.certificate.form
        except OptfairError:
            continue


def _same(first: ConicForm, second: ConicForm) -> bool:
    """Whether two forms state the same constraints, entry by entry."""
    if first.A.shape != second.A.shape or first.cones != second.cones:
        return False
    apart = abs(sp.csc_array(first.A) - sp.csc_array(second.A)).sum()
    return bool(apart == 0.0 and np.array_equal(first.b, second.b))
