"""Rules on what a map does: how far it moves, how much it stretches, how many features it changes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.composition import Parts, Rule
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.maps.limits import MOVED, Limit
from optfair.methods.group_counterfactuals.maps.map_problem import MapProblem, Piece
from optfair.methods.group_counterfactuals.maps.moments import checked_bound
from optfair.numbers import check_count, check_number, check_positive, checked, real

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["at_most", "l1_sparsity", "loewner", "map_target", "transport_budget"]


# What rules on maps need of a problem.


def map_target(problem: Problem, rule: Rule) -> MapProblem:
    """Return the problem as one of a map.

    Raises
    ------
    DeclarationError
        Its unknown is no map.
    """
    if not isinstance(problem, MapProblem):
        raise DeclarationError(
            f"{type(rule).__name__} is a rule on maps",
            f"this problem has the variables {', '.join(problem.variables)}",
            "use it with AffineMap, PSDMap, GaussianMap or another problem of a map",
        )
    return problem


# Rule on how much a map lets distances grow and shrink.


@dataclass(frozen=True)
class Loewner(Rule):
    """Distances grow by at most K and shrink by at most k."""

    K: float | None = None
    k: float | None = None
    latex = r"\tfrac1k I \preceq A \preceq K I"

    def __post_init__(self) -> None:
        if checked_bound(self.K, "K") is None and checked_bound(self.k, "k") is None:
            raise DeclarationError("loewner has no bound", remedy="give K, k or both")

    def bind(self, problem: Problem) -> Any:
        """Return the bounds on every matrix of the map."""
        p = map_target(problem, self)
        K, k = checked_bound(self.K, "K"), checked_bound(self.k, "k")
        return {
            part + piece.part: term
            for piece in p.pieces
            for part, term in p.spectrum(piece, K, k).items()
        }


@checked(K=check_number, k=check_number)
def loewner(K: float | None = None, k: float | None = None) -> Loewner:
    r"""Distances grow by at most ``K`` and shrink by at most ``k``.

    .. math:: \tfrac1k I \preceq A \preceq K I

    Class: SDP for a symmetric matrix, LP for a diagonal, commutative or scaled one. Of any
    matrix, K bounds the spectral norm (SDP) and k is refused, because it is not convex.

    Parameters
    ----------
    K, k : float >= 1, optional
        Each by itself or both.

    Returns
    -------
    Loewner
        Its terms are called ``name.upper`` and ``name.lower``.

    Raises
    ------
    DeclarationError
        A bound below 1, no bound, or k for a map of any matrix.

    Examples
    --------
    >>> loewner(K=1.5)
    Loewner(K=1.5, k=None)

    References
    ----------
    Valero-Leal et al.: Optimal transport group counterfactual explanations, Proposition A.8.
    """
    return Loewner(K, k)


# Rule on how far a map moves a group.


@dataclass(frozen=True)
class TransportBudget(Rule):
    """The group moves by at most w2, in the 2-Wasserstein distance of the map."""

    w2: float
    latex = r"\|\mu' - \mu\|^2 + \operatorname{tr}((A - I) \Sigma (A - I)^T) \le r^2"

    def __post_init__(self) -> None:
        try:
            fine = bool(np.isfinite(float(self.w2)) and float(self.w2) > 0)
        except (TypeError, ValueError):
            fine = False
        if not fine:
            raise DeclarationError(
                f"w2={self.w2!r} is not positive", remedy="give a distance in units of the features"
            )

    def bind(self, problem: Problem) -> Any:
        """Return the bound on the squared distance, without feature costs."""
        p = map_target(problem, self)
        eye = np.eye(p.normal.size)
        total = 0.0
        for piece in p.pieces:
            moved = cp.sum_squares(piece.mean - piece.moments.mean)
            turned = cp.sum_squares((piece.matrix - eye) @ piece.moments.root)
            total = total + piece.weight * (moved + turned)
        return total <= float(self.w2) ** 2


@checked(w2=check_number)
def transport_budget(w2: float) -> TransportBudget:
    r"""Bound the distance that the group moves by ``w2``.

    .. math:: \|\mu' - \mu\|^2 + \operatorname{tr}((A - I) \Sigma (A - I)^T) \le r^2

    Class: QCQP. Where the target cannot be reached within the budget, the error says how
    far one can get. With feature costs in the objective the budget still counts plain
    distances.

    Parameters
    ----------
    w2 : float
        r > 0, the root of the mean squared distance, in units of the features.

    Returns
    -------
    TransportBudget

    Raises
    ------
    DeclarationError
        Not a positive number.

    Examples
    --------
    >>> transport_budget(1.5)
    TransportBudget(w2=1.5)
    """
    return TransportBudget(w2)


# Rules that a map moves few features: by an absolute norm, or by counting.

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class L1Sparsity(Rule):
    """The absolute changes of mean and matrix add up to at most a limit."""

    limit: float
    sides = frozenset({"limit"})
    latex = r"\|\mu' - \mu\|_1 + \textstyle\sum_{jl} \sigma_l |A_{jl} - I_{jl}| \le s"

    def __post_init__(self) -> None:
        if not _positive(self.limit):
            raise DeclarationError(
                f"limit={self.limit!r} is not positive",
                remedy="give a sum in units of the features",
            )

    def bind(self, problem: Problem) -> Any:
        """Return the sum of bounds on the changes, and the changes between them."""
        p = map_target(problem, self)
        d = p.normal.size
        parts: dict[str, Any] = {}
        variables: dict[str, Any] = {}
        total = 0.0
        for piece in p.pieces:
            m = piece.moments
            turned = cp.multiply(np.tile(m.deviations, (d, 1)), piece.matrix - np.eye(d))
            for word, change in (("shift", piece.mean - m.mean), ("turn", turned)):
                name = word + piece.part
                size = variables[name] = cp.Variable(change.shape, name=name)
                parts[f"{name} up"], parts[f"{name} down"] = change <= size, -size <= change
                total = total + piece.weight * cp.sum(size)
        return Parts({"sum": total <= float(self.limit), **parts}, variables)


@dataclass(frozen=True)
class AtMost(Rule):
    """At most so many features are moved by the map."""

    features: int
    largest: float | None = None
    latex = r"\#\{j : g(x)_j \not\equiv x_j\} \le s"

    def __post_init__(self) -> None:
        whole = isinstance(self.features, (int, np.integer)) and not isinstance(self.features, bool)
        if not whole or self.features < 0:
            raise DeclarationError(
                f"features={self.features!r} is not a number of features",
                remedy="give an integer, 0 or more",
            )
        if self.largest is not None and not _positive(self.largest):
            raise DeclarationError(
                f"largest={self.largest!r} is not positive",
                remedy="give a distance, or leave it out",
            )

    def bind(self, problem: Problem) -> Any:
        """Return the rows that let a feature move only when it is counted."""
        p = map_target(problem, self)
        d = p.normal.size
        moved = cp.Variable(d, name=MOVED)
        reach = _reach(p) if self.largest is None else float(self.largest)
        parts: dict[str, Any] = {
            "count": cp.sum(moved) <= int(self.features),
            "signs": moved >= 0,
            "ones": moved <= 1,
        }
        limits: dict[str, Limit] = {}
        for at, piece in enumerate(p.pieces):
            for word, side in product(("shift", "turn"), ("up", "down")):
                write, part = _Row(at, word, side), f"{word}{piece.part} {side}"
                parts[part], relies = write(p, moved, reach)
                limits[part] = Limit(reach, self.largest is not None, relies, write)
        return Parts(parts, {MOVED: moved}, {MOVED}, limits)


@dataclass(frozen=True)
class _Row:
    """A bound on how far shift or turn of a piece change a feature, 0 when it is not counted."""

    at: int
    word: str
    side: str

    def __call__(self, p: MapProblem, moved: Any, reach: float) -> tuple[Any, frozenset[str]]:
        """Return the row for a limit, and the names of the model's terms it relies on."""
        piece, d = p.pieces[self.at], p.normal.size
        relies: frozenset[str] = frozenset()
        if self.word == "shift":
            change = piece.mean - piece.moments.mean
            most = cp.multiply(reach / np.sqrt(piece.weight * p.feature_costs), moved)
        else:
            turn, relies = _turn(p, piece, reach)
            if not np.isfinite(turn).all():
                raise DeclarationError(
                    "nothing bounds the matrix of this map",
                    "the group has no spread in some direction, and there is no K",
                    "give K, so that a feature that is not counted can be held",
                )
            change = piece.matrix - np.eye(d)
            most = cp.multiply(turn, cp.reshape(moved, (d, 1), order="C") @ np.ones((1, d)))
        return (change <= most if self.side == "up" else -most <= change), relies


def _positive(value: Any) -> bool:
    return 0 < real(value) < np.inf


def _reach(p: MapProblem) -> float:
    """Return twice the root of the cost of the cheapest shift of one feature."""
    w, costs = p.normal, p.feature_costs
    behind = max(
        (
            p.level - float((piece.centered @ w).min() + w @ piece.moments.mean)
            for piece in p.pieces
            if len(piece.centered)
        ),
        default=0.0,
    )
    one = float((costs / np.where(w != 0, w**2, np.nan))[w != 0].min()) ** 0.5 * max(behind, 0.0)
    spread = float(np.sqrt(costs @ np.diag(p.moments.covariance)))
    return 2.0 * one or spread or 1.0


def _turn(p: MapProblem, piece: Piece, reach: float) -> tuple[Floats, frozenset[str]]:
    """Return how far each entry of A - I can be from 0 when the cost is at most reach².

    The model's own bounds on the matrix bound it too, as long as none of them was removed; then
    their names come with it.
    """
    d = p.normal.size
    if piece.moments.singular:
        own = np.full((d, d), np.inf)
    else:
        # max |v_l| over v^T Σ v <= r² is r (Σ^-1)_ll^1/2, with Σ^-1 = L^-T L^-1
        inverse = np.linalg.norm(np.linalg.inv(piece.moments.root), axis=0)
        own = np.outer(reach / np.sqrt(piece.weight * p.feature_costs), inverse)
    K = p.data.get("K")
    names = frozenset(term.name for term in p.bound_terms(p.pieces))
    if K is None or not names <= set(p.constraints):
        return own, frozenset()
    # a bound on the mean of semidefinite matrices bounds each of them by its share
    K = K / piece.weight if p.data.get("bounds") == "global" else K
    return np.minimum(own, K + np.eye(d)), names


@checked(limit=check_number)
def l1_sparsity(limit: float) -> L1Sparsity:
    r"""Bound the absolute changes of a map, in total, by ``limit``.

    .. math::
        \sum_j |\mu'_j - \mu_j| + \sum_{j l} \sigma_l |A_{jl} - I_{jl}| \le s

    with the standard deviations σ of the group, so that everything is in units of the features
    and the sum bounds the mean absolute movement :math:`E \|g(x) - x\|_1`. A small limit leaves
    many features as they are.

    Class: LP.

    Parameters
    ----------
    limit : float
        s > 0.

    Returns
    -------
    L1Sparsity

    Raises
    ------
    DeclarationError
        Not a positive number.

    Examples
    --------
    >>> l1_sparsity(2.0)
    L1Sparsity(limit=2.0)
    """
    return L1Sparsity(limit)


@checked(features=check_count, largest=check_positive)
def at_most(features: int, *, largest: float | None = None) -> AtMost:
    r"""At most so many features are moved by the map; the others stay as they are.

    .. math::
        |\mu'_j - \mu_j| \le \frac{r}{\sqrt{c_j}} z_j,\quad
        |A_{jl} - I_{jl}| \le N_{jl} z_j,\quad
        \sum_j z_j \le s,\quad z \in \{0, 1\}^d

    Class: MILP rows with the binary variable ``name.moved``: the quadratic maps become MIQP, with
    a chance constraint MISOCP, and a map that is an SDP becomes a MISDP. Those are solved by
    branch and bound over the features, with a dual bound for every leaf.

    Parameters
    ----------
    features : int
        s.
    largest : float, optional
        r, a bound on the root of the cost of moving one feature; N follows from it. Where it is
        given, it is a constraint like any other. Without it, the rows are written with a guess:
        twice the cost of the cheapest shift of a single feature. The guess never decides the
        answer: a bound above r², or an infeasible problem, is asked again with the cost of a
        feasible map for r², which takes nothing away. ``solution.attempts`` says so, and
        ``solution.problem`` has the rows of the limit that was used. A file that is exported
        has the rows of the guess: give a limit that fits your constraints first.

    Returns
    -------
    AtMost
        Its terms are ``name.count``, and the rows that hold a feature which is not counted.

    Raises
    ------
    DeclarationError
        Not a number of features; a group without spread in some direction and no K.
    UnsupportedProblem
        When it is solved: the guess may decide, and no feasible map is found to replace it.

    Examples
    --------
    >>> at_most(2)
    AtMost(features=2, largest=None)
    """
    return AtMost(features, largest)
