"""Solutions on disk: one file with the record and the arrays, nothing pickled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.problem import Problem, check_problem
from optfair.core.solution import Solution, Status
from optfair.errors import DataError, OptfairError
from optfair.numbers import check_path, checked, floats
from optfair.proofs.grade import reported
from optfair.solution.residuals import measure
from optfair.storage import check_record, read_archive, write_archive

if TYPE_CHECKING:
    from optfair.core.certificate import DualProof

SCHEMA = 2
# What a record must hold to be read.
RECORD: dict[str, Any] = {
    "schema": SCHEMA,
    **dict.fromkeys(("solver", "version", "termination", "primal"), str),
    "objective": (int, float),
    "bound": (int, float, type(None)),
    **dict.fromkeys(("seconds", "options"), dict),
    **dict.fromkeys(("transforms", "attempts"), list),
}


def solution_record(solution: Solution) -> dict[str, Any]:
    """Return everything about a solution but its arrays, ready for JSON."""
    found = solution.residuals()
    return {
        "schema": SCHEMA,
        "problem": type(solution.problem).__name__,
        "class": str(solution.problem.problem_class),
        "solver": solution.solver,
        "version": solution.version,
        "termination": solution.status.termination,
        "primal": solution.status.primal,
        "dual": solution.status.dual,
        "objective": solution.objective,
        "bound": solution.bound if np.isfinite(solution.bound) else None,
        "gap": solution.gap if np.isfinite(solution.gap) else None,
        "bound_by": found.source,
        **solution.grade.to_dict(),
        "residuals": {
            "primal": {k: _finite(v) for k, v in found.primal.items()},
            "objective": _finite(found.objective),
            "dual": _finite(found.dual),
            "gap": _finite(found.gap),
        },
        "seconds": dict(solution.seconds),
        "options": {k: v for k, v in solution.options.items() if v is not None},
        "attempts": list(solution.attempts),
        "transforms": list(solution.transforms),
    }


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


@checked(path=check_path)
def save_solution(solution: Solution, path: str | Path) -> None:
    """Write ``path.npz``: values, multipliers and proof as arrays, and the record as JSON.

    Parameters
    ----------
    solution : Solution
        What to write.
    path : str or Path
        File name, with or without the ending ``.npz``. An existing file is not overwritten.

    Raises
    ------
    DataError
        A file of that name exists, or it cannot be written; then there is none.
    """
    arrays = {f"value:{k}": np.asarray(v) for k, v in solution.values.items()}
    arrays |= {f"multiplier:{k}": np.asarray(v) for k, v in solution.multipliers.items()}
    record = solution_record(solution)
    stored = getattr(solution.proof, "stored", None)
    proof = None if stored is None else stored()
    if proof is not None:
        record["proof"] = proof[0]
        arrays |= {f"proof:{k}": np.asarray(v) for k, v in proof[1].items()}
    write_archive(path, record, arrays)


@checked(path=check_path, problem=check_problem)
def load_solution(path: str | Path, problem: Problem) -> Solution:
    """Read a solution back; feasibility and bound are checked on ``problem`` anew.

    Parameters
    ----------
    path : str or Path
        File name, as it was saved.
    problem : Problem
        The problem it solves; values that do not fit it are an error.

    Returns
    -------
    Solution
        With its proof, where that is a primal-dual pair of a compiled program; the problem is
        compiled for it. The bound of a special algorithm is on record only: ``is_optimal()`` is
        false until it is solved again with ``warm_start=``.
    """
    record, arrays = read_archive(path)
    check_record(record, RECORD, str(path))
    values: dict[str, NDArray[Any]] = {}
    multipliers: dict[str, NDArray[Any]] = {}
    pair: dict[str, NDArray[Any]] = {}
    for key, array in arrays.items():
        kind, _, name = key.partition(":")
        place = {"value": values, "multiplier": multipliers}.get(kind, pair)
        place[name] = floats(array, key, infinite=True)
    for name, variable in problem.variables.items():
        if name not in values or values[name].shape != variable.shape:
            shape = values[name].shape if name in values else "missing"
            raise DataError(
                f"the stored solution does not fit: {name!r} is {shape}, the problem has {variable.shape}",
                remedy="load it with the problem it was solved for",
            )
    proof: DualProof | None = None
    why = "it was read from a file, without its proof"
    if isinstance(facts := record.get("proof"), dict) and {"x", "z"} <= set(pair):
        try:
            proof = problem.conic_proof(facts, pair["x"], pair["z"])
        except OptfairError as e:
            why = f"its proof is of another problem: {e.cause}"
    bound = record["bound"]
    found = Solution(
        problem=problem,
        solver=record["solver"],
        version=record["version"],
        status=Status(
            record["termination"],
            record["primal"],
            "unknown",
            reported(record["solver"], why),
        ),
        objective=record["objective"],
        bound=np.nan if bound is None else bound,
        values=values,
        multipliers=multipliers,
        proof=proof,
        seconds=record["seconds"],
        options=record["options"],
        transforms=tuple(record["transforms"]),
        attempts=tuple(record["attempts"]),
    )
    if proof is None:
        return found
    measured = measure(problem, found.values, found.multipliers, proof)
    off = measured.against(found.objective, found.bound)
    tolerance = found.certificate.tolerance
    faults, grade = off.above(tolerance), off.grade(tolerance)
    if faults or not grade.sound:
        grade = reported(found.solver, "; ".join(faults) or grade.because)
    dual = "feasible" if off.dual <= tolerance else "unknown"
    status = replace(found.status, dual=dual, grade=grade)
    return replace(found, status=status, unit=measured.unit)
