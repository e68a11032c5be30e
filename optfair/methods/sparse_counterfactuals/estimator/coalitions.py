"""Shapley values by all coalitions of the features in which coupled rows differ."""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

__all__ = [
    "check_enumerated",
    "coalition_values",
    "most_differing",
    "scored_once",
    "shapley_weights",
]

# Bytes of one batch of rows, and rough bytes of a cell while the model works on it.
MEMORY, CELL = 64_000_000, 32
# Coalitions of one pair that are held at a time are 2 to this power at most.
LARGEST = 20


def check_enumerated(features: Any) -> None:
    """Raise unless this many features can be enumerated.

    Raises
    ------
    DeclarationError
    """
    whole = isinstance(features, (int, np.integer)) and not isinstance(features, bool)
    if not whole or not 0 <= features <= LARGEST:
        raise DeclarationError(
            f"exact_features={features!r} is not a number of features to enumerate",
            "a pair of rows is 2 to the power of it rows of the model",
            f"give a whole number from 0 to {LARGEST}; beyond it, values are estimated",
        )


def most_differing(x: Indices, r: Indices, share: Floats) -> Indices:
    """Return in how many features each row differs at most from one coupled to it (n,).

    Parameters
    ----------
    x, r : int arrays (n, d), (m, d)
        Coded rows.
    share : array (n, m)
        Coupling; only pairs with mass count.
    """
    rows, partners = np.nonzero(share)
    most, step = np.zeros(x.shape[0], dtype=np.intp), max(1, MEMORY // (8 * x.shape[1]))
    for at in range(0, rows.size, step):
        i, j = rows[at : at + step], partners[at : at + step]
        np.maximum.at(most, i, (x[i] != r[j]).sum(axis=1))
    return most


def shapley_weights(players: int) -> Floats:
    r"""Return the matrix that takes the values of all coalitions to Shapley values.

    .. math::
        W_{Sk} = \frac{1}{d \binom{d-1}{|S| - 1}} \;(k \in S), \qquad
        W_{Sk} = -\frac{1}{d \binom{d-1}{|S|}} \;(k \notin S)

    Parameters
    ----------
    players : int
        d ≥ 1.

    Returns
    -------
    array (2^d, d)
        Coalition number s has the players whose bits are set in s.

    Examples
    --------
    >>> shapley_weights(1).tolist()
    [[-1.0], [1.0]]
    >>> (shapley_weights(2).T @ [0.0, 1.0, 0.0, 4.0]).tolist()
    [2.5, 1.5]
    """
    inside = members(players)
    size = inside.sum(axis=1)
    d = players
    # entry s: weight of a player who joins s others, or who is missed by them
    joins = np.array([1.0 / (d * comb(d - 1, s)) for s in range(d)])
    gains = joins[np.maximum(size - 1, 0)][:, None]
    losses = joins[np.minimum(size, d - 1)][:, None]
    return np.asarray(np.where(inside, gains, -losses))


def members(players: int) -> Flags:
    """Return all coalitions of players (2^d, d), one per line."""
    return np.asarray((np.arange(2**players)[:, None] >> np.arange(players)) % 2 == 1)


def coalition_values(
    score: Callable[[Indices], Floats],
    x: Indices,
    r: Indices,
    share: Floats,
    *,
    memory: int = MEMORY,
) -> Floats:
    r"""Return the p-SHAP values of coded rows.

    Shapley values are linear in the value function, so those of a row are the mean of those
    against each counterfactual coupled to it. In a pair only the features that differ play.
    All pairs with as many of them are one batch, up to a memory cap, and the model is asked
    once for each different row in it.

    Parameters
    ----------
    score : callable
        Coded rows to one number each.
    x, r : int arrays (n, d), (m, d)
        Coded rows.
    share : array (n, m)
        Conditional coupling; rows sum to 1.
    memory : int
        Bytes a batch may take.

    Returns
    -------
    array (n, d)
    """
    phi = np.zeros(x.shape)
    rows, partners = np.nonzero(share)
    d = x.shape[1]
    pairs = max(1, memory // (8 * d))
    for start in range(0, rows.size, pairs):
        i, j = rows[start : start + pairs], partners[start : start + pairs]
        differ = x[i] != r[j]
        count = differ.sum(axis=1)
        for k in np.unique(count[count > 0]):
            at = np.flatnonzero(count == k)
            inside, weights = members(int(k)), shapley_weights(int(k))
            step = max(1, memory // (CELL * d * inside.shape[0]))
            for low in range(0, at.size, step):
                part = at[low : low + step]
                places = np.nonzero(differ[part])[1].reshape(part.size, k)
                values = _values(score, x[i[part]], r[j[part]], places, inside)
                found = (values @ weights) * share[i[part], j[part], None]
                np.add.at(phi, (i[part, None], places), found)
    return phi


def _values(
    score: Callable[[Indices], Floats], x: Indices, r: Indices, places: Indices, inside: Flags
) -> Floats:
    """Return the score of every coalition of every pair (pairs, 2^k)."""
    mixed = np.repeat(r[:, None, :], inside.shape[0], axis=1)
    own = np.take_along_axis(x, places, axis=1)
    other = np.take_along_axis(r, places, axis=1)
    np.put_along_axis(
        mixed,
        np.broadcast_to(places[:, None, :], (places.shape[0], *inside.shape)),
        np.where(inside, own[:, None, :], other[:, None, :]),
        axis=2,
    )
    flat = mixed.reshape(-1, x.shape[1])
    return scored_once(score, flat).reshape(places.shape[0], inside.shape[0])


def scored_once(score: Callable[[Indices], Floats], codes: Indices) -> Floats:
    """Return scores of coded rows, asking once for rows that are equal."""
    # random keys: equal rows have equal keys, and different ones practically never
    rng = np.random.default_rng(0)
    key = np.zeros(codes.shape[0], dtype=np.uint64)
    for j in range(codes.shape[1]):
        table = rng.integers(2**64, size=int(codes[:, j].max()) + 1, dtype=np.uint64)
        key += table[codes[:, j]]
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    if first.size > 0.9 * codes.shape[0] or not np.array_equal(codes[first[back]], codes):
        return score(codes)
    return np.asarray(score(codes[first])[back])
