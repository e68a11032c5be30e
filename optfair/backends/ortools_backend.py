"""Linear programs handed to OR-Tools in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.generic import RawPoint, run_generic
from optfair.errors import SolverFailure, UnsupportedProblem

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.conic import Compiled
    from optfair.core.problem import Problem

__all__ = ["run"]

_WORKER = "optfair.backends.ortools_worker"


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form; Ctrl-C ends the process, which leaves no point."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        with tempfile.TemporaryDirectory(prefix="optfair-") as folder:
            return _call(Path(folder), compiled, profile, scale, options, log)

    return run_generic(problem, profile, request, call)


def _call(
    folder: Path,
    compiled: Compiled,
    profile: SolverProfile,
    scale: float,
    options: dict[str, Any],
    log: bool,
) -> RawPoint:
    form = compiled.form
    lower = np.full(form.b.size, -np.inf)
    for c in form.cones:
        if c.kind == "zero":
            lower[c.start : c.stop] = form.b[c.start : c.stop]
    matrix = sp.csr_array(form.A)
    np.savez(
        folder / "problem.npz",
        q=form.q * scale,
        lower=lower,
        upper=form.b,
        data=matrix.data,
        indices=matrix.indices,
        indptr=matrix.indptr,
        shape=np.array(matrix.shape),
    )
    asked = {"route": profile.route, "options": options, "log": log}
    (folder / "options.json").write_text(json.dumps(asked), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", _WORKER, str(folder)],
        stdout=None if log else subprocess.DEVNULL,
        stderr=None if log else subprocess.PIPE,
        text=True,
    )
    try:
        _, said = process.communicate()
    except KeyboardInterrupt:
        process.kill()
        process.communicate()
        return RawPoint("interrupted")
    result = folder / "result.npz"
    if not result.is_file():
        last = (said or "").strip().splitlines()[-1:]
        raise SolverFailure(
            f"{profile.name} failed",
            f"its process ended with code {process.returncode}: {''.join(last)}",
            "try another solver",
        )
    with np.load(result) as file:
        found = dict(file)
    status = str(found["status"])
    if status == "refused":
        raise UnsupportedProblem(
            f"{profile.name} does not take these options",
            str(found["message"]),
            "correct or remove the option",
        )
    x, y = found.get("x"), found.get("y")
    if status == "infeasible":
        return RawPoint(status, z=None if y is None else -y)
    if status == "unbounded":
        return RawPoint(status, ray=x)
    return RawPoint(status, x, None if y is None else -y / scale)
