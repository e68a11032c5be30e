"""Public collections by the default route and by single solvers, every answer verified here.

    OPTFAIR_COLLECTIONS=FOLDER python benchmarks/public_collections.py
        [--sets 'netlib,sdplib/t*'] [--solvers default,highs] [--tolerances 1e-4,1e-6,1e-8]
        [--smallest N] [--time-limit 60] [--out FILE] [--publish RECORD] [--quick] [--json]

Every run has a process of its own, which is ended some time after the limit. A run is a line of
FILE (benchmarks/out/public_collections.jsonl), and one that stands there is not made again, so an
interrupted benchmark goes on; --render prints the tables of such a record without running, and
--publish joins what the site shows of it, outcomes without data, to what RECORD has; a run made
again takes the place of the earlier one. --solvers open is the default route and
every open solver that takes the problem.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")


import optfair as of
from optfair.backends.registry import profiles
from optfair.comparison.comparison import Comparison
from optfair.comparison.run import Run, environment

DEFAULT = "default"
TOLERANCES = (1e-4, 1e-6, 1e-8)
QUICK = ("netlib/afiro", "netlib/adlittle", "maros_meszaros/HS118", "sdplib/truss4", "sdplib/infp1")
# what counts: proved in exact arithmetic for the declared floats, or for |x| <= R far out
GOOD = ("verified", "infeasible", "unbounded", "nonconvex")
# (collection, tolerance) -> share that has to be verified by the default route
TARGETS = {("netlib", 1e-6): 1.0, ("maros_meszaros", 1e-6): 0.95, ("sdplib", 1e-6): 0.85}
# optima that are stated otherwise than they are, and how that is seen
MISSTATED = {
    "sdplib/maxG51": "that is beyond the proved bound",
    "sdplib/qap10": "that lacks two digits",
    "sdplib/hinf12": "less is reached, far out",
}
FEWEST = 6  # problems of a profile, and runs of a solver that is shown in it
CLOCK = 0.01  # seconds that the record rounds to
GRACE = 30.0  # seconds for reading, and for a solver that stops late


def one(name: str, solver: str, tolerance: float, time_limit: float) -> dict[str, Any]:
    """Solve one member here, and say what became of it."""
    warnings.simplefilter("ignore")
    group, _, _ = name.partition("/")
    member = next(m for m in of.library.collection(group) if m.name == name)
    row: dict[str, Any] = {"name": name, "solver": solver, "tolerance": tolerance}
    begin, cpu = time.perf_counter(), cpu_seconds()
    try:
        try:
            problem = member.problem()
        except of.OptfairError as e:
            return row | {"outcome": "unreadable", "why": f"{e.cause}: {e.evidence}"}
        row["read"] = time.perf_counter() - begin
        refuted = [str(t.evidence) for t in problem.terms if "refuted" in t.evidence.note]
        if refuted:  # by a direction of negative curvature, in exact arithmetic
            return row | {"outcome": "nonconvex", "why": "; ".join(refuted)}
        s = problem.solve(
            None if solver == DEFAULT else solver, tolerance=tolerance, time_limit=time_limit
        )
        verified = s.is_optimal(tolerance)
        early = "time limit" if s.status.termination == "time_limit" else "reported"
        row |= {
            "outcome": "verified" if verified else early,
            "by": s.solver,
            "objective": s.objective,
            "bound": s.bound,
            "grade": str(s.grade),
            "agrees": member.agrees(s.objective, max(tolerance, 1e-6)),
            "why": "" if verified else "; ".join([str(s.grade), *s.attempts]),
        }
    except (of.Infeasible, of.Unbounded) as e:
        known = e.certificate is not None and bool(e.certificate.verify())
        word = "infeasible" if isinstance(e, of.Infeasible) else "unbounded"
        row |= {"outcome": word if known else "rejected", "why": "" if known else e.cause}
        row["agrees"] = member.outcome == word
    except of.OptfairError as e:
        row |= {"outcome": "rejected", "why": f"{e.cause} {e.evidence}"}
    except MemoryError:
        row |= {"outcome": "too large", "why": "no memory for it"}
    row |= {"seconds": time.perf_counter() - begin, "cpu": cpu_seconds() - cpu}
    return row


def cpu_seconds() -> float:
    """Return those of this process and of the ones it started: a solver may be in a worker.

    Those that have not ended are listed by Linux only, to a hundredth of a second.
    """
    living = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            facts = path.read_text(encoding="utf-8").rpartition(")")[2].split()
            living += int(facts[11]) + int(facts[12]) if int(facts[1]) == os.getpid() else 0
    running = living / os.sysconf("SC_CLK_TCK") if living else 0.0
    return time.process_time() + sum(os.times()[2:4]) + running


def apart(name: str, solver: str, tolerance: float, time_limit: float) -> dict[str, Any]:
    """Do the same in a process of its own, which is ended when it takes too long."""
    command = [sys.executable, __file__, "--one", name, "--solvers", solver]
    command += ["--tolerances", repr(tolerance), "--time-limit", repr(time_limit)]
    row: dict[str, Any] = {"name": name, "solver": solver, "tolerance": tolerance}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=time_limit + GRACE, check=False
        )
    except subprocess.TimeoutExpired:
        why = f"not ended {GRACE:g} s after the time limit"
        return row | {"outcome": "too large", "seconds": time_limit + GRACE, "why": why}
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not last:
        return row | {"outcome": "crashed", "why": done.stderr.strip()[-300:]}
    found: dict[str, Any] = json.loads(last[0])
    return found


def commit() -> str:
    """Return the commit that is checked out, with a + where files differ from it."""
    here = Path(__file__).parent
    call = ["git", "-C", str(here), "describe", "--always", "--dirty=+", "--abbrev=12"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def kept(file: Path) -> dict[tuple[str, str, float], dict[str, Any]]:
    """Return the runs of a record."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    rows = [json.loads(line) for line in lines if line.strip()]
    good = [r for r in rows if r["outcome"] != "crashed"]  # one that crashed is made again
    return {(r["name"], r["solver"], r["tolerance"]): r for r in good}


def recorded(
    asked: Iterable[tuple[str, str, float]],
    time_limit: float,
    file: Path | None,
    done: dict[tuple[str, str, float], dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Yield the run of each (member, solver, tolerance) that is not done, and add it to a file."""
    machine = setting(time_limit)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    for name, solver, tolerance in asked:
        if (name, solver, tolerance) in done:
            continue
        row = apart(name, solver, tolerance, time_limit) | {"environment": machine}
        if file is not None:
            with file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
        yield row


def setting(time_limit: float) -> dict[str, str]:
    """Return what a run is made with: machine, versions, commit and time limit."""
    return environment() | {"commit": commit(), "time_limit": f"{time_limit:g}"}


def shares(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str, float], list[dict[str, Any]]]:
    """Return the runs of each collection, solver and tolerance."""
    found: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for r in rows:
        key = (r["name"].partition("/")[0], r["solver"], r["tolerance"])
        found.setdefault(key, []).append(r)
    return found


def targets(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what must hold, measured on these runs."""
    found = []
    groups = shares(rows)
    for (group, tolerance), share in TARGETS.items():
        own = groups.get((group, DEFAULT, tolerance))
        if own:
            good = sum(r["outcome"] in GOOD for r in own) / len(own)
            name = f"{group} verified at {tolerance:g}"
            found.append(
                {"name": name, "target": share, "measured": good, "reached": good >= share}
            )
    wrong = [r["name"] for r in rows if r["outcome"] == "verified" and r.get("agrees") is False]
    wrong = [name for name in wrong if name not in MISSTATED]
    name = "verified, but not the stated optimum, misprints left out"
    return [*found, {"name": name, "target": 0, "measured": len(wrong), "reached": not wrong}]


Table = tuple[list[str], list[list[str]]]


def summary(rows: Sequence[dict[str, Any]]) -> Table:
    """Return head and lines of the shares by collection, solver and tolerance."""
    head = ["collection", "solver", "tolerance", "runs", "verified", "reported", "other", "CPU s"]
    lines = []
    for (group, solver, tolerance), own in sorted(shares(rows).items()):
        good = sum(r["outcome"] in GOOD for r in own)
        word = sum(r["outcome"] == "reported" for r in own)
        cpu = sum(r.get("cpu", r.get("seconds", 0.0)) for r in own)
        cells = (group, solver, f"{tolerance:g}", len(own), f"{good} ({good / len(own):.0%})", word)
        lines.append([str(c) for c in (*cells, len(own) - good - word, f"{cpu:.0f}")])
    return head, lines


def reasons(rows: Sequence[dict[str, Any]]) -> Table:
    """Return head and lines of why answers are not verified, or not those that are stated."""
    lines = []
    for r in rows:
        differs = r["outcome"] == "verified" and r.get("agrees") is False
        if r["outcome"] not in GOOD or differs:
            why = f"{r['objective']!r} is not the stated optimum" if differs else r.get("why", "")
            why += f"; {MISSTATED[r['name']]}" if differs and r["name"] in MISSTATED else ""
            why = " ".join(why.replace("|", "/").split())[:160]
            lines.append([r["name"], r["solver"], f"{r['tolerance']:g}", r["outcome"], why])
    return ["not verified", "solver", "tolerance", "outcome", "why"], lines


def repeated(rows: Sequence[dict[str, Any]]) -> Table:
    """Return head and lines of the runs that took the place of an earlier one, with its outcome."""
    lines = [
        [r["name"], r["solver"], f"{r['tolerance']:g}", r["before"], r["outcome"]]
        for r in rows
        if r.get("before")
    ]
    return ["made again", "solver", "tolerance", "before", "now"], lines


def compared(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, float], Comparison]:
    """Return the runs of each collection and tolerance as comparisons, as far as they are fair.

    Of the solvers with at least `FEWEST` runs there, on the problems that all of them ran on;
    nothing where these are fewer than two solvers or `FEWEST` problems. What is proved counts as
    answered. CPU seconds alone are kept, reading included.
    """
    found: dict[tuple[str, float], Comparison] = {}
    by_run: dict[tuple[str, float], dict[str, dict[str, dict[str, Any]]]] = {}
    for r in rows:
        place = by_run.setdefault((r["name"].partition("/")[0], r["tolerance"]), {})
        place.setdefault(r["solver"], {})[r["name"]] = r
    for place, by_solver in sorted(by_run.items()):
        several = {s: own for s, own in by_solver.items() if len(own) >= FEWEST}
        common = sorted(set.intersection(*map(set, several.values()))) if several else []
        if len(several) > 1 and len(common) >= FEWEST:
            runs = tuple(_run(own[name]) for own in several.values() for name in common)
            limit = max(run.time_limit for run in runs)
            found[place] = Comparison(runs, place[1], limit)
    return found


def _run(row: dict[str, Any]) -> Run:
    cpu, limit = float(row["cpu"]), float(row["environment"]["time_limit"])
    known = {"verified": "solved", "too large": "time_limit", "unreadable": "unreadable"}
    proved = "infeasible" if row["outcome"] in GOOD else "failed"
    return Run(
        problem=row["name"],
        problem_class="",
        solver=row["solver"],
        version="",
        repeat=0,
        outcome=known.get(row["outcome"], proved),
        reason=row.get("why", ""),
        tolerance=row["tolerance"],
        time_limit=limit,
        cpu_seconds=max(cpu, CLOCK),
        objective=row.get("objective"),
        grade=row.get("grade", ""),
        environment=row["environment"],
    )


def pictured(comparison: Comparison, name: str, *, to_best: bool) -> str:
    """Return the profile of a comparison by CPU seconds as an ``<svg>`` element."""
    from optfair.pages import inline_svg
    from optfair.plots import plot_profile

    profile = (comparison.profile if to_best else comparison.data_profile)("cpu_seconds")
    ends = ", ".join(f"{s} {len(r)} of {profile.taken[s]}" for s, r in profile.ratios.items())
    kind = "Performance profile" if to_best else "Data profile"
    mark = re.sub("[^a-z0-9]", "-", f"{kind} {name}".lower())
    title, height = f"{kind}, {name}", 3.4 + 0.12 * len(profile.ratios)
    draw = partial(plot_profile, profile, title=kind)
    return inline_svg(lambda ax: draw(ax=ax), mark, title, f"Answered in all: {ends}.", height)


def rendered(rows: Sequence[dict[str, Any]]) -> str:
    """Return the tables in Markdown: shares, why each other answer is none, what was made again."""
    lines: list[str] = []
    for head, table in (summary(rows), reasons(rows), repeated(rows)):
        if table:
            lines += ["", *(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head)))]
            lines += [f"| {' | '.join(cells)} |" for cells in table]
    return "\n".join(lines[1:])


# What a published record keeps of a run.
KEPT = (
    *("name", "solver", "tolerance", "outcome", "before"),
    *("by", "grade", "objective", "agrees", "why"),
)


def unpacked(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of a published record, each with its environment."""
    return [r | {"environment": record["environments"][r["environment"]]} for r in record["runs"]]


def published(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a record to keep: machines, versions and commits once, and outcomes, the last of each run."""
    last: dict[tuple[str, str, float], dict[str, Any]] = {}
    for r in rows:
        key = (r["name"], r["solver"], r["tolerance"])
        known = last.get(key, r)
        earlier = [known.get("before")]
        if known["environment"] != r["environment"]:  # made again: what it takes the place of
            earlier.append(known["outcome"])
        r = {"before": ", ".join(filter(None, earlier))} | r
        last[key] = r
    machines: list[dict[str, str]] = []
    runs = []
    for r in sorted(last.values(), key=lambda r: (r["tolerance"], r["solver"], r["name"])):
        if r["environment"] not in machines:
            machines.append(r["environment"])
        run = {k: r[k] for k in KEPT if r.get(k) not in (None, "")}
        if "why" in run:
            run["why"] = re.sub(r"(?<!\S)/(\S+/)+", "", " ".join(run["why"].split()))[:160].strip()
        run |= {"cpu": round(r.get("cpu", r.get("seconds", 0.0)), 2)}
        runs.append(run | {"environment": machines.index(r["environment"])})
    return {"schema": 1, "environments": machines, "runs": runs}


def open_solvers(name: str) -> list[str]:
    """Return the default route and the open solvers, of those installed, that take a member."""
    member = next(m for m in of.library.collection(name.partition("/")[0]) if m.name == name)
    try:
        problem = member.problem()
    except of.OptfairError:  # the default route says why
        return [DEFAULT]
    able = (p for p in profiles().values() if p.kind == "open" and not p.structure)
    usable = [p.name for p in able if p.installed and p.nonconvex != "local" and p.accepts(problem)]
    return [DEFAULT, *usable]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sets", default="", help="collections, or patterns such as sdplib/t*; by default all"
    )
    parser.add_argument("--solvers", default=DEFAULT, help="default, open, or names of solvers")
    parser.add_argument(
        "--smallest", type=int, default=0, metavar="N", help="of each collection, by size of file"
    )
    parser.add_argument("--tolerances", default=",".join(f"{t:g}" for t in TOLERANCES))
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out/public_collections.jsonl"))
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s, measured anew")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--publish", type=Path, help="write the record that the site shows")
    parser.add_argument("--render", action="store_true", help="print the tables of the record")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    tolerances = [float(t) for t in options.tolerances.split(",")]
    solvers = options.solvers.split(",")
    if options.one:
        row = one(options.one, solvers[0], tolerances[0], options.time_limit)
        print(json.dumps(row))
        return
    done = {} if options.quick else kept(options.out)
    if not options.render:
        groups = options.sets.split(",") if options.sets else of.library.collections()
        names = []
        for g in groups:
            members = of.library.collection(g.partition("/")[0])
            own = [m for m in members if fnmatch(m.name, g if "/" in g else f"{g}/*")]
            own.sort(key=lambda m: m.path.stat().st_size if m.path.is_file() else 0)
            names += [m.name for m in own[: options.smallest or None]]
        if options.quick:
            names, tolerances = [n for n in names if n in QUICK], [1e-6]
            options.time_limit = 10.0
        asked = {n: open_solvers(n) if solvers == ["open"] else solvers for n in names}
        every = ((n, solver, tol) for tol in tolerances for n in names for solver in asked[n])
        file = None if options.quick else options.out
        for row in recorded(every, options.time_limit, file, done):
            name, solver, tolerance = key = row["name"], row["solver"], row["tolerance"]
            done[key] = row
            if not options.json:
                print(f"{name} {solver} {tolerance:g}: {row['outcome']}", file=sys.stderr)
    rows = list(done.values())
    if options.publish:
        known = options.publish.read_text(encoding="utf-8") if options.publish.exists() else ""
        earlier = unpacked(json.loads(known)) if known else []
        lines = json.dumps(published([*earlier, *rows]), indent=1)
        options.publish.write_text(lines + "\n", encoding="utf-8")
    result = {"must_reach": targets(rows), "runs": rows}
    if options.json:
        print(json.dumps(result))
        return
    machines = {json.dumps(r["environment"], sort_keys=True) for r in rows if "environment" in r}
    print("## Public collections, verified here\n")
    print(rendered(rows))
    from record import targets_table  # the documentation loads this file without its folder

    print("\n" + targets_table(result["must_reach"]))
    for text in sorted(machines):
        print("\n" + ", ".join(f"{k} {v}" for k, v in json.loads(text).items()))


if __name__ == "__main__":
    main()
