"""Reading files: our reader and classifier against HiGHS's reader, on the Netlib linear programs.

With --solve they are solved as well, and verified at 1e-7, against HiGHS's reader and run.
Needs the folder OPTFAIR_COLLECTIONS with netlib/*.mps.gz, or --folder with MPS files.

    python benchmarks/readers.py [--quick] [--json] [--solve] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import scipy.sparse as sp
from record import environment, targets_table

import optfair as of
from optfair.formats.mps import read_mps

#: what HiGHS drops on reading
SMALL = 1e-9
#: seconds from which on a file is solved once, and below which HiGHS has a file that is small
LONG, SHORT = 1.0, 0.01


def files(folder: Path | None) -> list[Path]:
    """Return the files, or say where they are looked for."""
    if folder is None:
        collections = os.environ.get("OPTFAIR_COLLECTIONS", "")
        folder = Path(collections) / "netlib" if collections else None
    found = sorted(folder.glob("*.mps*")) if folder is not None else []
    if not found:
        raise SystemExit("no MPS files: set OPTFAIR_COLLECTIONS, or give --folder")
    return found


def ours(file: Path) -> str:
    return str(of.read(file).problem_class)


def theirs(file: Path) -> highspy.Highs:
    solver = highspy.Highs()
    solver.silent()
    solver.readModel(str(file))
    return solver


def apart(file: Path) -> tuple[float, int, int]:
    """Return the largest difference to HiGHS's matrix, entries it dropped, and columns."""
    mine, lp = read_mps(file), theirs(file).getLp()
    matrix = lp.a_matrix_
    kept = {label: i for i, label in enumerate(lp.row_names_)}
    rows = [i for i, label in enumerate(mine.rows) if label in kept]
    if len(rows) != len(kept) or list(lp.col_names_) != list(mine.columns):
        # labels with spaces are not kept by it
        free = np.isinf(mine.row_lower) & np.isinf(mine.row_upper)
        rows = np.flatnonzero(~free).tolist()
    shape = (lp.num_row_, lp.num_col_)
    A = sp.csc_array((matrix.value_, matrix.index_, matrix.start_), shape=shape)
    B = sp.csc_array(mine.A[rows, :])
    dropped = int((np.abs(B.data) <= SMALL).sum())
    B.data[np.abs(B.data) <= SMALL] = 0.0
    off = float(abs(A - B).max()) if A.nnz else 0.0
    return off, dropped, lp.num_col_


def measured(found: list[Path], rounds: int) -> list[dict[str, Any]]:
    """Return the seconds of both sides by file: each round reads every file by both, in turn."""
    table = [{"file": f.name.partition(".")[0], "optfair": [], "HiGHS": []} for f in found]
    for i in range(rounds + 1):
        if i == 1:
            gc.collect()
            gc.freeze()  # what was imported so far is not searched again
        for row, file in zip(table, found, strict=True):
            sides = [("optfair", ours), ("HiGHS", theirs)]
            for name, side in sides if i % 2 else sides[::-1]:
                begin = time.perf_counter()
                kept = side(file)
                row[name].append(time.perf_counter() - begin)
                del kept
    for row in table:  # the first round warms caches up
        row["optfair"], row["HiGHS"] = row["optfair"][1:], row["HiGHS"][1:]
    return table


def solved(file: Path) -> None:
    assert of.read(file).solve(tolerance=1e-7).is_optimal(), file


def run(file: Path) -> None:
    solver = theirs(file)
    solver.run()


def answered(found: list[Path], rounds: int) -> list[dict[str, Any]]:
    """Return the least seconds in which each side reads and solves a file."""
    solved(found[0])  # imports
    table = []
    for file in found:
        least = {"optfair": np.inf, "HiGHS": np.inf}
        for i in range(rounds):
            sides = [("optfair", solved), ("HiGHS", run)]
            for name, side in sides if i % 2 else sides[::-1]:
                begin = time.perf_counter()
                side(file)
                least[name] = min(least[name], time.perf_counter() - begin)
            if max(least.values()) > LONG:
                break
        table.append({"file": file.name.partition(".")[0], **least})
    return table


def answers(found: list[Path], rounds: int, json_only: bool) -> None:
    """Print what reading, solving and verifying costs beside HiGHS's reading and running."""
    table = answered(found, rounds)
    total = {name: sum(row[name] for row in table) for name in ("optfair", "HiGHS")}
    short = [row for row in table if row["HiGHS"] < SHORT]
    over = [row["file"] for row in short if row["optfair"] > row["HiGHS"] + 0.015]
    targets = [
        (f"read, solve and verify {len(found)} files: time / HiGHS's read and run", 1.3,
         total["optfair"] / total["HiGHS"]),
        (f"of {len(short)} files that take HiGHS < 10 ms, more than 15 ms above", 0.0,
         float(len(over))),
    ]  # fmt: skip
    rows = [{"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets]
    if json_only:
        print(json.dumps({"must_reach": rows, "files": table, "environment": environment()}))
        return
    print("## Solving MPS files\n\n| file | optfair ms | HiGHS ms |\n|---|---:|---:|")
    for row in table:
        print(f"| {row['file']} | {row['optfair'] * 1e3:.1f} | {row['HiGHS'] * 1e3:.1f} |")
    stated(rows)
    print(f"\nabove: {', '.join(over) or 'none'}")


def stated(rows: list[dict[str, Any]]) -> None:
    """Print the rows with targets."""
    print("\n" + targets_table(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--solve", action="store_true", help="solve them as well, nothing else")
    parser.add_argument("--folder", type=Path, help="MPS files; by default those of Netlib")
    options = parser.parse_args()
    found = files(options.folder)
    rounds = 3 if options.quick else 9
    if options.solve:
        answers(found, rounds, options.json)
        return
    table = measured(found, rounds)
    totals = {
        name: [sum(each) for each in zip(*(row[name] for row in table), strict=True)]
        for name in ("optfair", "HiGHS")
    }
    paired = [a / b for a, b in zip(totals["optfair"], totals["HiGHS"], strict=True)]
    ratio = statistics.median(paired)
    for row, file in zip(table, found, strict=True):
        row["off"], row["dropped"], row["columns"] = apart(file)
        row["optfair"] = statistics.median(row["optfair"])
        row["HiGHS"] = statistics.median(row["HiGHS"])
    off = max(row["off"] for row in table)
    targets = [
        (f"read and classify {len(found)} files: time / HiGHS's reader", 5.0, ratio),
        ("largest difference of a coefficient to HiGHS's", 0.0, off),
    ]
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "seconds": {name: statistics.median(each) for name, each in totals.items()},
        "ratios": paired,
        "files": table,
        "environment": {**environment(), "highspy": highspy.Highs().version()},
    }
    if options.json:
        print(json.dumps(result))
        return
    print("## Reading MPS files\n")
    print("Medians; of.read and problem_class against Highs.readModel.\n")
    print("| file | columns | optfair ms | HiGHS ms | ratio | entries HiGHS drops |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in table:
        print(
            f"| {row['file']} | {row['columns']} | {row['optfair'] * 1e3:.1f} "
            f"| {row['HiGHS'] * 1e3:.1f} | {row['optfair'] / row['HiGHS']:.1f} | {row['dropped']} |"
        )
    stated(result["must_reach"])


if __name__ == "__main__":
    main()
