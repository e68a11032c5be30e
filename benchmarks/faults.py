"""Faults, provoked: bad arguments, Ctrl-C, full disks and killed writers, damaged files, threads.

    python benchmarks/faults.py [--quick] [--json]

Prints the table of what is promised and what was measured. Nothing is provoked in this process:
the programs in ``tests/faults`` run in processes of their own, which may die. Seconds are those of the
machine it runs on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

FAULTS = Path(__file__).parents[1] / "tests" / "faults"
sys.path.insert(0, str(FAULTS))

import itertools

from harness import swept
from record import environment

ROUTES = ("milp", "lp", "fair", "psd_map", "cones", "deaf", "left", "sdp")


def bad_calls(quick: bool) -> dict[str, Any]:
    """Call everything with bad arguments."""
    found = Counter(word for _, word, _ in swept(FAULTS / "calls.py", 20 if quick else 1))
    kinds = {"raw": "raw", "silent": "silent", "hangs": "hang", "dead processes": "died"}
    return {"calls": sum(found.values()), **{k: found[w] for k, w in kinds.items()}}


def interrupts(quick: bool) -> dict[str, Any]:
    """Press Ctrl-C at random moments."""
    result: dict[str, Any] = {}
    for route in ROUTES:
        times = 5 if quick else 30
        command = [sys.executable, "-W", "ignore", str(FAULTS / "interrupts.py"), route, str(times)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in child.stdout.splitlines()]
        result[route] = {
            "times": len(lines),
            "poisoned": times - sum(line["fine"] for line in lines),
            "slowest answer, s": max((line["late"] for line in lines), default=None),
        }
    return result


def passed(selected: str, quick: bool) -> dict[str, int]:
    """Run the tests of writers or threads, and count."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts="]
    command += ["--import-mode=importlib", selected, *(["-m", "not slow"] if quick else [])]
    with tempfile.TemporaryFile("w+") as out:
        subprocess.run(command, stdout=out, stderr=out, check=False)
        out.seek(0)
        last = out.read().splitlines()[-1].split()
    counts = {word.strip(","): int(n) for n, word in itertools.pairwise(last) if n.isdigit()}
    return {"passed": counts.get("passed", 0), "failed": counts.get("failed", 0)}


def damaged(quick: bool) -> dict[str, int]:
    """Read damaged files and files that say more than they hold."""
    count = 300 if quick else 10_000
    rows = [row for n in (count, 0) for row in swept(FAULTS / "damaged_files.py", 1, str(n))]
    found = Counter(word for _, word, _ in rows)
    return {"files": len(rows), **dict(found)}


def main() -> None:
    """Measure, and print Markdown or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer of each, in two minutes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    found = {
        "bad calls": bad_calls(chosen.quick),
        "Ctrl-C": interrupts(chosen.quick),
        "faults while writing": passed(str(FAULTS / "test_writers.py"), chosen.quick),
        "damaged files": damaged(chosen.quick),
        "threads": passed(
            f"{FAULTS / 'test_interrupts.py'}::test_threads_do_not_disturb_each_other", chosen.quick
        ),
    }
    if chosen.json:
        print(json.dumps({"environment": environment(), **found}, indent=1))
        return
    print("| | measured | promised |\n| --- | --- | --- |")
    calls, files = found["bad calls"], found["damaged files"]
    print(
        f"| {calls['calls']:,} bad calls: raw, silent, hangs, dead processes"
        f" | {calls['raw']}, {calls['silent']}, {calls['hangs']}, {calls['dead processes']} | 0 of each |"
    )
    for route, r in found["Ctrl-C"].items():
        print(
            f"| Ctrl-C {r['times']} times in {route}: poisoned, slowest answer"
            f" | {r['poisoned']}, {r['slowest answer, s']} s | 0, 2 s |"
        )
    writing, threads = found["faults while writing"], found["threads"]
    print(
        f"| faults while writing: tests failed | {writing['failed']} of {sum(writing.values())} | 0 |"
    )
    odd = sum(n for word, n in files.items() if word not in ("files", "typed", "result"))
    print(f"| {files['files']:,} damaged files: not read and not refused by us | {odd} | 0 |")
    print(f"| 8 threads on every open solver: tests failed | {threads['failed']} | 0 |")


if __name__ == "__main__":
    main()
