"""A solver in a process of its own: it may crash, hang or take too long, and nothing else does."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optfair.errors import SolverFailure

# the caller's path, so that the same package is found
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from optfair.backends.isolation import serve; serve()"
)
# Seconds that a worker which ends is waited for.
PATIENCE = 5.0


@dataclass(frozen=True)
class Answer:
    """What a solver's process sent back.

    Attributes
    ----------
    raw : object
        The solution at the level of the interface; None when time was up.
    reports : dict
        What was read from the solver's own result, by dotted path.
    """

    raw: Any
    reports: Mapping[str, Any]


def solve_apart(
    interface: Any,
    data: Mapping[str, Any],
    inverse: Any,
    options: Mapping[str, Any],
    *,
    name: str,
    log: bool,
    seconds: float,
    paths: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Answer:
    """Solve compiled data through one of CVXPY's interfaces, in another process.

    The process is kept for the next call: it has the libraries loaded.

    Parameters
    ----------
    interface : object
        CVXPY's interface of the solver.
    data, inverse
        What the interface makes of the program.
    options : mapping
        Options by the solver's own names.
    name : str
        What errors call the solver.
    log : bool
        Show the solver's log.
    seconds : float
        The process is ended after that.
    paths : sequence of str
        What to read from the solver's own result.
    more : mapping, optional
        Further arguments of the interface.

    Raises
    ------
    SolverFailure
        The process ended before it answered.
    KeyboardInterrupt
        Ctrl-C; the process is ended.
    """
    task = (interface, dict(data), inverse, dict(options), log, tuple(paths), dict(more or {}))
    worker = _taken()
    try:
        kind, *rest = worker.ask(pickle.dumps(task), seconds)
    except BaseException:
        worker.close(kill=True)
        raise
    if kind == "late":
        return Answer(None, {})
    if kind == "died":
        raise SolverFailure(
            f"{name} ended its process", rest[0], "another solver is not affected; name one"
        )
    _idle.append(worker)
    if kind == "error":
        raise rest[0]
    return Answer(rest[0], rest[1])


def reported(result: Any, path: str) -> Any:
    """Follow a dotted path of keys, attributes and methods into a raw result."""
    for name in path.split("."):
        try:
            result = result[name] if isinstance(result, dict) else getattr(result, name)
        except (KeyError, AttributeError):
            return None
    return result() if callable(result) else result


_idle: list[_Worker] = []


def _taken() -> _Worker:
    while _idle:
        with contextlib.suppress(IndexError):  # another thread was quicker
            worker = _idle.pop()
            if worker.alive:
                return worker
            worker.close()
    return _Worker()


@atexit.register
def close_idle() -> None:
    """End the processes that wait for work."""
    while _idle:
        with contextlib.suppress(IndexError):
            _idle.pop().close()


# a process that is forked off has no workers: these answer the one that started them
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)


class _Worker:
    """The caller's end. Ctrl-C does not reach the other one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, task: bytes, seconds: float) -> tuple[Any, ...]:
        """Return the answer; ("late",) when it was ended, ("died", why) when it ended itself."""
        process, late = self._process, threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        clock = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
        clock.daemon = True
        clock.start()
        said: tuple[Any, ...] | None = None
        try:
            if process.stdin is not None and process.stdout is not None:
                with contextlib.suppress(BrokenPipeError):
                    _send(process.stdin, task)
                answer = _received(process.stdout)
                said = None if answer is None else pickle.loads(answer)
        finally:
            clock.cancel()
        if said is not None:
            return said
        code = process.wait()
        self.close()
        if late.is_set():
            return ("late",)
        word = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return ("died", f"it was ended by {word}")

    def close(self, *, kill: bool = False) -> None:
        """End the process."""
        process = self._process
        if kill:
            process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:  # it leaves at the end of its input
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _send(pipe: Any, message: bytes) -> None:
    pipe.write(len(message).to_bytes(8, "little"))
    pipe.write(message)
    pipe.flush()


def _received(pipe: Any) -> bytes | None:
    head = pipe.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    message = pipe.read(size)
    return message if len(message) == size else None


def serve() -> None:
    """Solve what comes in, until there is no more. The program of the other process."""
    # what a solver prints must not be taken for an answer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (task := _received(sys.stdin.buffer)) is not None:
        try:
            answer: tuple[Any, ...] = ("done", *_solved(*pickle.loads(task)))
        except Exception as e:  # whatever the library raises is its answer
            answer = ("error", e)
        try:
            message = pickle.dumps(answer)
        except (pickle.PicklingError, TypeError, AttributeError) as e:
            said = f"its answer cannot be sent: {type(e).__name__}: {e}"
            message = pickle.dumps(("error", SolverFailure(said)))
        _send(answers, message)


def _solved(
    interface: Any,
    data: dict[str, Any],
    inverse: Any,
    options: dict[str, Any],
    log: bool,
    paths: tuple[str, ...],
    more: dict[str, Any],
) -> tuple[Any, dict[str, Any]]:
    from cvxpy.reductions.solvers.solver_inverse_data import SolverInverseData

    silent = contextlib.nullcontext() if log else contextlib.redirect_stdout(io.StringIO())
    with silent:
        result = interface.solve_via_data(data, verbose=log, solver_opts=options, **more)
    reports = {path: reported(result, path) for path in paths}
    # a status may be an object of the library
    plain = (int, float, str, type(None))
    reports = {k: v if isinstance(v, plain) else str(v) for k, v in reports.items()}
    raw = interface.invert(result, SolverInverseData(inverse, interface, options))
    raw.attr = {}  # the solver's own object stays where it is
    return raw, reports
