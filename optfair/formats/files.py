"""Problems and solutions from files and to files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.compile.export import ConeProgram, cone_program, to_pyomo
from optfair.compile.program import Program, program
from optfair.core.certificate import reported
from optfair.core.expressions import check_parameters
from optfair.core.problem import Problem, check_problem
from optfair.core.solution import Solution, Status
from optfair.errors import DataError, OptfairError, UnsupportedProblem
from optfair.formats.arrays import read_mat
from optfair.formats.cbf import cbf_lines
from optfair.formats.file_problem import FileProblem
from optfair.formats.layout import entry_names
from optfair.formats.lp import lp_lines, read_lp
from optfair.formats.mps import Duplicates, read_mps
from optfair.formats.sdpa import sdpa_lines
from optfair.formats.text import file_name, format_of, number, write_lines
from optfair.numbers import check_flag, check_path, check_text, checked, floats
from optfair.solution.residuals import measure
from optfair.storage import check_free, check_record, read_archive, write_archive, write_whole

if TYPE_CHECKING:
    from optfair.core.certificate import DualProof

# Read a problem from a file.


@checked(path=check_path, duplicates=check_text)
def read(path: str | Path, *, duplicates: Duplicates = "refuse") -> FileProblem:
    """Read a problem from an MPS, LP, CBF, SDPA or MAT file.

    All continuous columns are one vector and all integer ones another. Columns and rows named
    ``x[0]``, ``x[1]``, ... (or ``x1``, ``x2``, ...) are an array: ``p["x"]``, ``s["x"]``. Every
    column and row is found by its label too: ``p["COL1"]``, ``s["COL1"]``,
    ``s.shadow_price["ROW1"]``; see `FileProblem` for the names of terms.

    Parameters
    ----------
    path : str or Path
        ``.mps``, ``.qps``, ``.lp``, ``.cbf`` or ``.dat-s``, each also compressed with ``.gz`` or
        ``.bz2`` behind, or ``.mat``.
    duplicates : {"refuse", "sum"}
        What to do with two numbers for one place of a matrix, and with a quadratic section whose triangles
        differ.

    Returns
    -------
    FileProblem
        Classified, and ready to be composed, solved and verified as any other.

    Raises
    ------
    DataError
        The file is missing, corrupt, or uses what is not known here; with the line.

    Examples
    --------
    >>> import cvxpy as cp, tempfile
    >>> from optfair.formats.files import export
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Maximize(x[0]), [cp.sum(x) <= 1, x >= 0]), ["budget", "sign"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(p, folder + "/p.mps")
    ...     q = read(folder + "/p.mps")
    >>> q.problem_class, list(q.variables), list(q.constraints), q.solve().objective
    (LP, ['x'], ['budget', 'sign'], 1.0)
    """
    if duplicates not in ("refuse", "sum"):
        raise DataError(f"duplicates is {duplicates!r}", remedy='give "refuse" or "sum"')
    file = Path(path)
    problem: FileProblem = format_of(file, "read").read(file, duplicates)
    return problem


def from_mps(file: Path, duplicates: Duplicates) -> FileProblem:
    """Return the problem of an MPS file."""
    return FileProblem(read_mps(file, duplicates), file.name)


def from_lp(file: Path, duplicates: Duplicates) -> FileProblem:
    """Return the problem of an LP file; a column that stands twice in a sum counts twice anyway."""
    return FileProblem(read_lp(file), file.name)


def from_mat(file: Path, duplicates: Duplicates) -> FileProblem:
    """Return the problem of a MATLAB file, whose matrices have one number a place."""
    return read_mat(file)


# Write a program in free MPS format.

# names, in small letters, of its vectors, which may be left out, and of its markers
VECTORS = ("rhs", "rng", "bnd", "bound", "ranges", "bounds", "marker")


def mps_lines(program: Program, title: str) -> Iterator[str]:
    """Return the lines of a free MPS file.

    Every named constraint is a row, so its name and multiplier survive; bounds of columns
    are written only where the program has them. Numbers are written with all their digits.
    A quadratic objective ½xᵀPx is in ``QUADOBJ`` (lower triangle of P), quadratic rows in
    ``QCMATRIX`` (xᵀQx, both triangles).
    """
    columns = entry_names(program.columns, reserved=VECTORS)
    rows = entry_names(program.rows, reserved=VECTORS)
    goal = "objective"
    while goal in rows:
        goal += "_"
    yield f"NAME {title}"
    if program.sense == "maximize":
        yield from ("OBJSENSE", "    MAX")
    yield from ("ROWS", f" N {goal}")
    equal = program.row_lower == program.row_upper
    low, high = np.isfinite(program.row_lower), np.isfinite(program.row_upper)
    for i, row in enumerate(rows):
        kind = "E" if equal[i] else "L" if high[i] else "G" if low[i] else "N"
        yield f" {kind} {row}"
    yield from _columns(program, columns, rows, goal)
    yield "RHS"
    if program.offset:
        yield f"    RHS {goal} {number(-program.offset)}"
    side = np.where(high, program.row_upper, np.where(low, program.row_lower, 0.0))
    for i in np.flatnonzero(side).tolist():
        yield f"    RHS {rows[i]} {number(side[i])}"
    ranged = np.flatnonzero(low & high & ~equal)
    if ranged.size:
        yield "RANGES"
        width = program.row_upper - program.row_lower
        yield from (f"    RNG {rows[i]} {number(width[i])}" for i in ranged)
    yield from _bounds(program, columns)
    if program.P.nnz:
        yield "QUADOBJ"
        lower = sp.coo_array(sp.tril(program.P))
        for i, j, v in zip(lower.row.tolist(), lower.col.tolist(), lower.data, strict=True):
            yield f"    {columns[j]} {columns[i]} {number(v)}"
    for row in program.quadratic_rows:
        yield f"QCMATRIX {rows[row]}"
        for i, j, v in zip(*program.row_products(row), strict=True):
            if i == j:
                yield f"    {columns[i]} {columns[i]} {number(v)}"
            else:
                yield f"    {columns[i]} {columns[j]} {number(v / 2.0)}"
                yield f"    {columns[j]} {columns[i]} {number(v / 2.0)}"
    yield "ENDATA"


def _columns(program: Program, columns: list[str], rows: list[str], goal: str) -> Iterator[str]:
    yield "COLUMNS"
    A = sp.csc_array(program.A)
    inside = False
    for j, column in enumerate(columns):
        if program.integer[j] != inside:
            inside = not inside
            yield f"    MARKER 'MARKER' '{'INTORG' if inside else 'INTEND'}'"
        at = slice(A.indptr[j], A.indptr[j + 1])
        if program.q[j] or at.start == at.stop:  # a column nobody uses is still declared
            yield f"    {column} {goal} {number(program.q[j])}"
        for i, v in zip(A.indices[at], A.data[at], strict=True):
            yield f"    {column} {rows[i]} {number(v)}"
    if inside:
        yield "    MARKER 'MARKER' 'INTEND'"


def _bounds(program: Program, columns: list[str]) -> Iterator[str]:
    yield "BOUNDS"
    for j, column in enumerate(columns):
        low, high = program.lower[j], program.upper[j]
        if np.isneginf(low) and np.isposinf(high):
            yield f" FR BND {column}"
        elif low == high:
            yield f" FX BND {column} {number(low)}"
        else:
            if np.isneginf(low):
                yield f" MI BND {column}"
            elif low or high < 0.0:
                yield f" LO BND {column} {number(low)}"
            if np.isfinite(high):
                yield f" UP BND {column} {number(high)}"
            elif program.integer[j]:  # without it some readers bound integers by 1
                yield f" PL BND {column}"


# Write a problem to a file.


@checked(problem=check_problem, path=check_path, overwrite=check_flag)
def export(problem: Problem, path: str | Path, *, overwrite: bool = True) -> None:
    """Write a problem to a file; the ending of its name says the format.

    ===========================  =============================================================
    ``.mps``, ``.qps``, ``.lp``  LP, QP, QCQP (convex or not), and with integer variables
    ``.cbf``                     every convex problem: LP, SOCP, SDP, exponential and power
                                 cones, integer variables; quadratics become second-order cones
    ``.dat-s``                   LP and SDP in the sparse format of SDPA
    ``.nl``                      as ``.mps``, through Pyomo
    ``.cip``                     QCQP (convex or not), as SCIP reads it
    ===========================  =============================================================

    The first five endings are also written compressed with ``.gz`` or ``.bz2`` behind. Every named
    constraint is written as rows of that name, bounds included. Numbers are those of the declaration,
    sums of them to a few roundings; a quadratic form in cones has a rounded root of its matrix. What
    a format does not hold is refused: 1e20 or more is infinite in ``.lp`` and ``.cip``.

    Parameters
    ----------
    problem : Problem
        What to write.
    path : str or Path
        File.
    overwrite : bool
        Whether one that exists is replaced, at the end and as a whole, as pandas' ``to_csv`` does.

    Raises
    ------
    UnsupportedProblem
        The format cannot carry the problem; the term is named.
    DataError
        The ending is not known, the folder is missing, or the file exists and is to stay.
    NotInstalled
        What writes the format is missing.

    Examples
    --------
    >>> import cvxpy as cp, tempfile
    >>> import optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]), ["disk"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(p, folder + "/p.cbf")
    ...     export(p, folder + "/p.mps")
    Traceback (most recent call last):
    ...
    optfair.errors.UnsupportedProblem: 'disk' is not quadratic
      why: ...
      do:  write it as quadratics, or remove 'disk', or export to .cbf, which has cones
    """
    check_parameters(problem.terms)
    file = Path(path)
    if not file.parent.is_dir():
        raise DataError(f"there is no folder {file.parent}", remedy="make it, or check the path")
    check_free(file, overwrite)
    format_of(file, "write").write(problem, file)


def _rows(problem: Problem) -> Program:
    try:
        return program(problem)
    except UnsupportedProblem as e:
        if not problem.problem_class.convex:  # cones would not take it either
            raise
        raise UnsupportedProblem(
            e.cause, e.evidence, f"{e.remedy}, or export to .cbf, which has cones"
        ) from e


def _cones(problem: Problem) -> ConeProgram:
    """Return cones with the numbers that a file has."""
    try:
        cones = cone_program(problem, quadratic=False, scaled=False)
    except UnsupportedProblem as e:
        if problem.recast is None or problem.recast.word != "log-log convex":
            raise
        remedy = "export its convex form, .recast.inner, in the logarithms of these variables"
        raise UnsupportedProblem(e.cause, e.evidence, remedy) from e
    A = sp.coo_array(cones.A)
    rows = [*np.flatnonzero(~np.isfinite(cones.b)), *A.row[~np.isfinite(A.data)]]
    if rows or not np.isfinite([*cones.q, cones.offset]).all():
        name = repr(cones.rows[rows[0]]) if rows else "the objective"
        raise UnsupportedProblem(
            f"{name} has coefficients that are not finite",
            remedy="remove infinite bounds and NaN from its data, or write it in other units",
        )
    return cones


def to_mps(problem: Problem, file: Path) -> None:
    """Write rows as MPS."""
    write_lines(file, mps_lines(_rows(problem), file_name(problem.title)))


def to_lp(problem: Problem, file: Path) -> None:
    """Write rows as LP."""
    write_lines(file, lp_lines(_rows(problem), file_name(problem.title)))


def to_cbf(problem: Problem, file: Path) -> None:
    """Write cones as CBF."""
    write_lines(file, cbf_lines(_cones(problem), file_name(problem.title)))


def to_sdpa(problem: Problem, file: Path) -> None:
    """Write linear rows and matrix inequalities as SDPA."""
    for term in problem.terms:
        if str(term.evidence.problem_class) not in ("LP", "SDP"):
            raise UnsupportedProblem(
                f"{term.name!r} is neither linear nor a matrix inequality",
                str(term.evidence),
                f"remove {term.name!r}, or export to .cbf, which has all cones",
            )
    write_lines(file, sdpa_lines(_cones(problem), file_name(problem.title)))


def to_cip(problem: Problem, file: Path) -> None:
    """Write quadratic rows as CIP, cones among them."""
    from optfair.backends.scip_backend import export_scip

    write_whole(file, lambda part: export_scip(problem, part))


def to_nl(problem: Problem, file: Path) -> None:
    """Let Pyomo write the problem."""
    model = to_pyomo(problem)
    write_whole(file, lambda name: model.write(str(name), format="nl"))


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
    residuals = solution.residuals()
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
        "bound_by": residuals.source,
        **solution.grade.to_dict(),
        "residuals": {
            "primal": {k: _finite(v) for k, v in residuals.primal.items()},
            "objective": _finite(residuals.objective),
            "dual": _finite(residuals.dual),
            "gap": _finite(residuals.gap),
        },
        "seconds": dict(solution.seconds),
        "options": {k: v for k, v in solution.options.items() if v is not None},
        "attempts": list(solution.attempts),
        "transforms": list(solution.transforms),
    }


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


@checked(path=check_path, overwrite=check_flag)
def save_solution(solution: Solution, path: str | Path, *, overwrite: bool = False) -> None:
    """Write ``path.npz``: values, multipliers and proof as arrays, and the record as JSON.

    Parameters
    ----------
    solution : Solution
        What to write.
    path : str or Path
        File name, with or without the ending ``.npz``.
    overwrite : bool
        Whether to write over a file of that name: a solution may have taken long.

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
    write_archive(path, record, arrays, overwrite)


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

    Examples
    --------
    >>> import tempfile, optfair as of
    >>> p = of.library.load("diet").problem()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     p.solve("highs").save(f"{folder}/diet.json")
    ...     of.load_solution(f"{folder}/diet.json", p).is_optimal()
    True
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
    solution = Solution(
        problem=problem,
        solver=record["solver"],
        version=record["version"],
        status=Status(
            record["termination"], record["primal"], "unknown", reported(record["solver"], why)
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
        return solution
    measured = measure(problem, solution.values, solution.multipliers, proof)
    off = measured.against(solution.objective, solution.bound)
    tolerance = solution.certificate.tolerance
    faults, grade = off.above(tolerance), off.grade(tolerance)
    if faults or not grade.sound:
        grade = reported(solution.solver, "; ".join(faults) or grade.because)
    dual = "feasible" if off.dual <= tolerance else "unknown"
    status = replace(solution.status, dual=dual, grade=grade)
    return replace(solution, status=status, unit=measured.unit)
