"""What a solver does to its process: Ctrl-C, the terminal, memory; and a process of its own, where it may crash or hang."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import contextvars
import io
import logging
import math
import mmap
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from threadpoolctl import ThreadpoolController

from optfair.errors import SolverFailure

if TYPE_CHECKING:
    from optfair.core.solution import Solution

# A solver that goes on for so many seconds after Ctrl-C does not listen, and is left behind.
DEAF_AFTER = 1.0
# Seconds that a thread has to begin.
START = 10.0
# Bytes that a solver begins with: where its own code finds none, it ends the process.
ROOM = 1 << 28
T = TypeVar("T")


@contextmanager
def ctrl_c(*, leave: bool = True) -> Iterator[list[float]]:
    """Yield a list that gets an entry when Ctrl-C is pressed meanwhile.

    A solver that calls back into Python takes the interrupt for a failed evaluation, ends or
    tries a shorter step, and nobody else hears of it. Where somebody ignores the signal, or
    this is not the main thread, nothing is noted.

    Parameters
    ----------
    leave : bool
        Whether KeyboardInterrupt is raised where the program is; otherwise whoever reads the list
        decides.
    """
    pressed: list[float] = []
    before = signal.getsignal(signal.SIGINT)
    elsewhere = threading.current_thread() is not threading.main_thread()
    if elsewhere or before in (signal.SIG_IGN, None):
        yield pressed
        return

    def note(number: int, frame: Any) -> None:
        pressed.append(time.monotonic())
        if leave:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def ask_for_room() -> None:
    """Raise `MemoryError` where this process may not have `ROOM` more bytes; nothing is kept."""
    try:
        mmap.mmap(-1, ROOM).close()
    except OSError as e:
        raise MemoryError(str(e)) from None


def in_thread(
    run: Callable[[], T], stop: Callable[[], object] = lambda: None, seconds: float = math.inf
) -> T:
    """Run what does not listen to signals in a thread, and stop it when Ctrl-C is pressed.

    Where Ctrl-C is never heard of, in another thread than the main one, and there is no limit, it
    runs right here.

    Parameters
    ----------
    run : callable
        What is to be done.
    stop : callable
        Makes ``run`` return soon; called at Ctrl-C and behind the limit.
    seconds : float
        Wall time that it may take.

    Returns
    -------
    object
        What ``run`` returns or raises.

    Raises
    ------
    KeyboardInterrupt
        It did not end within `DEAF_AFTER` seconds of Ctrl-C: it ends by itself, unheard.
    TimeoutError
        It did not end within as many seconds of its limit.
    """
    if threading.current_thread() is not threading.main_thread() and seconds == math.inf:
        return run()
    answer: list[T] = []
    errors: list[BaseException] = []
    begun, ended = threading.Event(), threading.Event()
    context = contextvars.copy_context()

    def work() -> None:
        begun.set()
        try:
            answer.append(context.run(run))
        except BaseException as e:
            errors.append(e)
        finally:
            ended.set()

    with ctrl_c(leave=False) as pressed:
        # a Thread that finds no memory when it begins would be waited for without end
        ask_for_room()
        try:
            _thread.start_new_thread(work, ())
        except RuntimeError as e:
            raise MemoryError(str(e)) from None
        if not begun.wait(START):
            raise MemoryError("a thread could not be started")
        limit = time.monotonic() + seconds
        while not ended.wait(0.1 if not pressed else 0.02):
            late = time.monotonic() - min([limit, *pressed])
            if late > 0.0:
                stop()
            if late > DEAF_AFTER:
                raise KeyboardInterrupt if pressed else TimeoutError
    if errors:
        raise errors[0]
    return answer[0]


_libraries: list[Any] = [0, None]  # how many modules there were, and what was loaded by them


@contextmanager
def one_thread() -> Iterator[None]:
    """Multiply matrices by one thread meanwhile, where this is the main thread.

    Two threads that wait for each other take four times as long and more where the machine does
    other work (measured), and gain little where it does none. Limits are those of the process:
    threads that set them beside each other would restore each other's.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if _libraries[0] != len(sys.modules):  # others may have been loaded
        _libraries[:] = len(sys.modules), ThreadpoolController()
    with _libraries[1].limit(limits=1, user_api="blas"):
        yield


class _Partly:
    """A stream that drops what some threads write."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.silent: dict[int, int] = {}

    def write(self, text: str) -> Any:
        return len(text) if threading.get_ident() in self.silent else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_lock = threading.Lock()


@contextmanager
def muted() -> Iterator[None]:
    """Drop what this thread prints; other threads print as before.

    The last one to leave puts the stream back.
    """
    me = threading.get_ident()
    with _lock:
        now: Any = sys.stdout
        stream = now if isinstance(now, _Partly) else _Partly(now)
        sys.stdout = cast("Any", stream)
        stream.silent[me] = stream.silent.get(me, 0) + 1
    try:
        yield
    finally:
        with _lock:
            stream.silent[me] -= 1
            if not stream.silent[me]:
                del stream.silent[me]
            now = sys.stdout
            if not stream.silent and now is stream:
                sys.stdout = stream.stream


@contextmanager
def round_progress(
    verbose: int, what: str, first: str, line: Callable[[Any], str]
) -> Iterator[Callable[[Any], None] | None]:
    """Yield a callback that shows rounds as they end, or None when ``verbose`` is 0.

    Parameters
    ----------
    verbose : int
        From 2 on every round stays on the terminal.
    what : str
        Who works.
    first : str
        What is shown before the first round has ended.
    line : callable
        What is said of a round.
    """
    if not verbose:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"{what}: {first}") as status:
        count = 0

        def report(entry: Any) -> None:
            nonlocal count
            count += 1
            shown = f"{what}: round {count}, {line(entry)}"
            status.update(shown)
            if verbose >= 2:
                console.log(shown)

        yield report


# Whether what is done is shown already, by a call around this one.
_WATCHED: contextvars.ContextVar[bool] = contextvars.ContextVar("watched", default=False)


@contextmanager
def watched(verbose: int) -> Iterator[Callable[[Solution], Solution]]:
    """Show on the terminal's error stream who is asked and what comes of it, unless told not to.

    Parameters
    ----------
    verbose : int
        0 for silence.

    Yields
    ------
    callable
        Shows a solution, and returns it.
    """
    if not verbose or _WATCHED.get():
        yield lambda s: s
        return
    log, begin = logging.getLogger("optfair"), time.perf_counter()
    handler, level, token = logging.StreamHandler(), log.level, _WATCHED.set(True)

    def line(record: logging.LogRecord) -> str:
        return f"{time.perf_counter() - begin:7.2f} s  {record.getMessage()}"

    def show(s: Solution) -> Solution:
        log.info("%s: %s, %.10g, %s, gap %.1e", s.solver, s.status, s.objective, s.grade, s.gap)
        return s

    handler.format = line  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield show
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        _WATCHED.reset(token)


def show_line(text: str) -> None:
    """Write a piece of a solver's log to the terminal's error stream."""
    sys.stderr.write(text)


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
    return call_apart(_solved, task, name=name, seconds=seconds) or Answer(None, {})


def call_apart(
    function: Callable[..., T], arguments: Sequence[Any], *, name: str, seconds: float
) -> T | None:
    """Call a function of a module in another process, which is kept for the next call.

    Parameters
    ----------
    function : callable
        Known by its name there; arguments and result are pickled.
    arguments : sequence
        By position.
    name : str
        What errors call the solver.
    seconds : float
        The process is ended after that.

    Returns
    -------
    object
        What it returns; None when time was up.

    Raises
    ------
    Exception
        What it raises.
    SolverFailure
        The process ended before it answered.
    KeyboardInterrupt
        Ctrl-C; the process is ended.
    """
    begin = time.monotonic()
    message = pickle.dumps((function, tuple(arguments)))
    worker = _idle.taken()
    try:
        said = worker.ask(message, max(1e-3, begin + seconds - time.monotonic()))
    except BaseException:
        worker.close(kill=True)
        raise
    if not isinstance(said, bytes):
        worker.close()
        if said is None:
            return None
        word = signal.Signals(-said).name if said < 0 else f"exit code {said}"
        raise SolverFailure(
            f"{name} ended its process",
            f"it was ended by {word}",
            "another solver is not affected; name one",
        )
    _idle.append(worker)
    kind, answer = pickle.loads(said)
    if kind == "error":
        raise answer
    result: T = answer
    return result


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
    """Call what comes in, until there is no more. The program of the other process."""
    # what a solver prints must not be taken for an answer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (task := received(sys.stdin.buffer)) is not None:
        try:
            function, arguments = pickle.loads(task)
            answer: tuple[str, Any] = ("done", function(*arguments))
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
) -> Answer:
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
    return Answer(raw, reports)
