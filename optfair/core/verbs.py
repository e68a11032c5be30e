"""The verbs of a problem's and a solution's life: forwarders to the layer that does the work.

These local imports are the only ones that point upwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack, cast

from optfair.core import display, explanation
from optfair.errors import DeclarationError, nearest
from optfair.numbers import Taken, check_number, check_text

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from optfair.core.certificate import Certificate, DualProof, Optimality
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.diagnosis.report import Diagnosis
    from optfair.solution.residuals import Residuals


class SharedOptions(TypedDict, total=False):
    """Options of every verb, for editors and type checkers."""

    tolerance: float
    time_limit: float | None


class DiagnoseOptions(SharedOptions, total=False):
    """Options of `diagnose`."""

    keep: str | Iterable[str]


class SolveOptions(SharedOptions, total=False):
    """Options of `solve`."""

    threads: int
    seed: int | None
    verbose: int
    warm_start: Solution | None
    options: Mapping[str, Any] | None
    isolate: bool
    exact: bool
    write_back: bool
    cuts: Callable[[Mapping[str, Any]], Any] | None
    solutions: int | None


def _check_options(verb: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise on a word that a verb does not know."""
    known = _words(verb)
    for name in options:
        if name not in known:
            raise DeclarationError(
                f"{verb.__name__} has no option {name!r}",
                "a solver's own options go into options={...}" if "options" in known else "",
                nearest(name, known),
            )


@cache
def _words(verb: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(verb).parameters)[1:]


def _no_attribute(owner: object, name: str, advice: Mapping[str, str]) -> str:
    hint = f"; {advice[name]}" if name in advice else ""
    return f"{type(owner).__name__!r} object has no attribute {name!r}{hint}"


class ProblemVerbs:
    """Verbs of `Problem`."""

    def solve(self, solver: str | None = None, **options: Unpack[SolveOptions]) -> Solution:
        """Choose a solver, compile, solve, recover and verify; see `optfair.solve`."""
        from optfair.backends.solve import solve

        _check_options(solve, options)
        return solve(cast("Problem", self), solver, **options)

    def _ipython_key_completions_(self) -> list[str]:
        return list(cast("Problem", self).variables)

    def _repr_html_(self) -> str:
        return display.html_problem(cast("Problem", self))

    if not TYPE_CHECKING:  # what is not there stays an error to type checkers

        def __getattr__(self, name: str) -> Any:
            """Say where a problem that was asked for an answer has it: in its solution."""
            advice = {
                "value": "solve() returns a solution: solution.objective",
                "status": "solve() returns a solution: solution.status",
                "is_dcp": "problem_class says the class, explain() why",
                "subject_to": "with_constraints(name=...) returns a problem with one more",
                "delete": "without(name) returns a problem without a constraint",
                "optimize": "solve() returns a solution",
                "write": "export(path) writes a file, whose ending says the format",
            }
            raise AttributeError(_no_attribute(self, name, advice))

    def explain(self, name: str | None = None) -> explanation.Explanation:
        """Return the evidence, one row per term; of one term, the tree behind its row.

        Parameters
        ----------
        name : str, optional
            Of a constraint, or "objective".

        Raises
        ------
        DeclarationError
            No term is called so.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x = cp.Variable(2, name="x")
        >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.exp(cp.norm(x))), [cp.sum(x) == 1]))
        >>> p.explain("objective")
        objective: minimize convex -> CONIC(exp, soc)
          exp(pnorm(x, 2)): convex, nonnegative [convex and increasing in a convex function]
            pnorm(x, 2): convex, nonnegative [convex, of affine functions]
              x: affine
        """
        problem = cast("Problem", self)
        if name is None:
            return explanation.explain(problem)
        return explanation.explain_row(problem, check_text(name, "name"))

    def explain_change(self, other: Problem) -> explanation.Explanation:
        """Return which terms moved the class from ``other`` to this problem."""
        from optfair.core.problem import check_problem

        old = check_problem(other, "other")
        return explanation.explain_change(
            cast("Problem", self), old.instead if isinstance(old, Taken) else old
        )

    def diagnose(self, **options: Unpack[DiagnoseOptions]) -> Diagnosis:
        """Say why there is no solution, with evidence; see `optfair.diagnose`."""
        from optfair.diagnosis.diagnose import diagnose

        _check_options(diagnose, options)
        return diagnose(cast("Problem", self), **options)

    def export(self, path: str | Path, *, overwrite: bool = True) -> None:
        """Write to a file whose ending says the format; see `optfair.export`."""
        from optfair.formats.files import export

        export(cast("Problem", self), path, overwrite=overwrite)

    def to_pyomo(self) -> Any:
        """Return a Pyomo model with the same names; see `optfair.compile.to_pyomo`."""
        from optfair.compile.export import to_pyomo

        return to_pyomo(cast("Problem", self))

    def conic_proof(self, facts: Mapping[str, Any], x: Any, z: Any) -> DualProof:
        """Return the proof that a primal-dual pair of the compiled program is of this problem."""
        from optfair.compile.conic_proof import conic_proof

        return conic_proof(cast("Problem", self), facts, x, z)

    def soften(self, name: str, weight: float) -> Self:
        """Replace a constraint by a penalty on its violation; see `optfair.transforms.relaxation`."""
        from optfair.transforms.relaxation import soften

        softened: Self = soften(cast("Problem", self), name, weight)
        return softened


class CertificateVerbs:
    """Verbs of `Certificate`."""

    def __str__(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return display.html_certificate(cast("Certificate", self))

    def explain(self) -> explanation.Explanation:
        """Say what is claimed, what shows it, by which means, and what a check of it says.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x = cp.Variable(name="x")
        >>> s = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1])).solve("highs")
        >>> s.certificate.explain()
        claim: no feasible point has an objective below 1
        of: CVXPY problem, LP
        evidence: objective 1, bound 1 (proved), gap ...
        means: the bound by duality, the point by highs ...
        grade: proved: it holds in exact arithmetic for the declared numbers
        check: verified
        """
        lines = display.account(cast("Certificate", self))
        return explanation.Explanation("\n".join(f"{word}: {said}" for word, said in lines))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a proof file that can be checked without this library; see `optfair.load_proof`."""
        from optfair.formats.proof_file import save_proof

        save_proof(cast("Certificate", self), path, overwrite=overwrite)

    def prove(self, *, time_limit: float = 60.0) -> Optimality:
        """Prove the bound of an integer program by branching, where a solver only reports it.

        That of a small convex program which holds within a radius, or is reported, is looked for in
        numbers of 32 digits; one within a radius stays as it is where there is no other. That of a
        nonconvex program of few variables is looked for by boxes that are halved.

        Parameters
        ----------
        time_limit : float
            Wall seconds for the tree of cases, the boxes, or the program.

        Returns
        -------
        Optimality
            Of the same solution, or of a better one that was met; its ``solution`` is graded
            anew, and `save` writes the tree.

        Raises
        ------
        UnsupportedProblem
            The certificate is of something else, or the relaxation is not convex and not small.
        SolverFailure
            The tree or the cover is not closed in time, or there is no proof in 32 digits either.

        Examples
        --------
        >>> import optfair as of
        >>> s = of.library.load("textbook/knapsack").problem().solve()
        >>> print(s.grade, "->", s.certificate.prove().solution.grade)
        reported by highs -> proved
        """
        from optfair.backends.branching import proved

        seconds = check_number(time_limit, "time_limit", least=0.0, infinite=True)
        return proved(cast("Optimality", self), seconds)


class SolutionVerbs:
    """Verbs of `Solution`."""

    def _ipython_key_completions_(self) -> list[str]:
        return list(cast("Solution", self).values)

    def _repr_html_(self) -> str:
        return display.html_solution(cast("Solution", self))

    if not TYPE_CHECKING:  # what is not there stays an error to type checkers

        def __getattr__(self, name: str) -> Any:
            """Compute a bound that was not asked for yet; say how values and objective are."""
            if name == "bound" and "_bound" in self.__dict__:
                self.__dict__["bound"] = self.__dict__["_bound"]()
                return self.__dict__["bound"]
            advice = dict.fromkeys(
                ("value", "optimal_value", "fun", "obj"), "write solution.objective"
            )
            advice |= dict.fromkeys(("optimal", "success"), "write solution.is_optimal()")
            advice |= dict.fromkeys(("dual_value", "duals"), "write solution.shadow_price[NAME]")
            advice["to_frame"] = "write solution.frame()"
            if name in self.__dict__.get("values", ()):
                advice[name] = f"write solution[{name!r}]"
            raise AttributeError(_no_attribute(self, name, advice))

    def residuals(self) -> Residuals:
        """Recompute every residual on the declared problem; see `optfair.residuals`."""
        from optfair.solution.residuals import residuals

        return residuals(cast("Solution", self))

    @property
    def attained(self) -> bool:
        """False where the objective is proved to miss, at every point, a limit that it comes near.

        Then no point is optimal, however far out: 1/x on x >= 1 has no least value, nor has x where
        x y >= 1 is said by a semidefinite block, nor x^2/y on x >= 1, which falls as y grows.
        Such a fall is proved for points whose entries are at most 1e100 in size.
        """
        from optfair.backends.unattained import attained

        return attained(cast("Solution", self))

    @property
    def shadow_price(self) -> Mapping[str, NDArray[Any]]:
        """Map from constraint to d(optimum)/d(right-hand side); see `optfair.shadow_prices`."""
        from optfair.solution.residuals import shadow_prices

        return shadow_prices(cast("Solution", self))

    @property
    def slack(self) -> Mapping[str, NDArray[Any]]:
        """Map from constraint to what is left of it at the values, below 0 where it is violated.

        Of an inequality, the larger side less the smaller one; of a second-order cone t - ‖x‖, of
        a semidefinite block its least eigenvalue. Integer problems have slacks, and no prices.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x = cp.Variable(2, name="x", integer=True)
        >>> rows = [x >= 0, [3, 2] @ x <= 8]
        >>> s = of.from_cvxpy(cp.Problem(cp.Maximize([2, 1] @ x), rows), ["sign", "cap"]).solve()
        >>> s["x"].round(6).tolist(), float(s.slack["cap"].round(6)) + 0.0
        ([2.0, 1.0], 0.0)
        """
        from optfair.solution.residuals import slacks

        return slacks(cast("Solution", self))

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write values, multipliers and proof as JSON and npz; see `optfair.load_solution`."""
        from optfair.formats.files import save_solution

        save_solution(cast("Solution", self), path, overwrite=overwrite)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        from optfair.formats.files import solution_record

        return solution_record(cast("Solution", self))
