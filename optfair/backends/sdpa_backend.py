"""The one file that talks to sdpap: semidefinite programs in the form of SeDuMi."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.generic import run_generic
from optfair.backends.isolation import solve_apart
from optfair.backends.request import RawPoint
from optfair.errors import SolverFailure

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.proofs.cones import Cone

# What it says of the program as we state it (measured on infp1 and infd1 of SDPLIB).
_STATUS = {
    "pdOPT": "optimal",
    "pINF_dFEAS": "infeasible",
    "dUNBD": "infeasible",
    "pFEAS_dINF": "unbounded",
    "pUNBD": "unbounded",
    "pdINF": "infeasible_or_unbounded",
}


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form in a process of its own: it has no clock, and may end with it."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        form = compiled.form
        program = Program(form.cones)
        full = program.full @ sp.csr_array(form.A)
        data = {"A": full, "b": program.full @ form.b, "q": form.q * scale}
        seconds = options.pop("time_limit", np.inf)
        try:
            answer = solve_apart(
                program, data, {}, options, name=profile.name, log=log, seconds=seconds
            )
        except (TypeError, ValueError, KeyError) as e:
            raise SolverFailure(f"{profile.name} failed", str(e), "try another solver") from e
        raw = answer.raw
        if raw is None:
            return RawPoint("time_limit")
        z = np.asarray(program.full.T @ raw.z)  # off the diagonal twice 1/root(2) of an entry
        return RawPoint(_STATUS.get(raw.status, "inaccurate"), raw.x, z / scale)

    return run_generic(problem, profile, request, call, quadratic=False)


@dataclass(frozen=True)
class Program:
    r"""Rows in the order it takes, and whole matrices instead of triangles.

    With the entries z of multipliers, it is handed
    :math:`\min b^T z` subject to :math:`A^T z = -q,\; z \in K^*`; the prices of these equations
    are x.

    Parameters
    ----------
    cones : tuple of Cone
        zero, nonneg and psd.
    """

    cones: tuple[Cone, ...]

    @property
    def full(self) -> Any:
        """The matrix (N, m) that turns our rows into its own."""
        rows = self.cones[-1].stop if self.cones else 0
        parts = [sp.csr_array((0, rows))]
        for c in self._ordered:
            own = np.arange(c.start, c.stop)
            if c.kind != "psd":
                parts.append(sp.eye_array(rows, format="csr")[own])
                continue
            (i, j), n = c.places, c.order
            off = i != j
            at = np.r_[i * n + j, (j * n + i)[off]], np.r_[own, own[off]]
            weight = np.where(off, 0.5**0.5, 1.0)
            entries = np.r_[weight, weight[off]]
            parts.append(sp.csr_array((entries, at), shape=(n * n, rows)))
        return sp.csr_array(sp.vstack(parts))

    @property
    def _ordered(self) -> list[Cone]:
        order = ("zero", "nonneg", "psd")
        return sorted(self.cones, key=lambda c: order.index(c.kind))

    def solve_via_data(
        self, data: dict[str, Any], verbose: bool, solver_opts: dict[str, Any]
    ) -> Any:
        """Solve there; what `solve_apart` calls."""
        import sdpap

        size = {"zero": 0, "nonneg": 0}
        for c in self.cones:
            size[c.kind] = size.get(c.kind, 0) + c.stop - c.start
        blocks = tuple(c.order for c in self._ordered if c.kind == "psd")
        K = sdpap.SymCone(f=size["zero"], l=size["nonneg"], s=blocks)
        A, side, cost = (sp.csc_matrix(v) for v in (data["A"].T, -data["q"], data["b"]))
        options = {"print": "display" if verbose else "no", **solver_opts}
        with contextlib.nullcontext() if verbose else _silent():
            z, x, stated, _, _ = sdpap.solve(
                A, side.T, cost.T, K, sdpap.SymCone(f=data["q"].size), options
            )
        return SimpleNamespace(
            x=x.toarray().ravel(), z=z.toarray().ravel(), status=stated["phasevalue"]
        )

    def invert(self, result: Any, inverse: Any) -> Any:
        """Return the result as it is."""
        return result


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hold back what it prints by itself; the process has nobody else who prints."""
    kept = [os.dup(n) for n in (1, 2)]
    try:
        with Path(os.devnull).open("w") as nothing:
            for n in (1, 2):
                os.dup2(nothing.fileno(), n)
            yield
    finally:
        for n, old in zip((1, 2), kept, strict=True):
            os.dup2(old, n)
            os.close(old)
