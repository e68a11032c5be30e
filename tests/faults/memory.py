"""Verbs under a limit of memory (``ulimit -v``): what comes of them, and of the files they write."""

from __future__ import annotations

import contextlib
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from harness import told

import optfair as of
from optfair.storage import read_archive

SECONDS = 20.0
# MiB that are left to each verb.
LEVELS = (1, 8, 64)


def verbs(size: int) -> dict[str, Callable[[], Any]]:
    """Return what is done to problems and data of a size."""
    rng = np.random.default_rng(0)
    x, A = cp.Variable(size, name="x"), rng.random((size, size))
    lp = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1, x >= 0]), ["row", "sign"])
    wide = cp.Variable(40 * size, name="x")
    long = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(wide)), [wide >= 1]), ["low"])
    X, groups = rng.normal(size=(100 * size, 8)), rng.integers(0, 3, 100 * size)
    solved = long.solve()
    Path("s.npz").unlink(missing_ok=True)
    return {
        "solve": lambda: lp.with_constraints(more=x <= 2.0).solve("highs"),
        "declare": lambda: of.FairAssignment(X, groups=groups, centers=X[:20]),
        "save": lambda: solved.save("s"),
        "export": lambda: of.export(long, "p.mps"),
        "diagnose": lambda: of.diagnose(lp.with_constraints(none=x <= -1.0)),
    }


def cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield every verb at every level."""
    for run in verbs(20).values():  # what is imported, and what libraries set aside at first use
        run()
    for name, run in verbs(600).items():
        for level in LEVELS:

            def limited(run: Callable[[], Any] = run, level: int = level) -> Any:
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                before = resource.getrlimit(resource.RLIMIT_AS)
                most = pages * resource.getpagesize() + (level << 20)
                resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
                try:
                    return run()
                finally:
                    resource.setrlimit(resource.RLIMIT_AS, before)
                    parts = [p.name for p in Path().iterdir() if p.name.startswith(".")]
                    if parts:
                        raise RuntimeError(f"left behind: {parts}")

            yield f"{name} in {level} MiB", limited


def main(start: int, step: int) -> None:
    """Run the cases in a folder of their own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        told(cases(), start, step, SECONDS, silent_counts=False, after=_whole)


def _whole() -> None:
    """Read and remove what was written; what cannot be read is half a file."""
    for path in Path().iterdir():
        if path.suffix == ".mps":
            of.read(path)
        elif path.suffix == ".npz":
            read_archive(path)
        path.unlink()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
