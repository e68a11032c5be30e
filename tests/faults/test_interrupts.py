"""Ctrl-C at any moment leaves a session that goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.registry import profiles

PROGRAM = Path(__file__).parent / "interrupts.py"
ANSWERS = ("optimal", "interrupted", "KeyboardInterrupt")


@pytest.mark.parametrize(
    ("route", "times"),
    [("milp", 5), *(pytest.param(r, 30, marks=pytest.mark.slow) for r in ("lp", "fair", "psd_map")),
     pytest.param("milp", 40, marks=pytest.mark.slow)],
)  # fmt: skip
def test_no_session_is_poisoned(route: str, times: int) -> None:
    command = [sys.executable, "-W", "ignore", str(PROGRAM), route, str(times)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in child.stdout.splitlines()]
    assert child.returncode == 0 and len(lines) == times, child.stderr
    assert all(line["fine"] and line["word"] in ANSWERS for line in lines), lines


def test_threads_do_not_disturb_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    # what is printed meanwhile is printed, and the stream is the same afterwards
    names = [n for n, p in profiles().items() if p.via in ("cvxpy", "highspy") and p.installed]
    names = [n for n in names if profiles()[n].kind == "open" and "QP" in profiles()[n].classes]
    before, wrong = sys.stdout, list[Any]()

    def solve(seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = cp.Variable(4, name="x")
        A, b = rng.normal(size=(8, 4)), rng.normal(size=8)
        p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b))))
        best = float(np.linalg.lstsq(A, b, rcond=None)[1][0])
        for name in names:
            sys.stdout.write(f"thread {seed} {name}\n")
            try:
                found = p.solve(name, tolerance=1e-5).objective
            except of.OptfairError as e:
                wrong.append((seed, name, str(e)))
                continue
            if abs(found - best) > 1e-4 * (1.0 + best):
                wrong.append((seed, name, found, best))

    threads = [threading.Thread(target=solve, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(names) >= 6
    assert sys.stdout is before
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed) == sorted(f"thread {s} {n}" for s in range(8) for n in names)
