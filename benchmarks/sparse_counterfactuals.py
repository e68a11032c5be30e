"""Sparse counterfactuals against the baselines of the paper, the optimum and the public package.

    python benchmarks/sparse_counterfactuals.py [--quick] [--json] [--out DIR] [--only PART ...]
                                                [--fresh]

Prints Markdown and writes a picture. Parts:

- headline: German Credit, 100 rows, random forest: edits for the full effect on decisions.
- optimum: the least mean difference for 50 rows under a budget, against HiGHS on the formulation
  as the paper prints it, with all 2^9 choices of every row.
- attribution: time of exact p-SHAP over the time the model itself takes.
- budget: the six methods of Table 2 and the optimum along the budget, as in Figures 3 and 4.
- table: edits for 80 % and 100 % of the effect, as in Table 3, over data sets, classifiers and
  generators. Every scenario is kept in DIR, and a second run of the same code goes on where the
  first one stopped; what must be reached is always measured.
- peer: the quickstart of the PyPI package xai-cola in an environment of its own, made in DIR.

German Credit (9 features) and Hotel Bookings (29) are read from OPTFAIR_DATA. An effect on
decisions is the share of wrong decisions that were turned; on scores, the share of the transport
distance to the scores of the counterfactuals that was removed. Edits are counted where a cell
differs from the row as it was. Seconds are wall time, those of p-SHAP CPU time; one thread.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import sparse_counterfactual_measures as measures
from record import environment
from sparse_counterfactual_peer import peer
from sparse_counterfactual_report import picture, report, targets_of
from sparse_counterfactual_scenarios import CLASSIFIERS, GENERATORS, GERMAN, HOTEL

import optfair as of

HERE = Path(__file__).resolve().parent
PARTS = ("headline", "optimum", "attribution", "budget", "table", "peer")
Result = dict[str, Any]


def scenarios(quick: bool) -> list[tuple[str, str, str]]:
    if quick:
        return [(GERMAN, c, g) for c, g in zip(("LR", "GradBoost"), GENERATORS, strict=True)]
    # a Gaussian process of 4,000 rows takes hours to attribute
    return [
        (data, c, g)
        for data in (GERMAN, HOTEL)
        if have(data)
        for c in CLASSIFIERS
        for g in GENERATORS
        if (data, c) != (HOTEL, "GP")
    ]


def table(quick: bool, folder: Path | None) -> list[Result]:
    """Run all scenarios; those that a folder has are read from it."""
    found = []
    for names in scenarios(quick):
        file = None if folder is None else folder / f"{'-'.join(names).replace(' ', '_')}.json"
        if file is not None and file.exists():
            found.append(json.loads(file.read_text()))
            continue
        note(", ".join(names))
        result = measures.scenario(*names, quick)
        found.append(result)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".part")
            part.write_text(json.dumps(result))
            part.replace(file)
    return found


def have(name: str) -> bool:
    return not of.datasets.names()[name].startswith(("needs", "not in", "https"))


def stamp() -> str:
    """Return what kept scenarios depend on: the code that measures and what it measures."""
    files = [HERE / f"sparse_counterfactual_{end}.py" for end in ("measures", "scenarios")]
    files += sorted((Path(of.__file__).parent / "methods" / "sparse_counterfactuals").rglob("*.py"))
    code = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(code + of.__version__.encode()).hexdigest()[:12]


def note(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--fresh", action="store_true", help="forget earlier scenarios")
    options = parser.parse_args()
    if not have(GERMAN):
        parser.exit(1, f"{GERMAN} is not in OPTFAIR_DATA\n")
    if not have(HOTEL):
        note(f"left out, not in OPTFAIR_DATA: {HOTEL}")
    options.out.mkdir(parents=True, exist_ok=True)
    folder = options.out / f"sparse_counterfactuals-{stamp()}"
    if options.fresh:
        for file in folder.glob("*.json"):
            file.unlink()
    parts: dict[str, Callable[[], Any]] = {
        "headline": lambda: measures.headline(options.quick),
        "optimum": lambda: measures.optimum(options.quick),
        "attribution": lambda: measures.attribution(options.quick),
        "budget": lambda: measures.budget(options.quick),
        "table": lambda: table(options.quick, None if options.quick else folder),
        "peer": lambda: peer(options.out, options.quick),
    }
    found: Result = {}
    for part in options.only:
        note(part)
        found[part] = parts[part]()
    found["must_reach"] = targets_of(found)
    found["environment"] = environment()
    if options.json:
        print(json.dumps(found))
        return
    report(found)
    if found.get("budget"):
        file = options.out / "sparse_counterfactuals.png"
        picture(found["budget"], file)
        print(f"\nPicture: {file}")


if __name__ == "__main__":
    main()
