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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from optfair.errors import SolverFailure

# the caller's path, so that the same package is found
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from {} import serve; serve()"
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
    worker = _idle.taken()
    try:
        said = worker.ask(pickle.dumps(task), seconds)
    except BaseException:
        worker.close(kill=True)
        raise
    if not isinstance(said, bytes):
        worker.close()
        if said is None:
            return Answer(None, {})
        word = signal.Signals(-said).name if said < 0 else f"exit code {said}"
        raise SolverFailure(
            f"{name} ended its process",
            f"it was ended by {word}",
            "another solver is not affected; name one",
        )
    _idle.append(worker)
    kind, *rest = pickle.loads(said)
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


class Worker:
    """The caller's end of a process that answers messages, one after the other.

    Parameters
    ----------
    module : str
        Whose function ``serve`` it runs.
    errors : file, optional
        Where it writes errors; by default where this process does.
    apart : bool
        Whether Ctrl-C does not reach it.
    """

    def __init__(self, module: str, errors: Any = None, *, apart: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(module), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=apart,
        )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def ask(self, message: bytes, seconds: float) -> bytes | int | None:
        """Return its answer, the code it ended with, or None where it was ended after so long."""
        process, late = self._process, threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        clock = threading.Timer(min(seconds, threading.TIMEOUT_MAX), end)
        clock.daemon = True
        clock.start()
        said: bytes | None = None
        try:
            if process.stdin is not None and process.stdout is not None:
                with contextlib.suppress(BrokenPipeError):
                    send(process.stdin, message)
                said = received(process.stdout)
        finally:
            clock.cancel()
        if said is not None:
            return said
        code = process.wait()
        return None if late.is_set() else code

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


W = TypeVar("W", bound=Worker)


class Idle(list[W]):
    """Workers that wait for the next task.

    Parameters
    ----------
    begin : callable
        Returns a new worker.
    """

    def __init__(self, begin: Callable[[], W]) -> None:
        super().__init__()
        self._begin = begin
        # a process that is forked off has no workers: these answer the one that started them
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.clear)

    def taken(self) -> W:
        """Return one that waits, or a new one."""
        while self:
            with contextlib.suppress(IndexError):  # another thread was quicker
                worker = self.pop()
                if worker.alive:
                    return worker
                worker.close()
        return self._begin()

    def close(self) -> None:
        """End all processes that wait."""
        while self:
            with contextlib.suppress(IndexError):
                self.pop().close()


_idle = Idle(lambda: Worker("optfair.backends.isolation", apart=True))
close_idle = atexit.register(_idle.close)


def send(pipe: Any, message: bytes) -> None:
    """Write a message with its length before it."""
    pipe.write(len(message).to_bytes(8, "little"))
    pipe.write(message)
    pipe.flush()


def received(pipe: Any) -> bytes | None:
    """Return the next message, None at the end."""
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
    while (task := received(sys.stdin.buffer)) is not None:
        try:
            answer: tuple[Any, ...] = ("done", *_solved(*pickle.loads(task)))
        except Exception as e:  # whatever the library raises is its answer
            answer = ("error", e)
        try:
            message = pickle.dumps(answer)
        except (pickle.PicklingError, TypeError, AttributeError) as e:
            said = f"its answer cannot be sent: {type(e).__name__}: {e}"
            message = pickle.dumps(("error", SolverFailure(said)))
        send(answers, message)


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
