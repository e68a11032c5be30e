"""How much is done for a proof: until when moves are tried, and which of them are left out in haste."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

# When moves end, by `time.perf_counter`: a bound is then of the best that is known.
DEADLINE: ContextVar[float] = ContextVar("deadline of moves", default=np.inf)


class Haste:
    """Better multipliers may be had for less than dear moves take, which are left out meanwhile.

    Parameters
    ----------
    most : int
        Equations that may be solved for a move.
    """

    def __init__(self, most: int = 0) -> None:
        self.most, self.left_out = most, False


HASTE: ContextVar[Haste | None] = ContextVar("haste of moves", default=None)


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Try no further moves, and let programs for proofs run no longer, than until then."""
    token = DEADLINE.set(deadline)
    try:
        yield
    finally:
        DEADLINE.reset(token)


def seconds_left() -> float:
    """Return how long a program that is solved for a proof may take."""
    return DEADLINE.get() - time.perf_counter()


def late() -> bool:
    """Whether no further moves are to be tried."""
    return seconds_left() < 0.0


def left_out(equations: int) -> bool:
    """Whether a move that so many equations tell is left out; haste is told that one was."""
    haste = HASTE.get()
    if haste is None or equations <= haste.most:
        return False
    haste.left_out = True
    return True


def finished() -> bool:
    """Whether no move has been left out for want of time."""
    haste = HASTE.get()
    return not (late() or (haste is not None and haste.left_out))


@contextmanager
def in_haste(most: int = 0) -> Iterator[Haste]:
    """Leave out moves of more equations than that, and say whether one was."""
    token = HASTE.set(haste := Haste(most))
    try:
        yield haste
    finally:
        HASTE.reset(token)
