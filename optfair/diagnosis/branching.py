"""Infeasibility of integer constraints, proved by branching down to Farkas certificates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.solve import solve
from optfair.core.certificate import Certificate, Verdict
from optfair.core.problem import Problem
from optfair.diagnosis.report import Clock
from optfair.diagnosis.scaling import proof_faults
from optfair.diagnosis.system import System, second_opinion
from optfair.errors import Infeasible, OptfairError
from optfair.transforms.integrality import relaxed

__all__ = ["Branch", "BranchingProof", "branch_problem", "prove_by_branching", "walked"]

# Nodes of a tree, and seconds it is worth: what takes more is left to the solver's word.
NODES, SECONDS = 60, 5.0


@dataclass(frozen=True, eq=False)
class Branch:
    """An integer entry is at most ``limit``, or at least ``limit + 1``."""

    variable: str
    index: tuple[int, ...]
    limit: int
    below: Branch | InfeasibilityProof
    above: Branch | InfeasibilityProof


@dataclass(frozen=True, eq=False, repr=False)
class BranchingProof(Certificate):
    """A tree whose branches leave out no integer and whose leaves are infeasible.

    Parameters
    ----------
    system : System
        Where the names belong.
    names : tuple of str
        The constraints, with the integrality they need.
    tree : Branch or InfeasibilityProof
        A leaf certifies that the continuous constraints and the bounds above it in the tree
        exclude each other.
    """

    system: System
    names: tuple[str, ...]
    tree: Branch | InfeasibilityProof

    def verify(self) -> Verdict:
        """Compile every leaf anew and check its certificate."""
        reasons: list[str] = []
        integer = {v for k, v in self.system.integers.items() if k in self.names}
        for path, node in walked(self.tree, ()):
            if isinstance(node, Branch):
                if node.variable not in integer or node.limit != int(node.limit):
                    reasons.append(f"{node.variable!r} is not integer in the conflict")
            else:
                reasons += proof_faults(branch_problem(self.system, self.names, path), node)
        return Verdict(not reasons, tuple(dict.fromkeys(reasons)))

    @property
    def leaves(self) -> int:
        """Number of cases."""
        return sum(isinstance(n, InfeasibilityProof) for _, n in walked(self.tree, ()))

    def __str__(self) -> str:
        return f"{self.leaves} cases by branching, each with a Farkas certificate"

    __repr__ = __str__


# (variable, index, whether from above, limit)
Bound = tuple[str, tuple[int, ...], bool, int]


def walked(
    node: Branch | InfeasibilityProof, path: tuple[Bound, ...]
) -> Iterator[tuple[tuple[Bound, ...], Branch | InfeasibilityProof]]:
    """Return every node of a tree with the bounds above it."""
    yield path, node
    if isinstance(node, Branch):
        at = (node.variable, node.index)
        yield from walked(node.below, (*path, (*at, True, node.limit)))
        yield from walked(node.above, (*path, (*at, False, node.limit + 1)))


def branch_problem(system: System, names: tuple[str, ...], path: tuple[Bound, ...]) -> Problem:
    """Return the continuous constraints with the bounds of a node."""
    p = relaxed(system.part(names))
    for depth, (variable, index, upper, limit) in enumerate(path):
        entry = p[variable][index] if index else p[variable]
        label = f"branch {depth} on {variable}"
        p = p.with_constraints({label: entry <= limit if upper else entry >= limit})
    return p


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
    integer = [v for k, v in system.integers.items() if k in names]
    end = clock.seconds + SECONDS
    nodes = 0

    def grown(path: tuple[Bound, ...]) -> Branch | InfeasibilityProof | None:
        nonlocal nodes
        nodes += 1
        if nodes > NODES or clock.stopped or clock.seconds > end:
            return None
        p = branch_problem(system, names, path)
        try:
            values = solve(p, tolerance=system.tolerance, time_limit=SECONDS).values
        except Infeasible as e:
            proof = e.certificate or second_opinion(p, system.tolerance, SECONDS)
            return proof if isinstance(proof, InfeasibilityProof) else None
        except OptfairError:
            return None
        chosen = _most_fractional(values, integer)
        if chosen is None:
            return None
        variable, index, value = chosen
        limit = int(np.floor(value))
        below = grown((*path, (variable, index, True, limit)))
        above = None if below is None else grown((*path, (variable, index, False, limit + 1)))
        if below is None or above is None:
            return None
        return Branch(variable, index, limit, below, above)

    tree = clock.run(lambda: grown(()))
    return None if tree is None else BranchingProof(system, names, tree)


def _most_fractional(values: Any, integer: list[str]) -> tuple[str, tuple[int, ...], float] | None:
    """Return the integer entry farthest from an integer, None when all are integral."""
    best: tuple[float, str, tuple[int, ...], float] | None = None
    for name in integer:
        x = np.asarray(values[name], dtype=float)
        off = np.abs(x - np.round(x))
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), x.shape))
        if off[at] > 1e-6 and (best is None or off[at] > best[0]):
            best = (float(off[at]), name, at, float(x[at]))
    return None if best is None else best[1:]
