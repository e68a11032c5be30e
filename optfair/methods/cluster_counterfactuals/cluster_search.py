"""Counterfactuals of one row that change different features."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["different_feature_sets"]

Features = frozenset[int]


def different_feature_sets(
    nearest: Callable[[Features], tuple[float, Features] | None], count: int
) -> list[Features]:
    r"""Return which features to leave alone for the nearest counterfactuals of different kinds.

    .. math::
        z_{m} = \arg\min \{ \|z - x\| : S(z) \not\supseteq S(z_1), \dots, S(z_{m-1}) \},
        \quad S(z) = \{ j : z_j \ne x_j \}

    Each next one must leave at least one feature of every earlier one alone: the no-good cut.
    A cut is a choice of one feature per earlier set to hold, and holding more features never
    brings the optimum nearer; so a best-first search over sets of held features is exact.

    Parameters
    ----------
    nearest : callable
        Set of columns that are held -> distance and columns that change at the nearest
        counterfactual, None where there is none.
    count : int
        How many to look for.

    Returns
    -------
    list of frozenset of int
        Held columns of each, the nearest first; fewer where there are no more.

    Examples
    --------
    The cost of a set is the sum of 1, 2, 3 over the features used; any two of three will do.

    >>> def nearest(held):
    ...     left = [j for j in range(3) if j not in held][:2]
    ...     return (sum(j + 1.0 for j in left), frozenset(left)) if len(left) == 2 else None
    >>> [sorted(set(range(3)) - held) for held in different_feature_sets(nearest, 5)]
    [[0, 1, 2], [0, 2], [1, 2]]
    """
    queue: list[tuple[float, int, Features, Features]] = []
    seen: set[Features] = set()
    kept: list[tuple[Features, Features]] = []  # held, changed

    def push(held: Features) -> None:
        if held not in seen:
            seen.add(held)
            found = nearest(held)
            if found is not None:
                heapq.heappush(queue, (found[0], len(seen), held, found[1]))

    push(frozenset())
    while queue and len(kept) < count:
        _, _, held, changed = heapq.heappop(queue)
        broken = next((s for _, s in kept if s <= changed), None)
        if broken is None:
            kept.append((held, changed))
            broken = changed
        # the next ones leave some feature of it alone
        for j in broken:
            push(held | {j})
    return [held for held, _ in kept]
