"""The one file that talks to OR-Tools: a program of its own, run once per problem.

It stays out of our process because its libraries and those of other solvers define the same
symbols, so that whichever is loaded second fails to load.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp


def main(folder: Path) -> None:
    """Read ``problem.npz`` and ``options.json``, write ``result.npz``."""
    with np.load(folder / "problem.npz") as file:
        data = dict(file)
    rows, columns = data["shape"]
    matrix = sp.csr_matrix((data["data"], data["indices"], data["indptr"]), shape=(rows, columns))
    asked = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    try:
        reply = _ROUTES[asked["route"]](data, matrix, asked["options"], asked["log"])
    except (AttributeError, TypeError, ValueError) as e:
        reply = {"status": np.array("refused"), "message": np.array(str(e))}
    np.savez(folder / "result.npz", **reply)


def _set(message: Any, options: dict[str, Any]) -> Any:
    """Set the fields of a parameter message; dots lead into messages within it."""
    for path, value in options.items():
        *outer, last = path.split(".")
        inner = message
        for part in outer:
            inner = getattr(inner, part)
        try:
            setattr(inner, last, value)
        except (AttributeError, TypeError, ValueError) as e:
            raise ValueError(f"{path} = {value!r} was refused: {e}") from e
    return message


def _simplex(
    data: dict[str, Any], matrix: Any, options: dict[str, Any], log: bool
) -> dict[str, Any]:
    from ortools.glop import parameters_pb2

    free = np.full(data["q"].size, np.inf)
    data |= {"lower_x": -free, "upper_x": free}
    # the presolve says INFEASIBLE of unbounded programs too
    known = {"UNBOUNDED": "unbounded", "INFEASIBLE": "infeasible_or_unbounded"}
    reply, solver = _modelled(data, matrix, _set(parameters_pb2.GlopParameters(), options), log)
    word = str(reply["status"])
    reply["status"] = np.array(known.get(word, word))
    if solver.has_solution():
        reply["y"] = np.asarray(solver.dual_values(), dtype=float)
    return reply


def _modelled(
    data: dict[str, Any], matrix: Any, parameters: Any, log: bool, *, integer: bool = False
) -> tuple[dict[str, Any], Any]:
    """Solve a linear or integer program; the solver is named after its parameters."""
    from google.protobuf import text_format
    from ortools.linear_solver.python import model_builder_helper as helper

    model = helper.ModelBuilderHelper()
    model.fill_model_from_sparse_data(
        data["lower_x"], data["upper_x"], data["q"], data["lower"], data["upper"], matrix
    )
    for column in range(data["q"].size) if integer else ():
        model.set_var_integrality(column, True)
    solver = helper.ModelSolverHelper(type(parameters).__name__.removesuffix("Parameters").upper())
    solver.enable_output(log)
    solver.set_solver_specific_parameters(text_format.MessageToString(parameters))
    if parameters.HasField("max_time_in_seconds"):
        solver.set_time_limit_in_seconds(parameters.max_time_in_seconds)
    solver.solve(model)
    word = solver.status().name
    known = {"OPTIMAL": "optimal", "FEASIBLE": "time_limit", "NOT_SOLVED": "time_limit"}
    reply: dict[str, Any] = {"status": np.array(known.get(word, word))}
    if solver.has_solution():
        reply["x"] = np.asarray(solver.variable_values(), dtype=float)
    return reply, solver


def _first_order(
    data: dict[str, Any], matrix: Any, options: dict[str, Any], log: bool
) -> dict[str, Any]:
    from ortools.pdlp import solve_log_pb2, solvers_pb2
    from ortools.pdlp.python import pdlp

    parameters = solvers_pb2.PrimalDualHybridGradientParams()
    parameters.verbosity_level = 3 if log else 0
    _set(parameters, options)
    free = np.full(data["q"].size, np.inf)
    program = pdlp.QuadraticProgram()
    program.objective_vector = data["q"]
    program.constraint_matrix = sp.csc_matrix(matrix)
    program.constraint_lower_bounds, program.constraint_upper_bounds = data["lower"], data["upper"]
    program.variable_lower_bounds, program.variable_upper_bounds = -free, free
    result = pdlp.primal_dual_hybrid_gradient(program, parameters)
    word = solve_log_pb2.TerminationReason.Name(result.solve_log.termination_reason)
    word = word.removeprefix("TERMINATION_REASON_")
    known = {
        "OPTIMAL": "optimal",
        "PRIMAL_INFEASIBLE": "infeasible",
        "DUAL_INFEASIBLE": "unbounded",
        "PRIMAL_OR_DUAL_INFEASIBLE": "infeasible_or_unbounded",
        "TIME_LIMIT": "time_limit",
        "ITERATION_LIMIT": "time_limit",
        "KKT_MATRIX_PASS_LIMIT": "time_limit",
        "NUMERICAL_ERROR": "inaccurate",
    }
    return {
        "status": np.array(known.get(word, word)),
        "x": np.asarray(result.primal_solution, dtype=float),
        "y": np.asarray(result.dual_solution, dtype=float),
    }


def _integer(
    data: dict[str, Any], matrix: Any, options: dict[str, Any], log: bool
) -> dict[str, Any]:
    from ortools.sat import sat_parameters_pb2

    parameters = _set(sat_parameters_pb2.SatParameters(), options)
    # beyond this it would cut variables off
    furthest = float(np.abs([data["lower_x"], data["upper_x"]]).max(initial=1.0))
    parameters.mip_max_bound = max(parameters.mip_max_bound, 2.0 * furthest)
    reply, solver = _modelled(data, matrix, parameters, log, integer=True)
    if reply["status"] == "INFEASIBLE":
        reply["status"] = np.array("infeasible")
    if solver.has_solution():
        reply["bound"] = np.array(float(solver.best_objective_bound()))
    return reply


_ROUTES = {"simplex": _simplex, "first-order": _first_order, "integer": _integer}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
