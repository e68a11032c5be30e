"""The verbs of a problem's and a solution's life: forwarders to the layer that does the work.

These local imports are the only ones that point upwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from optfair.core.certificate import Certificate, DualProof, Optimality
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.diagnosis.report import Diagnosis
    from optfair.solution.residuals import Residuals

__all__ = ["CertificateVerbs", "ProblemVerbs", "SolutionVerbs"]


class ProblemVerbs:
    """Verbs of `Problem`."""

    def solve(self, solver: str | None = None, **options: Any) -> Solution:
        """Choose a solver, compile, solve, recover and verify; see `optfair.solve`."""
        from optfair.backends.solve import solve

        return solve(cast("Problem", self), solver, **options)

    def diagnose(self, **options: Any) -> Diagnosis:
        """Say why there is no solution, with evidence; see `optfair.diagnose`."""
        from optfair.diagnosis.diagnose import diagnose

        return diagnose(cast("Problem", self), **options)

    def export(self, path: str | Path) -> None:
        """Write to a file whose ending says the format; see `optfair.export`."""
        from optfair.formats.files import export

        export(cast("Problem", self), path)

    def to_pyomo(self) -> Any:
        """Return a Pyomo model with the same names; see `optfair.compile.to_pyomo`."""
        from optfair.compile.pyomo import to_pyomo

        return to_pyomo(cast("Problem", self))

    def conic_proof(self, facts: Mapping[str, Any], x: Any, z: Any) -> DualProof:
        """Return the proof that a primal-dual pair of the compiled program is of this problem."""
        from optfair.compile.conic_proof import conic_proof

        return conic_proof(cast("Problem", self), facts, x, z)

    def soften(self, name: str, weight: float) -> Any:
        """Replace a constraint by a penalty on its violation; see `optfair.transforms.softening`."""
        from optfair.transforms.softening import soften

        return soften(cast("Problem", self), name, weight)


class CertificateVerbs:
    """Verbs of `Certificate`."""

    def save(self, path: str | Path) -> None:
        """Write a proof file that can be checked without this library; see `optfair.load_proof`."""
        from optfair.formats.proof_file import save_proof

        save_proof(cast("Certificate", self), path)

    def prove(self, *, time_limit: float = 60.0) -> Optimality:
        """Prove the bound of an integer program by branching, where a solver only reports it.

        Parameters
        ----------
        time_limit : float
            Wall seconds for the tree of cases.

        Returns
        -------
        Optimality
            Of the same solution, or of a better one that was met; its ``solution`` is graded
            anew, and `save` writes the tree.

        Raises
        ------
        UnsupportedProblem
            The certificate is of something else, or the relaxation is not convex.
        SolverFailure
            The tree is not closed in time.

        Examples
        --------
        >>> import optfair as of
        >>> s = of.library.load("textbook/knapsack").problem().solve()
        >>> print(s.grade, "->", s.certificate.prove().solution.grade)
        reported by highs -> proved
        """
        from optfair.backends.branching import proved

        return proved(cast("Optimality", self), time_limit)


class SolutionVerbs:
    """Verbs of `Solution`."""

    def residuals(self) -> Residuals:
        """Recompute every residual on the declared problem; see `optfair.residuals`."""
        from optfair.solution.residuals import residuals

        return residuals(cast("Solution", self))

    @property
    def shadow_price(self) -> Mapping[str, NDArray[Any]]:
        """Map from constraint to d(optimum)/d(right-hand side); see `optfair.shadow_prices`."""
        from optfair.solution.shadow_prices import shadow_prices

        return shadow_prices(cast("Solution", self))

    def save(self, path: str | Path) -> None:
        """Write values, multipliers and proof as JSON and npz; see `optfair.load_solution`."""
        from optfair.solution.files import save_solution

        save_solution(cast("Solution", self), path)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays, ready for JSON."""
        from optfair.solution.files import solution_record

        return solution_record(cast("Solution", self))
