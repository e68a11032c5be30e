"""What came of a call: it may raise, say nothing, take too long, or end its process."""

from __future__ import annotations

import contextlib
import io
import json
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import optfair as of


class Late(BaseException):
    """Too much processor time."""


def _late(*_: Any) -> None:
    raise Late


def outcome(run: Callable[[], Any], seconds: float) -> tuple[str, str]:
    """Return "typed", "raw", "hang" or "result", and the error or the type of the result."""
    signal.signal(signal.SIGVTALRM, _late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            return "result", type(run()).__name__
    except of.OptfairError as e:
        return ("typed", type(e).__name__) if str(e) else ("raw", "an error that says nothing")
    except Late:
        return "hang", ""
    except Exception as e:
        own = [f for f in traceback.extract_tb(e.__traceback__) if "/optfair/" in f.filename]
        where = f" at {own[-1].filename.split('/optfair/')[-1]}:{own[-1].lineno}" if own else ""
        return "raw", f"{type(e).__name__}: {str(e)[:150]}{where}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def told(
    cases: Iterable[tuple[str, Callable[[], Any]]],
    start: int,
    step: int,
    seconds: float,
    *,
    silent_counts: bool,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Run every step-th case from a start on, and print a line before and after each."""
    for k, (name, run) in enumerate(cases):
        if k < start or (k - start) % step:
            continue
        _show({"case": k, "name": name})
        word, detail = outcome(run, seconds)
        _show(
            {
                "case": k,
                "outcome": "silent" if word == "result" and silent_counts else word,
                "detail": detail,
            }
        )
        after()


def _show(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def swept(program: Path, step: int, *more: str) -> list[tuple[str, str, str]]:
    """Return (case, outcome, detail) of every step-th case of a program that calls `told`.

    Where its process dies, the next one goes on behind that case.
    """
    found: dict[int, tuple[str, str, str]] = {}
    start, name = 0, ""
    while True:
        command = [sys.executable, "-W", "ignore", str(program), str(start), str(step), *more]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        last = -1
        for line in child.stdout.splitlines():
            if not line.startswith('{"case"'):  # what a solver printed
                continue
            said = json.loads(line)
            last, name = said["case"], said.get("name", name)
            if "outcome" in said:
                found[last] = (name, said["outcome"], said["detail"])
        if child.returncode == 0:
            return list(found.values())
        if last < 0 or last in found:
            raise RuntimeError(f"{program} ended with {child.returncode}: {child.stderr[-2000:]}")
        found[last] = (name, "died", f"exit code {child.returncode}")
        start = last + step
