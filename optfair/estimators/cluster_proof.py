"""A counterfactual behind several boundaries, with the multipliers that prove it."""

from __future__ import annotations

import time

import numpy as np

import optfair
from optfair.backends.structured.projection.evidence import BoundaryProof, named_multipliers
from optfair.core.solution import Solution, Status
from optfair.estimators.cluster_several import Several
from optfair.models.cluster_counterfactual import ClusterCounterfactual

__all__ = ["proved_solution"]

# What the certificate is asked for.
TOLERANCE = 1e-6


def proved_solution(p: ClusterCounterfactual) -> Solution | None:
    """Return the global optimum where the Lagrangian of all boundaries proves it, else None.

    Parameters
    ----------
    p : ClusterCounterfactual
        With squared distance, boundaries and bounds only.

    Examples
    --------
    >>> p = ClusterCounterfactual.gaussian(
    ...     means=[[0.0, 0.0], [3.0, 0.0], [3.0, 2.0]], covariances=[1.0, 0.5, 0.3],
    ...     factual=[0.0, 1.0], target=1, against="all",
    ... )
    >>> s = proved_solution(p)
    >>> s.is_optimal(1e-9), s.certificate.verify()
    (True, verified)
    """
    begin = time.perf_counter()
    free = np.zeros(p.factual.size, dtype=bool)
    free[p.free] = True
    if (p.anchor != p.factual).any():
        return None  # features held elsewhere than at the row
    W = p.metric
    if W is not None:
        W = W[free] if W.ndim == 1 else np.ascontiguousarray(W[np.ix_(free, free)])
    boundaries = [t.boundary for t in p.sides if t.boundary is not None]
    found = Several(boundaries, free, W).nearest(p.factual, *p.limits)
    if found is None:
        return None
    point, _, _, weights = found
    solved = time.perf_counter()
    values, proof = {"point": point}, BoundaryProof(p)
    multipliers = named_multipliers(p, point, weights)
    solution = Solution(
        problem=p,
        solver="lagrange-dual",
        version=optfair.__version__,
        status=Status("optimal", "feasible", "feasible"),
        objective=p.objective_value(values),
        bound=proof.check(values, multipliers).bound,
        values=values,
        multipliers=multipliers,
        proof=proof,
        seconds={"solve": solved - begin, "verify": time.perf_counter() - solved},
        options={"tolerance": TOLERANCE},
    )
    return solution if solution.is_optimal(TOLERANCE) else None
