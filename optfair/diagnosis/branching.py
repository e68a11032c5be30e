"""Infeasibility of integer constraints, proved by branching down to Farkas certificates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optfair.backends.branching import Case, Split, bound_of, cases, excluded, integer_columns
from optfair.backends.policy import conic_interface
from optfair.compile.form import compile_problem
from optfair.core.certificate import Certificate, Verdict
from optfair.diagnosis.report import Clock
from optfair.diagnosis.system import System
from optfair.errors import OptfairError
from optfair.transforms.integrality import relaxed

# Cases of a tree, and seconds it is worth: what takes more is left to the solver's word.
CASES, SECONDS = 30, 5.0


@dataclass(frozen=True, eq=False, repr=False)
class BranchingProof(Certificate):
    """A tree whose branches leave out no integer and whose leaves are infeasible.

    Parameters
    ----------
    system : System
        Where the names belong.
    names : tuple of str
        The constraints, with the integrality they need.
    tree : Split or Case
        A leaf certifies that the continuous constraints and the bounds above it in the tree
        exclude each other.
    """

    system: System
    names: tuple[str, ...]
    tree: Split | Case

    def verify(self) -> Verdict:
        """Compile the constraints anew and check the certificate of every leaf."""
        part = self.system.part(self.names)
        compiled = compile_problem(relaxed(part), conic_interface())
        found = bound_of(compiled.form, integer_columns(part, compiled), self.tree)
        if found.value == np.inf:
            return Verdict(True)
        return Verdict(False, (found.fault or "a case has a bound, and may have a point",))

    @property
    def leaves(self) -> int:
        """Number of cases."""
        return sum(isinstance(n, Case) for _, n in cases(self.tree))

    def __str__(self) -> str:
        return f"{self.leaves} cases by branching, each with a Farkas certificate"

    __repr__ = __str__


def prove_by_branching(
    system: System, names: tuple[str, ...], clock: Clock
) -> BranchingProof | None:
    """Return a proof that integer constraints exclude each other, None where the tree is large.

    Parameters
    ----------
    system : System
        Where the names belong.
    names : tuple of str
        The constraints, with the integrality they need.
    clock : Clock
        When to stop.
    """
    seconds = SECONDS if clock.left is None else min(SECONDS, clock.left)
    try:
        found = clock.run(lambda: excluded(system.part(names), seconds, CASES))
    except OptfairError:  # it does not compile to cones
        return None
    return None if found is None else BranchingProof(system, names, found[1])
