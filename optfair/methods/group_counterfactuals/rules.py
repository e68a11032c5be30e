"""Rules on what a map does: how far it moves, how much it stretches, how many features it changes, and to whom it is sure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from scipy.special import ndtri

from optfair.core.composition import Parts, Rule
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.group_problem import Moments, checked_bound
from optfair.methods.group_counterfactuals.limits import MOVED, Limit
from optfair.methods.group_counterfactuals.map_problem import MapProblem, Piece
from optfair.numbers import (
    Floats,
    check_choice,
    check_count,
    check_number,
    check_positive,
    check_probability,
    check_text,
    checked,
    floats,
)

if TYPE_CHECKING:
    from optfair.core.problem import Problem


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
        p = self.fitting(problem, MapProblem)
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


@dataclass(frozen=True)
class TransportBudget(Rule):
    """The group moves by at most w2, in the 2-Wasserstein distance of the map."""

    w2: float
    latex = r"\|\mu' - \mu\|^2 + \operatorname{tr}((A - I) \Sigma (A - I)^T) \le r^2"

    def bind(self, problem: Problem) -> Any:
        """Return the bound on the squared distance, without feature costs."""
        p = self.fitting(problem, MapProblem)
        eye = np.eye(p.normal.size)
        total = 0.0
        for piece in p.pieces:
            moved = cp.sum_squares(piece.mean - piece.moments.mean)
            turned = cp.sum_squares((piece.matrix - eye) @ piece.moments.root)
            total = total + piece.weight * (moved + turned)
        return total <= float(self.w2) ** 2


@checked(w2=check_positive)
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


@dataclass(frozen=True)
class L1Sparsity(Rule):
    """The absolute changes of mean and matrix add up to at most a limit."""

    limit: float
    sides = frozenset({"limit"})
    latex = r"\|\mu' - \mu\|_1 + \textstyle\sum_{jl} \sigma_l |A_{jl} - I_{jl}| \le s"

    def bind(self, problem: Problem) -> Any:
        """Return the sum of bounds on the changes, and the changes between them."""
        p = self.fitting(problem, MapProblem)
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

    def bind(self, problem: Problem) -> Any:
        """Return the rows that let a feature move only when it is counted."""
        p = self.fitting(problem, MapProblem)
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


@checked(limit=check_positive)
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


@checked(features=partial(check_count, least=0), largest=check_positive)
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


DISTRIBUTIONS = ("gaussian", "any")


@dataclass(frozen=True, eq=False)
class Chance(Rule):
    """New members reach the target with probability at least 1 - delta."""

    delta: float
    mean: Any = None
    covariance: Any = None
    distribution: str = "gaussian"
    confidence: float | None = None
    latex = r"w^T \mathbb{E} g(x) - \kappa \|\Sigma^{1/2} A^T w\| \ge t"

    def __post_init__(self) -> None:
        check_choice(self.distribution, "distribution", DISTRIBUTIONS)
        check_probability(self.delta, "delta")
        if self.distribution == "gaussian" and self.delta > 0.5:
            raise DeclarationError(
                f"delta={self.delta:g} is above 1/2",
                "less than half of a Gaussian at the target is not a convex constraint",
                "give delta <= 0.5",
            )
        if (self.mean is None) != (self.covariance is None):
            raise DeclarationError(
                "mean and covariance belong together", remedy="give both or none"
            )
        if self.confidence is None:
            return
        check_probability(self.confidence, "confidence")
        if self.distribution == "any" or self.mean is not None:
            raise DeclarationError(
                "confidence is about Gaussian moments that are estimated",
                "here the moments are known, or the distribution is any",
                "leave confidence out",
            )

    @property
    def factor(self) -> float:
        """Number κ of standard deviations for known moments."""
        if self.distribution == "any":
            return math.sqrt((1.0 - self.delta) / self.delta)
        return -float(ndtri(self.delta))

    def bind(self, problem: Problem) -> Any:
        """Return one cone for each Gaussian; the part says where its moments come from."""
        p = self.fitting(problem, MapProblem)
        parts = {}
        for piece in p.pieces:
            moments, word, factor = self._moments(p, piece)
            direction = p.direction(piece)
            shift = direction @ (moments.mean - piece.moments.mean)
            expected = p.normal @ piece.mean + shift
            spread = moments.root.T @ direction
            cone = factor > 0 and spread.size
            parts[word + piece.part] = (
                cp.SOC(expected - p.level, factor * spread) if cone else expected >= p.level
            )
        return parts

    def _moments(self, p: MapProblem, piece: Piece) -> tuple[Moments, str, float]:
        """Return moments, where they come from, and the number of standard deviations."""
        if self.mean is not None:
            if len(p.pieces) > 1:
                raise DeclarationError(
                    "one mean and covariance for several components",
                    f"the problem has {len(p.pieces)}",
                    "leave them out: those of the mixture are used",
                )
            given = Moments.given(self.mean, self.covariance)
            if given.mean.size != p.normal.size:
                raise DeclarationError(
                    f"the moments have {given.mean.size} features, the problem {p.normal.size}",
                    remedy="give moments of the same features",
                )
            return given, "known moments", self.factor
        plugged = bool(p.data["plug in"])
        if self.confidence is None:
            return piece.moments, "plug-in moments" if plugged else "known moments", self.factor
        if not plugged or len(p.pieces) > 1:
            raise DeclarationError(
                "confidence is about the moments of one sample",
                "the problem was declared with moments of its own",
                "leave confidence out",
            )
        n, d = p.data["centered"].shape
        return (
            piece.moments,
            "moments with margin",
            moment_margin(n, d, self.factor, self.confidence),
        )


def moment_margin(rows: int, features: int, factor: float, confidence: float) -> float:
    r"""Return how many sample deviations hold ``factor`` true ones for every direction at once.

    .. math::
        \kappa' = \sqrt{\tfrac{n}{n - 1}} \Big(r + \kappa \sqrt{\tfrac{n - 1}{\lambda}}\Big),\quad
        r^2 = \frac{d (n - 1)}{n (n - d)} F_{d, n - d}(1 - \tfrac\beta2),\quad
        \lambda = \big(\sqrt{n - 1} - \sqrt d - \sqrt{2 \ln(2 / \beta)}\big)^2

    For n independent Gaussian rows, with probability at least 1 - β the mean is within r sample
    deviations in every direction (Hotelling) and no true variance exceeds the sample's by more
    than (n - 1) / λ (Davidson and Szarek). The direction of a map is chosen by the data, so
    a margin must hold for all of them.

    Parameters
    ----------
    rows, features : int
        n and d.
    factor : float
        κ, for known moments.
    confidence : float
        1 - β.

    Raises
    ------
    DeclarationError
        Too few rows for any margin.
    """
    from scipy.stats import f

    n, d, beta = rows, features, 1.0 - confidence
    least = math.sqrt(d) + math.sqrt(2.0 * math.log(2.0 / beta))
    root = math.sqrt(max(n - 1, 0)) - least
    if root <= 0.0 or n <= d:
        raise DeclarationError(
            f"{n} members are too few for a margin at confidence {confidence:g}",
            f"{d} features need at least {math.floor(least**2) + 2}",
            "give moments that are known, or more members",
        )
    apart = math.sqrt(d * (n - 1) / (n * (n - d)) * float(f.ppf(1.0 - beta / 2.0, d, n - d)))
    return math.sqrt(n / (n - 1)) * (apart + factor * math.sqrt(n - 1) / root)


@checked(
    delta=check_number,
    mean=floats,
    covariance=floats,
    distribution=check_text,
    confidence=check_number,
)
def chance(
    delta: float,
    *,
    mean: Any = None,
    covariance: Any = None,
    distribution: str = "gaussian",
    confidence: float | None = None,
) -> Chance:
    r"""Send new members to the target with probability at least ``1 - delta``.

    .. math::
        P(w^T g(X) \ge t) \ge 1 - \delta
        \iff w^T(\mu' + A (\mu - \bar x)) - \kappa \|\Sigma^{1/2} A^T w\| \ge t

    with :math:`\kappa = \Phi^{-1}(1 - \delta)` for :math:`X \sim N(\mu, \Sigma)`, and
    :math:`\kappa = \sqrt{(1 - \delta) / \delta}` for every distribution with these moments
    (Cantelli), where it is sufficient.

    Class: SOCP.

    Parameters
    ----------
    delta : float in (0, 1)
        Share that may miss the target; at most 1/2 for a Gaussian.
    mean, covariance : array-like (d,), (d, d), optional
        Moments of new members, if they are known. By default those the problem was declared
        with, or those of its members: then the term is called ``name.plug-in moments``, because
        the guarantee is about the moments that were plugged in and not about new members.
    distribution : {"gaussian", "any"}
        What is known beyond the moments.
    confidence : float in (0, 1), optional
        Widen κ so that, for Gaussian members, the guarantee holds with this probability over
        the sample whose moments are used; see `moment_margin`.

    Returns
    -------
    Chance
        Its term is called ``name.known moments``, ``name.plug-in moments`` or
        ``name.moments with margin``.

    Raises
    ------
    DeclarationError
        Numbers outside their ranges, moments that do not fit, too few members for a margin.

    Examples
    --------
    >>> rule = chance(0.05)
    >>> round(rule.factor, 4), round(chance(0.05, distribution="any").factor, 4)
    (1.6449, 4.3589)

    Notes
    -----
    Measured on 100 samples of n Gaussian members each, with delta = 0.05: plug-in moments missed
    the target with a mean share of 0.071 and up to 0.24 at n = 30 in two features, more than
    delta in 60 of the 100; still in 56 at n = 500 in five features, by at most 0.015. With
    ``confidence=0.9`` none missed by more than delta; the mean share was 0.013 at n = 500.

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Section 4.4.2. Davidson, Szarek: Local operator
    theory, random matrices and Banach spaces, 2001, Theorem II.13.
    """
    return Chance(delta, mean, covariance, distribution, confidence)
