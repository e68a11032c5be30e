"""Ctrl-C at random moments of a solve: what comes of it, and whether the next solve is right.

    python interrupts.py ROUTE TIMES

Prints a line of JSON for each: what the verb left, seconds from Ctrl-C until it answered, and
whether the session is poisoned.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

import optfair as of

signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)


def milp() -> Callable[[], Any]:
    x, n = cp.Variable(60, name="x", boolean=True), 60
    w = rng.integers(1000, 9999, size=(8, n)).astype(float)
    goal = cp.Maximize(rng.integers(1000, 9999, size=n) @ x)
    p = of.from_cvxpy(cp.Problem(goal, [w @ x <= w.sum(axis=1) / 2]))
    return lambda: p.solve("highs", time_limit=30.0)


def lp() -> Callable[[], Any]:
    x = cp.Variable((120, 120), name="x", nonneg=True)
    rows = [cp.sum(x, axis=1) == 1, cp.sum(x, axis=0) == 1]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(rng.random((120, 120)), x))), rows))
    return lambda: p.solve("highs")


def fair() -> Callable[[], Any]:
    X = rng.normal(size=(4000, 3))
    p = of.FairAssignment(X, groups=rng.integers(0, 4, 4000), centers=X[:15])
    return p.solve


def psd_map() -> Callable[[], Any]:
    X = rng.normal(size=(300, 8))
    p = of.PSDMap(X, score=(np.ones(8), 0.0), threshold=1.0, K=2.0)
    return p.solve


def _qp(solver: str) -> Callable[[], Any]:
    x, G, A = cp.Variable(280, name="x"), *rng.normal(size=(2, 280, 280))
    goal = cp.Minimize(cp.sum_squares(G @ x) + rng.normal(size=280) @ x)
    p = of.from_cvxpy(cp.Problem(goal, [A @ x <= 1, x >= -1]))
    return lambda: p.solve(solver)


def cones() -> Callable[[], Any]:
    return _qp("clarabel")  # it is told to stop


def deaf() -> Callable[[], Any]:
    return _qp("piqp")  # it ends with its process


def left() -> Callable[[], Any]:
    return _qp("qoco")  # it goes on unheard


def sdp() -> Callable[[], Any]:
    S, C = cp.Variable((90, 90), name="S", PSD=True), rng.normal(size=(90, 90))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace((C + C.T) @ S)), [cp.diag(S) == 1]))
    return lambda: p.solve("psd-blocks")


ROUTES = {f.__name__: f for f in (milp, lp, fair, psd_map, cones, deaf, left, sdp)}


def main(route: str, times: int) -> None:
    """Interrupt a route again and again."""
    run = ROUTES[route]()
    y = cp.Variable(2, name="y", nonneg=True)
    after = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(y)), [y >= 1.5]))
    for k in range(times):
        dice = random.Random(k)
        delay, presses = dice.uniform(0.0, 0.8), dice.randint(1, 5 if route == "milp" else 2)
        sent: list[float] = []

        def press(delay: float = delay, presses: int = presses, sent: list[float] = sent) -> None:
            time.sleep(delay)
            for _ in range(presses):
                sent.append(time.perf_counter())
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.02)

        thread = threading.Thread(target=press)
        word, begin = "nothing", time.perf_counter()
        try:
            thread.start()
            word = run().status.termination
        except KeyboardInterrupt:
            word = "KeyboardInterrupt"
        except of.OptfairError as e:
            word = type(e).__name__
        end = time.perf_counter()
        while len(sent) < presses or time.perf_counter() < sent[-1] + 0.05:  # the rest of them
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(0.01)
        try:
            fine = abs(after.solve("highs").objective - 3.0) < 1e-6
        except BaseException as e:
            fine, word = False, f"{word}; {e!r}"
        late = max(0.0, end - max(begin, sent[0]))
        sys.stdout.write(json.dumps({"word": word, "late": round(late, 3), "fine": fine}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
