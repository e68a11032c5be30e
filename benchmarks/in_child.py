"""Run one task in a fresh process, so that its time and its peak memory are its own."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

__all__ = ["in_child"]


def in_child(task: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """Return what the task returns, with the peak memory of its process in megabytes."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_run, task, arguments).result()


def _run(task: Callable[..., dict[str, Any]], arguments: tuple[Any, ...]) -> dict[str, Any]:
    result = task(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # kilobytes on Linux, bytes on macOS
    return {**result, "megabytes": peak / (1e6 if sys.platform == "darwin" else 1e3)}
