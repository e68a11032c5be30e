"""Rules on pairs of rows: links that hold them together or keep them apart, and what they contradict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.certificate import Verdict
from optfair.core.composition import Rule
from optfair.core.problem_class import LP, Evidence
from optfair.core.solution import Solution
from optfair.core.term import ConstraintTerm
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.algorithms.costs import SeparableCost
from optfair.methods.fair_clustering.algorithms.linked_rows import LinkedRows, linked_parts
from optfair.methods.fair_clustering.cost_rules import CostTerm, needs_costs
from optfair.numbers import check_table

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.methods.fair_clustering.assignment import FairAssignment


@dataclass(frozen=True, eq=False, repr=False)
class LinkTerm(ConstraintTerm):
    """Links between rows: no rule on masses, and contradictions show before any solve.

    Attributes
    ----------
    pairs : array (m, 2)
        Rows that are linked.
    together : bool
        Whether they must be, or cannot be.
    apart : sparse (m, n)
        First row of each pair, plus or minus the second.
    """

    pairs: NDArray[np.intp] = field(default_factory=lambda: np.zeros((0, 2), dtype=np.intp))
    together: bool = True
    apart: Any = None


def check_links(constraints: Mapping[str, Any], cost: SeparableCost) -> None:
    """Raise on links that exclude each other, or leave rows no cluster.

    Raises
    ------
    DeclarationError
        Rows that must be linked and cannot be; linked rows whose barred arcs leave no cluster,
        also those that cannot be linked with rows of one cluster.
    """
    links = [t for t in constraints.values() if isinstance(t, LinkTerm)]
    if not links:
        return
    n = cost.rows
    none = np.zeros((0, 2), dtype=np.intp)
    both = np.concatenate([none, *(t.pairs for t in links if t.together)])
    part = linked_parts(both, n)
    parts = int(part.max()) + 1
    for term in links:
        same = part[term.pairs[:, 0]] == part[term.pairs[:, 1]]
        clash = np.flatnonzero(same & (not term.together))
        if clash.size:
            i, j = term.pairs[clash[0]]
            raise DeclarationError(
                f"rows {i} and {j} must be linked and cannot be",
                f"{clash.size} pairs are in both, directly or through others",
                "take them out of one of the two",
            )
    bars = {
        name: term.charge.barred
        for name, term in constraints.items()
        if isinstance(term, CostTerm) and term.charge.barred is not None
    }
    if not bars:
        return
    names = ", ".join(map(repr, bars))
    gathered = sp.csr_array((np.ones(n), (part, np.arange(n))), shape=(parts, n))
    free = gathered @ np.any([*bars.values()], axis=0).astype(float) == 0.0
    stuck = np.flatnonzero(~free.any(axis=1)[part])
    if stuck.size:
        raise DeclarationError(
            f"rows that must be linked have no cluster, such as {stuck[:5].tolist()}",
            f"{names} bars every cluster to one of them or another",
            "take the link out, or allow a cluster to all of them",
        )
    pairs = np.concatenate([none, *(t.pairs for t in links if not t.together)])
    ends = part[np.concatenate([pairs, pairs[:, ::-1]])].T
    mates = sp.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(parts, parts))
    while free.any(axis=1).all():
        # rows of one cluster alone bar it to those that they cannot be linked with
        alone = free & (free.sum(axis=1) == 1)[:, None]
        taken = mates @ alone.astype(float) > 0.0
        if not (free & taken).any():
            return
        free &= ~taken
        left = free.any(axis=1)
        if not left.all():
            u = int(np.argmin(left))
            others = [v for v in mates[[u]].indices.tolist() if alone[v].any()]
            said = [
                f"row {int(np.argmax(part == v))} to cluster {int(np.argmax(alone[v]))}"
                for v in others[:5]
            ]
            raise DeclarationError(
                f"row {int(np.argmax(part == u))} has no cluster that is free of rows it cannot be"
                " linked with",
                f"{names} and the links hold {', '.join(said)}",
                "take a link out, or allow further clusters to these rows",
            )


def pairs_of(p: FairAssignment, together: bool) -> NDArray[np.intp]:
    """Return the pairs of rows that must be together, or apart."""
    none = np.zeros((0, 2), dtype=np.intp)
    return np.concatenate([none, *(t.pairs for t in p.links.values() if t.together is together)])


def units_of(p: FairAssignment) -> LinkedRows:
    """Return the units of rows that must be together."""
    w, shape = p.data["weights"], (p.shares.size, p.cost.clusters)
    return LinkedRows(pairs_of(p, True), p.data["groups"], w, shape)


def linked_rows(p: FairAssignment) -> tuple[LinkedRows, NDArray[np.intp]] | None:
    """Return units of rows, and pairs that are kept apart; None without links."""
    return (units_of(p), pairs_of(p, False)) if p.links else None


@dataclass(frozen=True, repr=False)
class _Links(Rule):
    pairs: Any

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.pairs)} pairs)"

    def rows(self, problem: Problem) -> NDArray[np.intp]:
        """Return the pairs (m, 2), checked."""
        n = needs_costs(problem, self).rows
        pairs = np.asarray(check_table(self.pairs, "pairs"))
        if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu" or not len(pairs):
            raise DeclarationError(
                f"pairs are {pairs.dtype} of shape {pairs.shape}",
                remedy="give an array (m, 2) of row numbers",
            )
        if pairs.min() < 0 or pairs.max() >= n or (pairs[:, 0] == pairs[:, 1]).any():
            raise DeclarationError(
                "pairs name no two rows", f"there are {n} rows", "number them from 0 on"
            )
        return pairs.astype(np.intp)


def _incidence(pairs: NDArray[np.intp], rows: int, sign: float) -> sp.csr_array:
    """Return the first row of each pair plus ``sign`` times the second (m, n)."""
    m = len(pairs)
    signs, at = np.repeat([1.0, sign], m), np.tile(np.arange(m), 2)
    return sp.csr_array((signs, (at, pairs.T.ravel())), shape=(m, rows))


@dataclass(frozen=True, repr=False)
class MustLink(_Links):
    """Two rows have the same fractions in every cluster."""

    latex = r"A_{ik} = A_{jk}"

    def bind(self, problem: Problem) -> Any:
        """Return one equality per pair and cluster."""
        pairs, A = self.rows(problem), problem["assignment"]
        apart = _incidence(pairs, A.shape[0], -1.0)
        return LinkTerm(
            "must link",
            frozenset({"assignment"}),
            Evidence("must link", "affine", "Zero", LP),
            build=lambda: apart @ A == 0,
            violation=lambda v: np.abs(apart @ np.asarray(v["assignment"])),
            shape=(len(pairs), A.shape[1]),
            latex=self.latex,
            pairs=pairs,
            apart=apart,
        )


@dataclass(frozen=True, repr=False)
class CannotLink(_Links):
    """Two rows share no cluster, if they are whole."""

    latex = r"A_{ik} + A_{jk} \le 1"

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per pair and cluster."""
        pairs, A = self.rows(problem), problem["assignment"]
        if A.shape[1] == 1:
            raise DeclarationError(
                "one cluster keeps no rows apart",
                f"{len(pairs)} pairs cannot be linked",
                "ask for at least two clusters",
            )
        both = _incidence(pairs, A.shape[0], 1.0)
        return LinkTerm(
            "cannot link",
            frozenset({"assignment"}),
            Evidence("cannot link", "affine", "Nonpositive", LP),
            build=lambda: both @ A <= 1,
            violation=lambda v: np.maximum(both @ np.asarray(v["assignment"]) - 1.0, 0.0),
            shape=(len(pairs), A.shape[1]),
            scale=1.0,
            latex=self.latex,
            pairs=pairs,
            together=False,
            apart=both,
        )

    def verdict(self, solution: Solution) -> Verdict:
        """Say which pairs share a cluster, by fractions or by labels."""
        A = np.asarray(solution["assignment"])
        pairs = self.rows(solution.problem)
        first, second = A[pairs[:, 0]], A[pairs[:, 1]]
        shared = np.minimum(first, second).sum(axis=1) > 1e-6
        same = first.argmax(axis=1) == second.argmax(axis=1)
        reasons = []
        if shared.any():
            reasons.append(
                f"{int(shared.sum())} of {len(pairs)} pairs share a cluster by fractions, such as"
                f" rows {pairs[np.argmax(shared)].tolist()}: half and half obeys the soft rule"
            )
        if same.any():
            reasons.append(f"{int(same.sum())} of {len(pairs)} pairs have the same label")
        return Verdict(not reasons, tuple(reasons))


def must_link(pairs: Any) -> MustLink:
    r"""Give both rows of each pair the same fractions.

    .. math:: A_{ik} = A_{jk} \quad \forall (i, j), k

    Class: LP. Rows that are linked, directly or through others, are merged, also under rules on costs;
    beside other rules on single rows a general solver gets m·K rows for m pairs.

    Parameters
    ----------
    pairs : array (m, 2) of int
        Numbers of rows.

    Returns
    -------
    MustLink

    Examples
    --------
    >>> import optfair as of
    >>> of.fair_clustering.must_link([[0, 1]])
    MustLink(1 pairs)
    """
    return MustLink(pairs)


def cannot_link(pairs: Any) -> CannotLink:
    r"""Keep the two rows of each pair apart.

    .. math:: A_{ik} + A_{jk} \le 1 \quad \forall (i, j), k

    Class: LP, and weak: half of both rows in each of two clusters obeys it. It says what it seems
    to say for whole rows, ``with_integrality("assignment")``; ``verdict(solution)`` of the rule
    names the pairs that share a cluster. Pairs have prices, under linear rules on masses and rules on
    costs and beside `must_link`; with other rules on single rows a general solver gets m·K rows.

    Parameters
    ----------
    pairs : array (m, 2) of int
        Numbers of rows.

    Returns
    -------
    CannotLink

    Examples
    --------
    >>> import optfair as of
    >>> rule = of.fair_clustering.cannot_link([[0, 1]])
    >>> p = of.FairAssignment(
    ...     [[0.0], [0.1], [0.2], [5.0]], groups=list("abab"), centers=[[0.0], [5.0]], fairness=None
    ... ).with_constraints(apart=rule)
    >>> bool(rule.verdict(p.with_integrality("assignment").solve()))
    True
    """
    return CannotLink(pairs)
