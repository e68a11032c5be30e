"""The terminal while a solver runs: progress, Ctrl-C, and what it prints unasked."""

from __future__ import annotations

import _thread
import contextvars
import mmap
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

# A solver that goes on for so many seconds after Ctrl-C does not listen, and is left behind.
PATIENCE = 1.0
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


def in_thread(run: Callable[[], T], stop: Callable[[], object] = lambda: None) -> T:
    """Run what does not listen to signals in a thread, and stop it when Ctrl-C is pressed.

    Where Ctrl-C is never heard of, in another thread than the main one, it runs right here.

    Parameters
    ----------
    run : callable
        What is to be done.
    stop : callable
        Makes ``run`` return soon; called at Ctrl-C.

    Returns
    -------
    object
        What ``run`` returns or raises.

    Raises
    ------
    KeyboardInterrupt
        It did not end within `PATIENCE` seconds of Ctrl-C: it ends by itself, unheard.
    """
    if threading.current_thread() is not threading.main_thread():
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
        while not ended.wait(0.1 if not pressed else 0.02):
            if pressed:
                stop()
                if time.monotonic() - pressed[0] > PATIENCE:
                    raise KeyboardInterrupt
    if errors:
        raise errors[0]
    return answer[0]


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


def show_line(text: str) -> None:
    """Write a piece of a solver's log to the terminal's error stream."""
    sys.stderr.write(text)
