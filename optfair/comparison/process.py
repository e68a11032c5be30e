"""Run a function in a forked copy of this process, and outlive whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import threading
import warnings
from collections.abc import Callable
from typing import Any

from optfair.errors import UnsupportedProblem

__all__ = ["can_fork", "check_fork", "died", "in_fork"]

# A copy made by one thread must not inherit the pipe another thread has just opened: its reader
# would wait for both.
_one_at_a_time = threading.Lock()


def can_fork() -> bool:
    """Whether this system copies processes."""
    return hasattr(os, "fork")


def check_fork() -> None:
    """Raise where processes cannot be copied.

    Raises
    ------
    UnsupportedProblem
        A problem that exists in memory only cannot be handed to another process.
    """
    if not can_fork():
        raise UnsupportedProblem(
            "problems in memory cannot be compared on this system",
            "they are handed to the process that solves them by fork, which it does not have",
            "write each as a file of the problem library, and compare by name",
        )


def in_fork(job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a function returns in a copy of this process.

    Parameters
    ----------
    job : callable
        Returns what JSON can say. Nothing else it does is seen here.

    Returns
    -------
    dict
        Its result, or outcome and reason when the copy died before it returned.
    """
    with _one_at_a_time:
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            # Python warns of threads: the copy has none, and the locks it uses are its own
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os.close(reader)
            _return(job, writer)
        os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code or not said:
        return died(code)
    result: dict[str, Any] = json.loads(said)
    return result


def _return(job: Callable[[], dict[str, Any]], writer: int) -> None:
    """Write the result and leave, without the exit handlers of the process this is a copy of."""
    code = 1
    try:
        try:
            result = job()
        except Exception as e:  # whatever ends the job is its outcome
            result = {"outcome": "crashed", "reason": f"{type(e).__name__}: {e}"}
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(json.dumps(result).encode())
        code = 0
    finally:
        os._exit(code)


def died(code: int) -> dict[str, Any]:
    """Return what is to be said of a process that ended before it answered."""
    if hasattr(signal, "SIGALRM") and code == -signal.SIGALRM:
        return {
            "outcome": "time_limit",
            "reason": "it did not stop at the time limit and was ended",
        }
    if code < 0:
        name = signal.Signals(-code).name
        memory = "; out of memory?" if name == "SIGKILL" else ""
        return {"outcome": "crashed", "reason": f"its process was ended by {name}{memory}"}
    return {"outcome": "crashed", "reason": f"its process ended with exit code {code}"}
