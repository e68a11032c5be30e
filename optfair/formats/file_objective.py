"""The objective of a file as one term, with the proof that a large one is convex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.core.classify import objective_term
from optfair.core.evidence import Evidence
from optfair.core.problem_class import ProblemClass
from optfair.core.term import ObjectiveTerm
from optfair.formats.layout import Layout
from optfair.formats.rows import Rows
from optfair.proofs.definiteness import definiteness

__all__ = ["objective"]

# A quadratic objective in more columns is not expanded by CVXPY's analysis, but proved here by factors.
_ANALYSED = 120


def objective(rows: Rows, layout: Layout) -> ObjectiveTerm:
    """Return the objective as one term."""
    used = np.flatnonzero(rows.cost)
    linear = _Linear(rows, layout)
    sense = "maximize" if rows.maximize else "minimize"
    if rows.P is None or not rows.P.nnz:
        return ObjectiveTerm(
            name="objective",
            scope=layout.scope(used),
            evidence=Evidence("objective", "affine", sense, ProblemClass()),
            build=linear.build,
            value=linear.value,
        )
    columns = np.flatnonzero(np.diff(sp.csc_array(rows.P).indptr))
    names = {v.id: n for n, v in layout.variables.items()}
    if columns.size <= _ANALYSED:
        term = objective_term("objective", linear.build() + layout.quadratic(rows.P), names, sense)
        return replace(term, origin="model", value=linear.value)
    sign = -1.0 if rows.maximize else 1.0
    found = definiteness(sign * sp.csc_array(rows.P))
    proved, note = found.accepted, str(found)
    word = "concave" if rows.maximize else "convex"
    plain = ProblemClass(True)
    evidence = (
        Evidence("objective", f"{word} quadratic", sense, plain, note)
        if proved
        else Evidence("objective", "quadratic", sense, plain.with_curvature("unverified"), note)
    )

    def build() -> Any:
        if proved and rows.maximize:
            return linear.build() - layout.quadratic(-rows.P, definite=True)
        return linear.build() + layout.quadratic(rows.P, definite=proved)

    scope = layout.scope(np.union1d(used, columns))
    return ObjectiveTerm("objective", scope, evidence, build, value=linear.value)


@dataclass(frozen=True, eq=False)
class _Linear:
    """The objective in arrays."""

    rows: Rows
    layout: Layout

    def build(self) -> Any:
        """Return the linear part and the constant."""
        parts = [
            self.rows.cost[at] @ self.layout.variables[n] for n, at in self.layout.members.items()
        ]
        return sum(parts, cp.Constant(self.rows.offset)) if self.rows.offset else sum(parts)

    def value(self, values: Mapping[str, Any]) -> float:
        """Return the whole objective at a point."""
        x = self.layout.vector(values)
        r = self.rows
        curved = 0.5 * float(x @ (r.P @ x)) if r.P is not None else 0.0
        return float(r.cost @ x) + curved + r.offset
