"""Sites that have every row within reach, or the proof by cases that no few sites do."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Integers = NDArray[np.intp]

# Cases looked at between two glances at the clock.
GLANCE = 64


def covering_sites(
    reach: Bools, most: int, deadline: float = np.inf
) -> tuple[Integers | None, bool]:
    r"""Find at most so many sites that every row reaches one of, or exclude them all.

    .. math:: \text{find } S,\; |S| \le k,\; \text{with } S \cap R_i \ne \emptyset \;\forall i

    by cases on the row that reaches the fewest sites left: one of them is open, those before it
    are closed. A case ends where the rows that the largest of them reach together are too few.
    Nothing is rounded, so that a search that ends without sites proves that there are none.

    Parameters
    ----------
    reach : array (n, m) of bool
        Whether a row reaches a site.
    most : int
        Sites that may be open.
    deadline : float
        ``time.perf_counter()`` value at which the search gives up.

    Returns
    -------
    sites : array or None
    decided : bool
        False where time was up.

    Examples
    --------
    >>> reach = np.array([[True, False, True], [False, True, True], [True, False, False]])
    >>> covering_sites(reach, 2)[0].tolist(), covering_sites(reach, 1)
    ([0, 1], (None, True))
    """
    rows = _least(reach)
    m = reach.shape[1]
    every = np.ones(len(rows), dtype=bool), np.ones(m, dtype=bool)
    cases: list[tuple[Bools, Bools, tuple[int, ...]]] = [(*every, ())]
    looked = 0
    while cases:
        looked += 1
        if looked % GLANCE == 0 and time.perf_counter() > deadline:
            return None, False
        left, free, opened = cases.pop()
        here = rows[left] & free
        if not len(here):
            return np.array(sorted(opened), dtype=np.intp), True
        picks = most - len(opened)
        gains = here.sum(axis=0)
        if picks <= 0 or np.sort(gains)[-picks:].sum() < len(here):
            continue
        each = here.sum(axis=1)
        row = int(each.argmin())
        sites = np.flatnonzero(here[row])
        sites = sites[np.argsort(-gains[sites], kind="stable")]
        at = np.flatnonzero(left)
        further: list[tuple[Bools, Bools, tuple[int, ...]]] = []
        for j in sites.tolist():
            free = free.copy()
            rest = left.copy()
            rest[at[here[:, j]]] = False
            free[j] = False
            further.append((rest, free, (*opened, j)))
        cases += reversed(further)
    return None, True


def _least(reach: Bools) -> Bools:
    """Return the rows' sets of sites that contain no other row's set."""
    rows = np.unique(reach, axis=0)
    rows = rows[np.argsort(rows.sum(axis=1), kind="stable")].astype(np.float32)
    kept = np.ones(len(rows), dtype=bool)
    size = rows.sum(axis=1)
    for start in range(0, len(rows), 512):
        part = slice(start, start + 512)
        # a set contains an earlier one: the one's sites all are in the other
        inside = rows @ rows[part].T >= size[:, None]
        earlier = np.arange(len(rows))[:, None] < np.arange(len(rows))[None, part]
        kept[part] = ~(inside & earlier).any(axis=0)
    return np.asarray(rows[kept] > 0.5)
