"""Files of every kind that is read, damaged in many ways; each must be read or refused by us."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import random
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.io
import scipy.sparse as sp
from harness import told

import optfair as of
from optfair.comparison import Comparison
from optfair.registry import load_facts

SECONDS = 2.0
MEMORY = 500 << 20


def seeds() -> dict[str, tuple[bytes, Callable[[Path], Any]]]:
    """Return a good file of every kind by name, and what reads it."""
    x, S = cp.Variable(3, name="x"), cp.Variable((2, 2), name="S", symmetric=True)
    k = cp.Variable(2, name="k", integer=True)
    rows = [cp.sum(x) <= 3, x >= 0, x[0] - x[1] == 0.5]
    small = of.from_cvxpy(cp.Problem(cp.Maximize(x[0] + 2 * x[1]), rows), ["sum", "sign", "mix"])
    whole = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(k)), [k >= 0.5, k <= 9]), ["low", "up"])
    cone = of.from_cvxpy(cp.Problem(cp.Maximize(x[0]), [cp.norm(x) <= 1, cp.exp(x[1]) <= 2]))
    semi = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(S)), [S >> np.eye(2), S[0, 1] >= 0.1]))
    s = small.solve()
    for name, p in {
        "lp.mps": small,
        "mip.mps": whole,
        "lp.lp": small,
        "mip.lp": whole,
        "cone.cbf": cone,
        "semi.cbf": semi,
        "semi.dat-s": semi,
    }.items():
        of.export(p, name)
    arrays = {
        "P": np.eye(2),
        "q": np.ones(2),
        "A": np.ones((1, 2)),
        "l": np.zeros(1),
        "u": np.ones(1),
    }
    scipy.io.savemat("qp.mat", arrays)
    scipy.io.savemat("packed.mat", arrays, do_compression=True)
    scipy.io.savemat("sparse.mat", {**arrays, "P": sp.csc_array(np.eye(2)), "note": "a"})
    scipy.io.savemat("old.mat", arrays, format="4")
    s.save("s")
    s.certificate.save("proof.json")
    of.group_counterfactuals.TransportMap(np.eye(2), [1.0, 0.0]).save("map")
    of.compare_solvers({"lp": small}, "highs", time_limit=5.0).save("runs.json")
    Path("facts.toml").write_text('schema = 1\nname = "a"\n[table]\nk = [1, 2, {b = 3}]\n')
    kinds: dict[str, Callable[[Path], Any]] = {
        "s.npz": lambda file: of.load_solution(file, small),
        "map.npz": of.group_counterfactuals.TransportMap.load,
        "proof.json": lambda file: of.load_proof(file).verify(),
        "runs.json": Comparison.load,
        "facts.toml": load_facts,
    }
    found = {
        file.name: (file.read_bytes(), kinds.get(file.name, of.read))
        for file in sorted(Path().iterdir())
    }
    for name in ("lp.mps", "cone.cbf"):
        data, read = found[name]
        found |= {f"{name}.gz": (gzip.compress(data, mtime=0), read)}
        found |= {f"{name}.bz2": (bz2.compress(data), read)}
    return found


NUMBERS = (
    b"-1",
    b"1e999",
    b"nan",
    b"2000000000",
    b"9" * 30,
    b"1.5",
    b"0",
    b"-0",
    b"inf",
    b"1e-400",
    b"1D400",
    b"0x10",
    b"1_0",
    "\u0663".encode(),
    b"[" * 2000,
    b"x[" + b"1," * 99 + b"1]",
)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the file with one to three kinds of damage."""
    for _ in range(rng.randint(1, 3)):
        at, to = sorted(rng.choices(range(len(data) + 1), k=2))
        kind = rng.randrange(11)
        numbers = list(re.finditer(rb"[-+]?[0-9][0-9.eE+-]*", data))
        lines = data.split(b"\n")
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + data[to:]
        elif kind == 2:
            data = data[:at] + data[at : min(to, at + 2000)] * rng.randint(1, 3) + data[at:]
        elif kind == 3 and data:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif kind in (4, 5, 6) and numbers:
            one = rng.choice(numbers)
            data = data[: one.start()] + rng.choice(NUMBERS) + data[one.end() :]
        elif kind == 7:
            rng.shuffle(lines)
            data = b"\n".join(lines)
        elif kind == 8:
            data = rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xe4", b"\0", b"\r")) + data
        elif kind == 9:
            line = rng.choice(lines)
            data = b"\n".join([*lines, *[line] * rng.randint(1, 50)])
        else:
            data = data.replace(
                b" ", rng.choice((b"\t", b"", b"  ", b"\xc2\xa0")), rng.randint(1, 5)
            )
    return data


def cases(count: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield damaged files in turn, the same ones each time."""
    kinds = list(seeds().items())
    with contextlib.suppress(FileExistsError):
        Path("damaged").mkdir()
    for k in range(count):
        name, (data, read) = kinds[k % len(kinds)]
        file = Path("damaged") / name

        def run(k: int = k, file: Path = file, data: bytes = data, read: Any = read) -> Any:
            file.write_bytes(damaged(data, random.Random(k)))
            return read(file)

        yield f"{name} #{k}", run


def bombs() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield small files that say or unpack to far more than they hold."""
    heads = {
        "bomb.mps.gz": gzip.compress(b"NAME A\n" + b" " * (200 << 20), 1),
        "bomb.lp.bz2": bz2.compress(b" " * (80 << 20)),
        "many.cbf": b"VER\n3\n\nVAR\n16000000 1\nL+ 16000000\n\nCON\n16000000 1\nL= 16000000\n",
        "more.cbf": b"VER\n3\n\nVAR\n2000000000 1\nF 2000000000\n",
        "order.cbf": b"VER\n3\n\nPSDVAR\n1\n16000000\n",
        "psdcon.cbf": b"VER\n3\n\nVAR\n1 1\nF 1\n\nPSDCON\n1\n1000000\n",
        "order.dat-s": b"1 = m\n1 = nblocks\n16000000\n1.0\n1 1 1 1 1.0\n",
        "constraints.dat-s": b"16000000 = m\n1 = nblocks\n2\n1.0\n1 1 1 1 1.0\n",
        "index.mps": b"NAME A\nROWS\n N c\n L r\nCOLUMNS\n x[16000000] c 1\n x[16000000] r 1\nENDATA\n",
        "indices.lp": b"min\n x["
        + b"9," * 200
        + b"1] + x[1,1]\nst\n c: x[3,999999999] >= 1\nend\n",
        "deep.toml": b"schema = 1\na = " + b"[" * 100_000,
        "deep.json": json.dumps({"schema": 1, "runs": []}).encode()[:-1] + b'"a":' + b"[" * 100_000,
    }
    for name, data in heads.items():
        read: Any = of.read
        read = load_facts if name.endswith("toml") else Comparison.load if "json" in name else read

        def run(name: str = name, data: bytes = data, read: Any = read) -> Any:
            Path(name).write_bytes(data)
            return read(Path(name))

        yield name, run


def main(start: int, step: int, count: int) -> None:
    """Read the files, with a limit of memory."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if count:
            todo = list(cases(count))
        else:
            todo = list(bombs())
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
        told(todo, start, step, SECONDS, silent_counts=False)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
