"""Counted steps: a limit on work that is the same on every machine and under every load."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LEFT: ContextVar[list[float] | None] = ContextVar("steps left", default=None)


class Exhausted(Exception):
    """The steps that were allowed are spent."""


@contextmanager
def limited(steps: float) -> Iterator[None]:
    """Allow so many steps, or what is left of a limit around this one: the same on every machine.

    Raises
    ------
    Exhausted
        Within, when they are spent.
    """
    outer = _LEFT.get()
    own = [steps if outer is None else min(steps, outer[0])]
    begin = own[0]
    token = _LEFT.set(own)
    try:
        yield
    finally:
        _LEFT.reset(token)
        if outer is not None:
            outer[0] -= begin - own[0]


def spend(steps: float = 1.0) -> None:
    """Count steps, about 0.1 ms each, where they are limited."""
    left = _LEFT.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0.0:
            raise Exhausted
