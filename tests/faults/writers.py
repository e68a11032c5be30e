"""Write one kind of file until somebody ends the process.

python writers.py KIND FOLDER; or, for a FOLDER that is a small disk, write all kinds when it is full:
python writers.py full FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import optfair as of
from optfair.cli.console import write_files
from optfair.comparison import Comparison
from optfair.storage import read_archive, read_json

x = cp.Variable(400, name="x")
A = np.random.default_rng(0).random((20, 400))
PROBLEM = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [A @ x >= 1, x >= 0]), ["rows", "sign"])


def _anew(save: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Return a writer of what is never overwritten: saved beside, then moved."""

    def write(path: Path) -> None:
        new = path.with_name(f"new-{path.name}")
        new.unlink(missing_ok=True)
        save(new)
        os.replace(new, path)

    return write


def writers() -> dict[str, tuple[str, Callable[[Path], Any], Callable[[Path], Any]]]:
    """Return (file name, writer, reader) by kind."""
    s = PROBLEM.solve()
    runs = of.compare_solvers({f"lp{k}": PROBLEM for k in range(3)}, "highs", time_limit=20.0)
    cones = of.cone_program(PROBLEM)
    transport = of.group_counterfactuals.TransportMap(np.eye(30), np.ones(30))

    def picture(path: Path) -> None:
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        from optfair.storage import write_whole

        figure, axes = plt.subplots()
        axes.plot(np.arange(10.0))
        write_whole(path, figure.savefig)
        plt.close(figure)

    def picture_read(path: Path) -> None:
        import matplotlib.image

        matplotlib.image.imread(path)

    def text_read(path: Path) -> None:
        if not path.read_text().endswith("the end\n"):
            raise ValueError("half a text")

    return {
        "solution": ("s.npz", _anew(s.save), lambda p: of.load_solution(p, PROBLEM)),
        "cones": ("c.npz", _anew(cones.save), read_archive),
        "map": ("m.npz", _anew(transport.save), type(transport).load),
        "proof": ("p.json", _anew(s.certificate.save), lambda p: of.load_proof(p)),
        "mps": ("p.mps", lambda p: of.export(PROBLEM, p), of.read),
        "mps.gz": ("p.mps.gz", lambda p: of.export(PROBLEM, p), of.read),
        "comparison": ("r.json", runs.save, Comparison.load),
        "csv": ("r.csv", runs.save, lambda p: p.read_text().splitlines()[3]),
        "report": (
            "r.html",
            lambda p: write_files({p: "line\n" * 30_000 + "the end\n"}),
            text_read,
        ),
        "picture": ("f.png", picture, picture_read),
        "record": ("j.json", lambda p: write_files({p: '{"a": 1}'}), read_json),
    }


def full(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield what comes of a second file of each kind where a third of the first has room left."""
    for kind, (name, write, read) in writers().items():
        path, stuffing = folder / name, folder / "stuffing"
        write(path)
        before, left = path.read_bytes(), shutil.disk_usage(folder).free
        stuffing.write_bytes(bytes(left - len(before) // 3))
        try:
            write(path)
            told = "written"
        except of.DataError as e:
            told = f"{e.cause.partition(str(folder))[2]}: {e.evidence}"
        stuffing.unlink()
        if path.read_bytes() != before or os.listdir(folder) != [name]:
            told = f"left {os.listdir(folder)}"
        write(path)  # there is room again
        read(path)
        path.unlink()
        yield kind, told


def main(kind: str, folder: str) -> None:
    """Write again and again; say when the first file is there."""
    if kind == "full":
        sys.stdout.write(json.dumps(dict(full(Path(folder)))))
        return
    name, write, _ = writers()[kind]
    path = Path(folder) / name
    while True:
        write(path)
        sys.stdout.write(".")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:3])
