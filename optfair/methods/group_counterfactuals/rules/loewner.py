"""Rule on how much a map lets distances grow and shrink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.group_counterfactuals.maps.map_data import checked_bound
from optfair.methods.group_counterfactuals.rules.map_target import map_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Loewner", "loewner"]


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
