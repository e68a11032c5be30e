"""The time a diagnosis has, and why it stopped early."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["Clock"]

Found = TypeVar("Found")


class Clock:
    """Wall seconds over a whole diagnosis; remembers that it was stopped by hand.

    Parameters
    ----------
    time_limit : float or None
        Wall seconds.

    Examples
    --------
    >>> clock = Clock(None)
    >>> clock.run(lambda: 1), clock.stopped
    (1, '')
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self.began = time.perf_counter()
        self.deadline = None if time_limit is None else self.began + float(time_limit)
        self.interrupted = False

    @property
    def seconds(self) -> float:
        """Seconds since the diagnosis began."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float | None:
        """Seconds that are left, at least a millisecond; None without a limit."""
        if self.deadline is None:
            return None
        return max(1e-3, self.deadline - time.perf_counter())

    @property
    def stopped(self) -> str:
        """Why to stop: "interrupted", "time_limit", or empty."""
        if self.interrupted:
            return "interrupted"
        late = self.deadline is not None and time.perf_counter() >= self.deadline
        return "time_limit" if late else ""

    def run(self, step: Callable[[], Found]) -> Found | None:
        """Return the result of a step, None when it was stopped by hand or may not begin."""
        if self.stopped:
            return None
        try:
            return step()
        except KeyboardInterrupt:  # what was found before stays
            self.interrupted = True
            return None
