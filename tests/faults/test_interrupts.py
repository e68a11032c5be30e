"""Ctrl-C at any moment leaves a session that goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.cone_program import Stoppable
from optfair.backends.isolation import in_thread
from optfair.backends.registry import profiles

PROGRAM = Path(__file__).parent / "interrupts.py"
ROUTES = ("milp", "lp", "fair", "psd_map", "cones", "deaf", "left", "sdp")
ANSWERS = ("optimal", "interrupted", "KeyboardInterrupt")


@pytest.mark.parametrize(
    ("route", "times"),
    [("milp", 3), *(pytest.param(route, 30, marks=pytest.mark.slow) for route in ROUTES)],
)
def test_no_session_is_poisoned(route: str, times: int) -> None:
    command = [sys.executable, "-W", "ignore", str(PROGRAM), route, str(times)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    assert child.returncode == 0 and len(lines) == times, child.stderr
    assert all(line["fine"] and line["word"] in ANSWERS for line in lines), lines


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_what_does_not_listen_is_left_behind() -> None:
    ended, before = threading.Event(), signal.getsignal(signal.SIGINT)

    def deaf() -> None:
        press()
        ended.wait(60.0)

    begin = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            in_thread(deaf)
        assert time.perf_counter() - begin < 10.0  # a second of them is patience
    finally:
        ended.set()
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(ZeroDivisionError):
        in_thread(lambda: 1 // 0)
    assert in_thread(lambda: 7) == 7


def test_ctrl_c_leaves_the_point_of_the_cone_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(self: Stoppable) -> Any:
        def ask(info: Any) -> bool:
            if info.iterations == 6:
                press()
                while not self._stopped:
                    time.sleep(0.01)
            return self._stopped

        self._solver.set_termination_callback(ask)
        return self._solver.solve()

    monkeypatch.setattr(Stoppable, "solve", solve)
    rng = np.random.default_rng(0)
    x, G, A = cp.Variable(30, name="x"), *rng.normal(size=(2, 30, 30))
    goal = cp.Minimize(cp.sum_squares(G @ x) + rng.normal(size=30) @ x)
    p = of.from_cvxpy(cp.Problem(goal, [A @ x <= 1, x >= -1]))
    s = p.solve("clarabel")
    assert s.status.termination == "interrupted" and s.bound < s.objective
    assert s.residuals().feasibility <= 1e-7
    assert s.bound - 1e-6 <= p.solve("highs").objective <= s.objective


def fitting(seed: int) -> dict[str, tuple[of.Problem, float]]:
    """Return problems with their optima, by class."""
    rng = np.random.default_rng(seed)
    x, k = cp.Variable(4, name="x"), cp.Variable(4, name="k", integer=True)
    cut = of.library.load("textbook/max_cut_petersen")
    A, b, w = rng.normal(size=(8, 4)), rng.normal(size=8), rng.uniform(1.0, 2.0, 4)
    return {
        "QP": (
            of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)))),
            float(np.linalg.lstsq(A, b, rcond=None)[1][0]),
        ),
        "LP": (
            of.from_cvxpy(cp.Problem(cp.Maximize(w @ x), [cp.sum(x) <= 2.0, x >= 0.0])),
            2.0 * float(w.max()),
        ),
        "MILP": (
            of.from_cvxpy(
                cp.Problem(cp.Maximize(k[0] + 2 * k[1]), [cp.sum(k) <= 5, k >= 0, k <= 3])
            ),
            8.0,
        ),
        "SDP": (cut.problem(), float(cut.optimum.value)),
    }


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_threads_do_not_disturb_each_other(rounds: int, capsys: pytest.CaptureFixture[str]) -> None:
    # what is printed meanwhile is printed, and the stream is the same afterwards
    known = {n: p for n, p in profiles().items() if p.via != "structured" and p.kind == "open"}
    names = [n for n, p in known.items() if p.installed and n != "dccp"]  # starts from a guess
    if rounds == 1:  # those that share this process
        names = [n for n in names if known[n].via in ("cvxpy", "conic:highspy")]
    before, wrong = sys.stdout, list[Any]()

    def solve(seed: int) -> None:
        problems = fitting(seed)
        for name in names * rounds:
            sys.stdout.write(f"thread {seed} {name}\n")
            kind = next(k for k in problems if k in known[name].classes)
            p, best = problems[kind]
            try:
                found = p.solve(name, tolerance=1e-5).objective
            except of.OptfairError as e:
                wrong.append((seed, name, str(e)))
                continue
            if abs(found - best) > 1e-4 * (1.0 + abs(best)):
                wrong.append((seed, name, found, best))

    threads = [threading.Thread(target=solve, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(names) >= 6
    assert sys.stdout is before
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed) == sorted(f"thread {s} {n}" for s in range(8) for n in names * rounds)
