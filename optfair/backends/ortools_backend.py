"""Linear and integer programs handed to OR-Tools in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.generic import run_generic
from optfair.backends.request import RawPoint, refused_options
from optfair.errors import SolverFailure, UnsupportedProblem

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem

    Floats = NDArray[np.float64]

_WORKER = "optfair.backends.ortools_worker"


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form; Ctrl-C ends the process, which leaves no point."""

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        with tempfile.TemporaryDirectory(prefix="optfair-") as folder:
            if profile.route == "integer":
                bounds = _whole(problem, compiled, profile.name)
                return _call(Path(folder), compiled, profile, 1.0, options, log, bounds)
            return _call(Path(folder), compiled, profile, scale, options, log, {})

    return run_generic(problem, profile, request, call)


def _call(
    folder: Path,
    compiled: Compiled,
    profile: SolverProfile,
    scale: float,
    options: dict[str, Any],
    log: bool,
    bounds: dict[str, Floats],
) -> RawPoint:
    form = compiled.form
    lower = np.full(form.b.size, -np.inf)
    for c in form.cones:
        if c.kind == "zero":
            lower[c.start : c.stop] = form.b[c.start : c.stop]
    matrix = sp.csr_array(form.A)
    arrays: dict[str, Any] = {
        "q": form.q * scale,
        "lower": lower,
        "upper": form.b,
        "data": matrix.data,
        "indices": matrix.indices,
        "indptr": matrix.indptr,
        "shape": np.array(matrix.shape),
    }
    np.savez(folder / "problem.npz", allow_pickle=False, **(arrays | bounds))
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
        reply = dict(file)
    status = str(reply["status"])
    if status == "refused":
        raise refused_options(profile.name, str(reply["message"]))
    x, y = reply.get("x"), reply.get("y")
    if status == "infeasible":
        return RawPoint(status, z=None if y is None else -y)
    if status == "unbounded":
        return RawPoint(status)
    bound = float(reply["bound"]) / scale + form.offset if "bound" in reply else None
    return RawPoint(status, x, None if y is None else -y / scale, bound)


def _whole(problem: Problem, compiled: Compiled, name: str) -> dict[str, Floats]:
    """Return the bounds of an integer program in whole numbers, and refuse any other.

    Elsewhere the solver rounds data and cuts variables off, and bounds another problem.
    """
    form = compiled.form
    lower, upper = form.column_bounds
    lower, upper = np.ceil(lower - 1e-9), np.floor(upper + 1e-9)
    owner = np.full(form.q.size, "auxiliary", dtype=object)
    for variable, at in form.columns.items():
        owner[at] = variable
    integer = np.array([who in problem.integers for who in owner])
    endless = integer & ~(np.isfinite(lower) & np.isfinite(upper))
    equal = [form.b[c.start : c.stop] for c in form.cones if c.kind == "zero"]
    numbers = np.concatenate([form.q, form.A.data, *equal])
    fractional = numbers[numbers != np.round(numbers)]
    if not integer.all():
        why = f"it computes in whole numbers, and {owner[~integer][0]!r} is continuous"
    elif endless.any():
        why = f"{owner[endless][0]!r} has entries without lower and upper bounds"
    elif fractional.size:
        why = f"it computes in whole numbers, and the data hold {fractional[0]:.6g}"
    else:
        # whole numbers are at most b when they are at most its whole part
        return {"lower_x": lower, "upper_x": upper, "upper": np.floor(form.b + 1e-9)}
    raise UnsupportedProblem(
        f"{name} does not take this {problem.problem_class}",
        why,
        "write it with bounded integer variables and whole numbers, or choose another solver",
    )
