"""The linear, quadratic and integer solver called directly: it can be interrupted and keeps its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optfair.backends.generic import columns_of, run_generic
from optfair.backends.linear_program import solve_form
from optfair.backends.request import RawPoint
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.backends.request import Outcome, Request
    from optfair.compile.form import Compiled
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve the compiled form; Ctrl-C returns the incumbent."""
    begin: list[Floats | None] = [None]

    def start(compiled: Compiled, earlier: Solution) -> str:
        if not any(name in compiled.form.columns for name in problem.integers):
            return f"not used: {profile.name} starts integer problems only from a point"
        begin[0], why = columns_of(compiled, earlier)
        return why

    def call(compiled: Compiled, scale: float, options: dict[str, Any], log: bool) -> RawPoint:
        # where the last solve of the same rows ended, unless somebody says where to start
        # taken out, so that no other thread changes the model meanwhile
        kept = compiled.ended.pop(profile.name, None) if begin[0] is None else None
        raw, kept = solve_form(
            compiled.form,
            compiled.integer,
            scale,
            options,
            log,
            begin[0],
            kept=kept,
            solver_name=profile.name,
        )
        if kept is not None:
            compiled.ended[profile.name] = kept
        return raw

    return run_generic(problem, profile, request, call, start=start)
