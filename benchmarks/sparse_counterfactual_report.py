"""What must be reached by sparse counterfactuals; Markdown and picture of what was found."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
from record import targets_table
from sparse_counterfactual_measures import LEVELS
from sparse_counterfactual_scenarios import METHODS

BASELINES = ("CF-pRnd", "CF-pUni", "RB-pOT", "RB-pUni")
Result = dict[str, Any]
Targets = list[tuple[str, float, float, bool]]  # name, target, measured, at most?


# --- what must be reached -----------------------------------------------------------------


def targets_of(found: Result) -> list[Result]:
    """Return what must be reached, of what was run."""
    listed: Targets = []
    if found.get("headline"):
        listed += of_headline(found["headline"][0])
    if found.get("optimum"):
        listed += of_optimum(found["optimum"])
    if found.get("budget"):
        # a method below the optimum of its own values would disprove it
        below = max(-r["distance"][k][2] for r in found["budget"] for k in METHODS)
        listed.append(("along the budget: below the proven optimum", 1e-9, below, True))
    if found.get("attribution"):
        a = found["attribution"]
        what = f"exact p-SHAP, {a['rows']} rows, d=9, random forest: over the model's time"
        listed.append((what, 3.0, a["ratio"], True))
    if isinstance(found.get("peer"), list):
        worst = max(r["edits"] - r["peer edits"] for r in found["peer"])
        listed.append(("xai-cola quickstart: edits more than it, worst case", 0, worst, True))
        least = min(r["effect"] - r["peer effect"] for r in found["peer"])
        listed.append(("xai-cola quickstart: effect less its effect, worst case", 0, least, False))
    return [
        {"name": n, "target": t, "measured": m, "reached": bool(m <= t if most else m >= t)}
        for n, t, m, most in listed
    ]


def of_headline(h: Result) -> Targets:
    """Return the targets on 100 rows; a method without the effect needs more edits than any."""
    edits = {name: m["edits"] * h["rows"] if m else 1e9 for name, m in h["methods"].items()}
    ours = h["methods"]["CF-pOT"]
    what = f"German Credit, {h['rows']} rows, decisions, p-SHAP: "
    fewer = min(edits[b] for b in BASELINES) - edits["CF-pOT"]
    # with nearest neighbours transport finds the alignment itself: one method under two names
    same = h["CF-pEct has the values of CF-pOT"]
    told = edits["CF-pEct"] - edits["CF-pOT"]
    return [
        (
            what + "share of the original edits for effect 100 %, turned rows last",
            0.45,
            ours["share"] if ours else np.inf,
            True,
        ),
        (what + "edits fewer than the best baseline of Table 3", 1, round(fewer, 6), False),
        (
            what + "edits fewer than CF-pEct" + (", which is the same method here" if same else ""),
            0 if same else 1,
            round(told, 6),
            False,
        ),
    ]


def of_optimum(lines: list[Result]) -> Targets:
    listed: Targets = []
    for r in lines:
        what = f"50 rows, 9 features, C={r['budget']}, {r['coupling']} coupling: "
        if r["budget"] == 100:  # zero is within reach
            listed.append((what + "|sum|", 1e-9, r["value"], True))
            continue
        listed.append((what + "proven", 1, float(r["proven"]), False))
        ratio = r["HiGHS seconds"] / r["seconds"]
        listed.append((what + "times faster than HiGHS", 100, ratio, False))
        if r["HiGHS proven"]:
            apart = abs(r["value"] - r["HiGHS value"]) / max(1.0, abs(r["value"]))
            listed.append((what + "difference to HiGHS", 1e-9, apart, True))
    return listed


# --- Markdown -----------------------------------------------------------------------------


def cell(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def report(found: Result) -> None:
    """Print everything that was run."""
    parts = {
        "headline": print_headline,
        "optimum": print_optimum,
        "attribution": print_attribution,
        "budget": print_budget,
        "table": print_tables,
        "peer": print_peer,
    }
    for name, tell in parts.items():
        if found.get(name):
            tell(found[name])
    if found["must_reach"]:
        print("\n" + targets_table(found["must_reach"]))


def print_headline(found: list[Result]) -> None:
    rows = found[0]["rows"]
    print(f"\n## Effect 100 % on decisions: German Credit, random forest, {rows} rows")
    for h in found:
        print_full_effect(h)


def print_full_effect(h: Result) -> None:
    print(f"\nOriginal counterfactuals ({h['generator']}): {h['original']:.2f} edits per row.\n")
    print("As printed: without leaving rows that are turned already until the end.\n")
    print("| method | edits per row | share of the original | distance | as printed | share |")
    print("|---|---:|---:|---:|---:|---:|")
    nothing = dict.fromkeys(("edits", "share", "distance"))
    for name in METHODS:
        m, printed = (h[way][name] or nothing for way in ("methods", "as printed"))
        print(
            f"| {name} | {cell(m['edits'], '.2f')} | {cell(m['share'], '.1%')} "
            f"| {cell(m['distance'], '.1%')} | {cell(printed['edits'], '.2f')} "
            f"| {cell(printed['share'], '.1%')} |"
        )
    print(f"| optimum for the values of CF-pOT | {cell(h['optimum'], '.2f')} | | | | |")
    if h["CF-pEct has the values of CF-pOT"]:
        print(
            "\nEvery nearest neighbour is nearest among all of them too, so optimal transport "
            "finds the alignment, and CF-pOT and CF-pEct are one method here."
        )


def print_optimum(lines: list[Result]) -> None:
    print("\n## Least mean difference under a budget: 50 rows, all 2^9 choices\n")
    print("The value is 50 times the mean difference. Proven is a relative gap of 1e-9. Times are")
    print("those of the solvers; the last column is of whole calls, which compile and verify.\n")
    print(
        "| coupling | C | value | proven | ms | HiGHS value | HiGHS s | times faster | whole call |"
    )
    print("|---|---:|---:|---|---:|---:|---:|---:|---:|")
    for r in lines:
        sign = "" if r["HiGHS proven"] else "≥ "
        print(
            f"| {r['coupling']} | {r['budget']} | {r['value']:.6g} "
            f"| {'yes' if r['proven'] else 'no'} | {1e3 * r['seconds']:.1f} "
            f"| {cell(r['HiGHS value'], '.6g')} | {sign}{r['HiGHS seconds']:.2f} "
            f"| {sign}{r['HiGHS seconds'] / r['seconds']:.0f} "
            f"| {sign}{r['HiGHS whole seconds'] / r['whole seconds']:.0f} |"
        )


def print_attribution(a: Result) -> None:
    print(
        f"\nExact p-SHAP of {a['rows']} rows asks the model for {a['model rows']:,} rows and takes"
        f" {a['ratio']:.2f} times the model's own {a['seconds']:.2f} s."
    )


def print_budget(lines: list[Result]) -> None:
    print("\n## Distance to the optimum along the budget, in % of the distance at 0 edits\n")
    print("Against the optimum of each method's own values: mean (largest).\n")
    names = list(METHODS)
    print(f"| classifier | counterfactuals | {' | '.join(names)} |")
    print("|---|---|" + "---:|" * len(names))
    for r in lines:
        cells = [
            f"{100 * r['distance'][k][1]:.1f} ({100 * r['distance'][k][0]:.1f})" for k in names
        ]
        print(f"| {r['classifier']} | {r['generator']} | {' | '.join(cells)} |")


def print_tables(found: list[Result]) -> None:
    """Print Table 3: for decisions, for decisions with needless edits taken back, for scores."""
    for kind, what in (
        ("decisions", "decisions"),
        ("pruned", "decisions, needless edits taken back"),
        ("scores", "scores"),
    ):
        print(f"\n## Edits for an effect on {what}\n")
        print("Means of the scenarios in which a method has the effect: compare equal numbers.\n")
        print(
            "| data | method | 80 %: edits per row | share | distance | scenarios "
            "| 100 %: edits per row | share | distance | scenarios |"
        )
        print("|---|---|" + "---:|" * 8)
        for data in dict.fromkeys(r["data"] for r in found):
            for method in METHODS:
                cells = "".join(
                    f" {cell(e, '.2f')} | {cell(s, '.1%')} | {cell(d, '.1%')} | {k} of {m} |"
                    for e, s, d, k, m in summary(found, data, method, kind)
                )
                print(f"| {data} | {method} |{cells}")
            if kind == "decisions":
                mine = [r["optimum"] for r in found if r["data"] == data]
                cells = ""
                for level in (f"{e:.0%}" for e in LEVELS):
                    known = [o[level] for o in mine if o[level] is not None]
                    mean = statistics.mean(known) if known else None
                    cells += f" {cell(mean, '.2f')} | | | {len(known)} of {len(mine)} |"
                print(f"| {data} | optimum, values of CF-pOT |{cells}")
        for data in dict.fromkeys(r["data"] for r in found):
            mine = [r["methods"] for r in found if r["data"] == data]
            for level in (f"{e:.0%}" for e in LEVELS):
                first, ties = fewest(mine, kind, level)
                print(
                    f"\n{data}, {level}: CF-pOT needs the fewest edits of the methods that are not "
                    f"told the alignment in {first} of {len(mine)} scenarios, as few in {ties} more."
                )


def fewest(scenarios: list[Result], kind: str, level: str) -> tuple[int, int]:
    """Return in how many scenarios CF-pOT is ahead of the baselines of Table 3, and level."""
    first = ties = 0
    for methods in scenarios:
        ours, *others = (
            np.mean([run[kind][level]["edits"] if run[kind][level] else np.inf for run in runs])
            for runs in (methods["CF-pOT"], *(methods[b] for b in BASELINES))
        )
        first += bool(ours < min(others) - 1e-9)
        ties += bool(np.isfinite(ours) and abs(ours - min(others)) <= 1e-9)
    return first, ties


def summary(found: list[Result], data: str, method: str, kind: str) -> list[Any]:
    """Return for each level: mean edits, share and distance ratio, and in how many scenarios."""
    cells: list[Any] = []
    mine = [r for r in found if r["data"] == data]
    for level in (f"{e:.0%}" for e in LEVELS):
        runs = [[run[kind][level] for run in r["methods"][method]] for r in mine]
        reached = [np.array([list(v.values()) for v in one]) for one in runs if all(one)]
        if reached:
            means = np.array([one.mean(axis=0) for one in reached]).mean(axis=0)
            cells.append((*means, len(reached), len(mine)))
        else:
            cells.append((None, None, None, 0, len(mine)))
    return cells


def print_peer(lines: list[Result] | str) -> None:
    print("\n## xai-cola's quickstart: all decisions turned\n")
    if isinstance(lines, str):
        print(lines)
        return
    print("Before pruning: in the order of the attribution alone, as its edits are.\n")
    print("| seed | rows | its actions | its edits | its s | edits | before pruning | least | s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for r in lines:
        print(
            f"| {r['seed']} | {r['rows']} | {r['peer actions']} | {r['peer edits']} "
            f"| {r['peer seconds']:.2f} | {r['edits']} | {r['edits unpruned']} "
            f"| {cell(r['optimum'], 'd')} | {r['seconds']:.2f} |"
        )
    if not all(r["same decisions"] for r in lines):
        print("\nThe models of both environments decide differently on some rows.")


# --- the picture --------------------------------------------------------------------------


def picture(found: list[Result], file: Path) -> None:
    """Draw the methods and the optimum along the budget, one panel per scenario."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from optfair.methods.sparse_counterfactuals.plots import plot_effect

    columns = min(2, len(found))
    lines = -(-len(found) // columns)
    fig, axes = plt.subplots(
        *(lines, columns), figsize=(6.6 * columns, 4.2 * lines), layout="constrained", squeeze=False
    )
    for ax, r in zip(axes.flat, found, strict=False):
        curves = {}
        for name, runs in r["curves"].items():
            length = min(map(len, runs))
            curves[name] = [run[:length] for run in runs]
        last = int(2.2 * r["optimum"][0][-1])
        longest = max(len(v[0]) for v in curves.values()) - 1
        plot_effect(
            curves,
            optimum=r["optimum"],
            most_edits=min(last, longest),
            title=f"{r['classifier']}, {r['generator']}",
            ax=ax,
        )
    for ax in axes.flat[len(found) :]:
        ax.remove()
    fig.savefig(file, dpi=110)
    plt.close(fig)
