"""Processes that have loaded everything and copy themselves for each run."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from optfair.backends.isolation import Idle, Worker, received, send
from optfair.comparison.run import allowance, measured
from optfair.errors import UnsupportedProblem

# Run a function in a forked copy of this process, and outlive whatever happens to it.

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
    try:
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
    except BaseException:  # Ctrl-C: nobody waits for the copy any more
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
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


# Processes that have loaded everything and copy themselves for each run.
#
# A run that started from nothing would spend seconds on imports. A server has imported but never
# solved, so every copy is fresh. It is a program of its own rather than a copy of the caller:
# nothing the caller holds, threads, memory, loaded solvers, is in it.

# Seconds without work after which a server leaves; and those a start may take.
IDLE, START = 120.0, 120.0
FOLDERS = ("OPTFAIR_PROBLEMS", "OPTFAIR_SOLVERS", "OPTFAIR_DATA")


def run_instance(task: dict[str, Any]) -> dict[str, Any]:
    """Run one solver on an instance of the problem library, in a process of its own.

    Parameters
    ----------
    task : dict
        problem, solver, tolerance, time_limit; plain values, so that it can be sent anywhere.

    Returns
    -------
    dict
        See `optfair.comparison.run.measured`.
    """
    server = _idle.taken()
    try:
        # copies end themselves where the system has an alarm; the limit is for where it has none
        asked = json.dumps(task | {"environ": dict(os.environ)}).encode()
        said = server.ask(asked, START + allowance(task["time_limit"]))
        lines = [] if isinstance(said, bytes) else server.last_words()
    except BaseException:
        server.close()
        raise
    if isinstance(said, bytes):
        server.used = time.monotonic()
        if server.alive:
            _idle.append(server)
        else:
            server.close()
        result: dict[str, Any] = json.loads(said)
        return result
    server.close()
    if said is None:
        return {"outcome": "time_limit", "reason": "it did not stop and was ended"}
    result = died(said)
    return result | {"reason": ": ".join([result["reason"], *lines])}


class _Server(Worker):
    """The caller's end, which keeps what is written of errors."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        self._surroundings, self.used = _surroundings(), time.monotonic()
        super().__init__("optfair.comparison.server", self._errors)

    @property
    def alive(self) -> bool:
        """Whether it can be asked: it will not leave soon, and begins as a new one would."""
        spare = time.monotonic() - self.used < IDLE / 2
        return spare and self._surroundings == _surroundings() and super().alive

    def last_words(self) -> list[str]:
        """Return the last line of its errors, if there is one."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().splitlines()[-1:]

    def close(self, *, kill: bool = False) -> None:
        """End the process."""
        super().close(kill=kill)
        self._errors.close()


def _surroundings() -> tuple[list[str], dict[str, str]]:
    """Return what a process reads once, when it begins: places of modules, numbers of threads."""
    return list(sys.path), {k: v for k, v in os.environ.items() if k.endswith("_NUM_THREADS")}


_idle = Idle(_Server)
atexit.register(_idle.close)


def serve() -> None:
    """Read tasks, and answer them until there are no more."""
    # what a solver prints must not be taken for an answer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _load()
    requests = sys.stdin.buffer
    while True:
        if can_fork() and not select.select([requests], [], [], IDLE)[0]:
            return
        said = received(requests)
        if said is None:
            return
        task = json.loads(said)
        # without copies a process serves once
        result = in_fork(partial(_run, task)) if can_fork() else _run(task)
        send(answers, json.dumps(result).encode())
        if not can_fork():
            return


def _load() -> None:
    """Import what every run needs."""
    import cvxpy
    import scipy.sparse.linalg
    import threadpoolctl

    import optfair.backends.solve
    import optfair.library

    del cvxpy, scipy, threadpoolctl, optfair


def _run(task: dict[str, Any]) -> dict[str, Any]:
    from optfair.comparison.run import environment
    from optfair.library import load

    os.environ.clear()
    os.environ.update({k: v for k, v in task["environ"].items() if k not in FOLDERS})
    os.environ.update(task["folders"])
    problem = load(task["problem"]).problem()
    more = {k: task[k] for k in ("options", "memory_limit") if k in task}
    result = measured(problem, task["solver"], task["tolerance"], task["time_limit"], **more)
    return result | {"environment": environment()}
