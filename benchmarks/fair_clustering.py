"""Fair clustering: FCA's tables, its printed algorithm, other methods and k-means in one run.

    python benchmarks/fair_clustering.py [--quick] [--json] [--out DIR] [--only NAME ...]

Prints Markdown and writes a picture. Adult, Bank and Credit are read from OPTFAIR_DATA. Every
method runs in a process of its own: seconds are wall time of its calls after imports, megabytes
the peak of its process, one thread. Cost and Bal are of hard labels, as the paper's; gap is the
certified relative gap of the soft assignment at the final centers. The peer fair-kmeans needs
another NumPy and gets an environment of its own in DIR, made by pip on first use.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from in_child import in_child
from record import environment, targets_table

import optfair as of
from optfair import metrics

HERE = Path(__file__).resolve().parent
PRINTED = tomllib.loads((HERE / "fca_printed.toml").read_text(encoding="utf-8"))
Result = dict[str, Any]

# name -> data set, group column, rows of length 1
DATA = {
    "adult-l2": ("adult", "sex", True),
    "adult": ("adult", "sex", False),
    "bank-l2": ("bank_additional_full", "married", True),
    "bank": ("bank_additional_full", "married", False),
    "bank3-l2": ("bank_additional_full", "marital", True),
    "credit-l2": ("default_credit_card", "SEX", True),
    "credit": ("default_credit_card", "SEX", False),
}
STARTS = 10


@lru_cache(maxsize=1)
def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised rows and group labels."""
    if name.startswith("synthetic"):
        return synthetic(int(name.split("-")[1]))
    dataset, column, l2 = DATA[name]
    return of.datasets.load(dataset, fetch=False).numeric(column, standardize=True, l2=l2)


def synthetic(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mixture of the paper's appendix C.3.6: half the components per group."""
    rng = np.random.default_rng(0)
    means: list[np.ndarray] = []
    while len(means) < 20:
        mean = rng.uniform(-20, 20, 2)
        if all(np.linalg.norm(mean - other) >= 1 for other in means):
            means.append(mean)
    deviation, share = rng.uniform(1, 3, 20), rng.dirichlet(np.ones(20))
    component = rng.choice(20, n, p=share)
    X = np.array(means)[component] + deviation[component, None] * rng.normal(size=(n, 2))
    return (X - X.mean(axis=0)) / X.std(axis=0), np.where(component < 10, "first", "second")


def seeds() -> list[int]:
    """Return the seeds of the starts, those of FairKMeans(random_state=0)."""
    return [int(r.integers(2**31 - 1)) for r in np.random.default_rng(0).spawn(STARTS)]


def warm() -> None:
    """Load what is loaded on first use."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    of.FairKMeans(2, n_init=1, random_state=0).fit(X, groups=np.arange(60) % 2)
    of.KantorovichCoupling(cost=X[:, :1] ** 2 + X[:, 1] ** 2).solve()


def hard(name: str, labels: np.ndarray, centers: np.ndarray) -> Result:
    X, groups = rows(name)
    return {
        "cost": metrics.cost(X, centers, labels),
        "balance": metrics.balance(groups, labels),
    }


def kmeans(name: str, K: int, starts: int) -> Result:
    """scikit-learn's k-means, one converged run per start; centers of the best."""
    from sklearn.cluster import KMeans

    X, _ = rows(name)
    KMeans(2, n_init=1).fit(X[:100])
    begin = time.perf_counter()
    fits = [KMeans(K, n_init=1, random_state=s).fit(X) for s in seeds()[:starts]]
    seconds = time.perf_counter() - begin
    best = min(fits, key=lambda m: m.inertia_)
    return {
        **hard(name, best.labels_, best.cluster_centers_),
        "seconds": seconds,
        "centers": best.cluster_centers_,
        "first": fits[0].cluster_centers_,
    }


def fitted(name: str, model: Any) -> Result:
    """Fit a FairKMeans and return its numbers."""
    import warnings

    X, groups = rows(name)
    warm()
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status is in the table
        model.fit(X, groups=groups)
    return {
        "cost": model.cost_,
        "balance": model.balance_,
        "gap": model.gap_,
        "objective": model.objective_,
        "seconds": time.perf_counter() - begin,
        "iterations": model.n_iter_,
        "status": model.status_,
        "restarts": [(r.cost, r.balance, r.n_iter, r.seconds, r.gap) for r in model.restarts_],
        "soft_gap": metrics.additive_gap(groups, model.soft_assignment_, soft=True),
    }


def balanced(name: str, K: int, starts: int) -> Result:
    """Fit under the population's balance as the rule."""
    groups = rows(name)[1]
    best = metrics.balance(groups, np.zeros(len(groups), dtype=int))
    model = of.FairKMeans(K, fairness=of.balance(best), n_init=starts, random_state=0, tol=1e-6)
    return fitted(name, model)


def fairlets(name: str, K: int) -> Result:
    """Fairlets: couple once in blocks of 1,024 rows, then k-means (ten starts)."""
    from optfair.methods.fair_clustering.approximations import fairlet_clustering

    X, groups = rows(name)
    warm()
    found = fairlet_clustering(
        X, groups=groups, n_clusters=K, partition_size=1024, n_init=STARTS, random_state=0
    )
    return {"cost": found.cost, "balance": found.balance, "seconds": found.seconds}


def fcbc(name: str, centers: np.ndarray) -> Result:
    """FCBC at the price of fairness 1.2 on centers of k-means, as the paper runs it."""
    from optfair.methods.fair_clustering.bounded_cost import largest_balance

    X, groups = rows(name)
    warm()
    problem = of.FairAssignment(X, groups=groups, centers=centers, fairness=None)
    plain = metrics.cost(X, centers, problem.cost.matrix().argmin(axis=1))
    found = largest_balance(problem, 1.2 * plain)
    return {
        **hard(name, found.labels, centers),
        "gap": found.solution.gap,
        "seconds": found.seconds,
        "interval": (found.balance, found.upper),
        "verified": bool(found.verify()),
    }


def front(name: str, kind: str, points: int) -> Result:
    """Sweep the additive gap, or the balance, from perfectly fair to plain."""
    X, groups = rows(name)
    warm()
    begin = time.perf_counter()
    model = of.FairKMeans(10, n_init=STARTS, random_state=0)
    if kind == "additive gap":
        # finer where it is steep
        eps = (0.3 * np.linspace(0.0, 1.0, points) ** 2).tolist()
        swept_rules = [of.additive_gap(e) for e in (*eps, 2.0)]
    else:
        best = of.metrics.balance(groups, np.zeros(len(groups), dtype=int))
        least = (*np.linspace(0.2, best, points).tolist(), 0.475)
        swept_rules = [of.balance(b) for b in least]
    swept = of.fair_clustering.fairness_front(model, X, groups=groups, rules=swept_rules)
    seconds = time.perf_counter() - begin
    return {
        "kind": kind,
        "values": swept.values.tolist(),
        "cost": swept.cost.tolist(),
        "balance": swept.balance.tolist(),
        "soft": list(_soft(name, swept, kind)),
        "seconds": seconds,
    }


def _soft(name: str, swept: Any, kind: str) -> Iterable[float]:
    """Return what the rule bounds, measured on the soft assignment at each point's centers."""
    X, groups = rows(name)
    for value, centers in zip(swept.values, swept.centers, strict=True):
        rule = of.additive_gap(value) if kind == "additive gap" else of.balance(value)
        measure = metrics.additive_gap if kind == "additive gap" else metrics.balance
        p = of.FairAssignment(X, groups=groups, centers=centers, fairness=rule)
        yield measure(groups, p.solve()["assignment"], soft=True)


def table(name: str, K: int, quick: bool) -> list[Result]:
    """Return one record per method on one data set."""
    starts = 3 if quick else STARTS
    plain = in_child(kmeans, name, K, starts)
    centers = plain.pop("centers")
    given = of.FairKMeans(K, init=plain.pop("first"), tol=1e-6)
    found = {"kmeans": plain}
    found["exact, one given start"] = in_child(fitted, name, given)
    found["exact, best start"] = in_child(
        fitted, name, of.FairKMeans(K, n_init=starts, random_state=0, tol=1e-6)
    )
    if name != "bank3-l2" and K == 10:
        most = 2 if quick else 30
        printed = of.FairKMeans(K, init=centers, algorithm="paper", max_iter=most, tol=1e-4)
        found["fca as printed, one start"] = in_child(fitted, name, printed)
        if not quick:
            found["fairlets"] = in_child(fairlets, name, K)
    if name == "bank3-l2":  # with three groups the largest balance is not perfect fairness
        found["exact, balance"] = in_child(balanced, name, K, starts)
    if K == 10:
        found["fcbc"] = in_child(fcbc, name, centers)
    keys = {"fca as printed, one start": "fca", "exact, best start": "fca", "exact, balance": "fca"}
    return [
        {
            "data": name,
            "K": K,
            "method": method,
            "printed": PRINTED.get(name, {}).get(keys.get(method, method)) if K == 10 else None,
            "ratio": r["seconds"] / plain["seconds"] * (starts if "one" in method else 1),
            **r,
        }
        for method, r in found.items()
    ]


def large(n: int) -> Result:
    """Fit the large synthetic from centers of k-means, whose time stands apart."""
    name = f"synthetic-{n}"
    plain = in_child(kmeans, name, 10, 1)
    model = of.FairKMeans(10, init=plain.pop("centers"), tol=1e-4, max_iter=12)
    plain.pop("first")
    return {"n": n, "kmeans": plain, **in_child(fitted, name, model)}


# --- the peer in its own environment -----------------------------------------------------


def peer_python(folder: Path) -> Path:
    """Return the interpreter of the peer's environment, made on first use."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    probe = [str(python), "-c", "import fair_kmeans"]
    if not python.exists() or subprocess.run(probe, capture_output=True).returncode:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "fair-kmeans==0.1.3"]
        subprocess.run(install, check=True, capture_output=True, text=True)
    return python


def own_fits(file: str, n_init: int) -> Result:
    """Fit the rows of a file once per seed, at the peer's tolerance."""
    given = np.load(file)
    warm()
    seconds, costs, balances = [], [], []
    for seed in given["seeds"]:
        model = of.FairKMeans(10, n_init=n_init, random_state=int(seed), tol=1e-4)
        begin = time.perf_counter()
        model.fit(given["X"], groups=given["groups"])
        seconds.append(time.perf_counter() - begin)
        costs.append(own_cost(given["X"], model.labels_))
        balances.append(model.balance_)
    return {"seconds": seconds, "costs": costs, "balances": balances}


def own_cost(X: np.ndarray, labels: np.ndarray) -> float:
    """Return the cost with the labels' own means as centers: the same yardstick for all."""
    filled = [X[labels == k] for k in np.unique(labels)]
    return float(sum(((part - part.mean(axis=0)) ** 2).sum() for part in filled) / len(X))


def peer(out: Path) -> list[Result] | str:
    """Compare with fair-kmeans on two groups of equal size; a reason if it cannot run."""
    try:
        python = peer_python(out / "fair-kmeans-env")
    except (subprocess.CalledProcessError, OSError) as e:
        return f"absent: {getattr(e, 'stderr', '') or e}"
    found = []
    for half in (250, 500):
        rng = np.random.default_rng(0)
        groups = np.repeat([0, 1], half)
        X = rng.normal(size=(2 * half, 5)) + 0.7 * groups[:, None]
        files = [str(out / f"peer_{half}_{end}.npz") for end in ("in", "out")]
        np.savez(files[0], X=X, groups=groups, n_clusters=10, seeds=np.arange(5))
        subprocess.run([str(python), str(HERE / "peer_fair_kmeans.py"), *files], check=True)
        theirs, ours = np.load(files[1]), in_child(own_fits, files[0], 1)
        # as many starts as fit well into a tenth of the peer's time
        starts = int(theirs["seconds"].mean() / np.mean(ours["seconds"]) / 12)
        if starts > 1:
            ours = in_child(own_fits, files[0], min(starts, 5))
        costs = [own_cost(X, labels) for labels in theirs["labels"]]
        found.append(
            {
                "rows": 2 * half,
                "starts": max(1, min(starts, 5)),
                "seconds": float(np.mean(ours["seconds"])),
                "peer seconds": float(theirs["seconds"].mean()),
                "ratio": float(theirs["seconds"].mean() / np.mean(ours["seconds"])),
                "cost": float(np.mean(ours["costs"])),
                "peer cost": float(np.mean(costs)),
                "best cost": float(np.min(ours["costs"])),
                "peer best cost": float(np.min(costs)),
                "balance": float(np.min(ours["balances"])),
                "peer balance": float(
                    min(metrics.balance(groups, labels) for labels in theirs["labels"])
                ),
            }
        )
    return found


# --- targets and printing ----------------------------------------------------------------


def targets(found: dict[str, Any]) -> list[Result]:
    """Return what must be reached, of what was run."""
    listed: list[tuple[str, float, float, bool]] = []  # name, target, measured, at most?

    def best(name: str, method: str = "exact, best start") -> Result | None:
        for r in found["tables"]:
            if (r["data"], r["K"], r["method"]) == (name, 10, method):
                return r
        return None

    for name, cost, balance in (
        ("adult-l2", 0.3150, 0.4938),
        ("adult", 1.8180, 0.4938),
        ("bank-l2", 0.2485, 0.6480),
        ("bank", 1.737, 0.6480),
        ("credit-l2", np.inf, 0.6555),
    ):
        r = best(name)
        if r is not None:
            if np.isfinite(cost):
                listed.append((f"{name}: cost, best of the starts", cost, r["cost"], True))
            listed.append((f"{name}: balance", balance, r["balance"], False))
    one = best("adult-l2", "exact, one given start")
    if one is not None:
        listed.append(("adult-l2: one fit from given centers, s", 2.0, one["seconds"], True))
    if found["large"]:
        big = found["large"]
        listed.append((f"n = {big['n']:,}: seconds", 60.0, big["seconds"], True))
        listed.append((f"n = {big['n']:,}: iterations", 12, big["iterations"], True))
        listed.append((f"n = {big['n']:,}: peak megabytes", 2000, big["megabytes"], True))
    if found["front"]:
        f = found["front"][0]
        pairs = [
            pair
            for swept in found["front"]
            for pair in zip(swept["cost"], swept["balance"], strict=True)
        ]
        for label in ("fca-c", "fcbc"):
            cost, balance = PRINTED["adult-l2"][label]
            least = min((c for c, b in pairs if b >= balance), default=np.inf)
            listed.append((f"front: cost at balance {balance} ({label}, paper)", cost, least, True))
        over = max(g - e for g, e in zip(f["soft"], f["values"], strict=True))
        listed.append(("front: soft additive gap over eps", 1e-7, over, True))
    if isinstance(found["peer"], list):
        for r in found["peer"]:
            what = f"fair-kmeans, {r['rows']} rows: "
            listed.append((what + "times as fast", 10.0, r["ratio"], False))
            listed.append((what + "mean cost", r["peer cost"], r["cost"], True))
    return [
        {"name": n, "target": t, "measured": m, "reached": bool(m <= t if most else m >= t)}
        for n, t, m, most in listed
    ]


def pair(values: list[float] | None) -> str:
    return "" if values is None else f"{values[0]:.3f} / {values[1]:.3f}"


def report(found: dict[str, Any]) -> None:
    print("| data | K | method | paper Cost / Bal | Cost | Bal | gap | s | x k-means | MB |")
    print("|---|---:|---|---|---:|---:|---:|---:|---:|---:|")
    for r in found["tables"]:
        gap = f"{r['gap']:.1e}" if "gap" in r else ""
        print(
            f"| {r['data']} | {r['K']} | {r['method']} | {pair(r['printed'])} | {r['cost']:.4f} "
            f"| {r['balance']:.4f} | {gap} | {r['seconds']:.2f} | {r['ratio']:.0f} "
            f"| {r['megabytes']:.0f} |"
        )
    print("\nAll starts of the exact fits (Cost / Bal, iterations, seconds):\n")
    for r in found["tables"]:
        if r["method"] == "exact, best start":
            each = ", ".join(
                f"{c:.4f} / {b:.4f} ({i}, {s:.1f} s)" for c, b, i, s, _ in r["restarts"]
            )
            print(f"- {r['data']}, K = {r['K']}: {each}")
    for f in found["front"] or []:
        print(f"\n| {f['kind']} | Cost | Bal | of the soft assignment |\n|---:|---:|---:|---:|")
        for row in zip(f["values"], f["cost"], f["balance"], f["soft"], strict=True):
            print("| {:.3f} | {:.4f} | {:.4f} | {:.6f} |".format(*row))
        print(f"\n{len(f['values'])} points, {f['seconds']:.0f} s")
    if found["large"]:
        big = found["large"]
        print(
            f"\nSynthetic of C.3.6, n = {big['n']:,}, K = 10: Cost {big['cost']:.4f}, Bal "
            f"{big['balance']:.4f}, gap {big['gap']:.1e}, {big['iterations']} iterations on all "
            f"rows, {big['seconds']:.1f} s, {big['megabytes']:.0f} MB (k-means "
            f"{big['kmeans']['seconds']:.1f} s, Cost {big['kmeans']['cost']:.4f}, Bal "
            f"{big['kmeans']['balance']:.4f}; paper {pair(PRINTED['synthetic']['fca'])} in "
            f"{PRINTED['synthetic']['seconds']:.0f} s on its own draw)"
        )
    if isinstance(found["peer"], str):
        print(f"\nfair-kmeans: {found['peer']}")
    elif found["peer"]:
        print("\n| rows | starts | s | fair-kmeans s | ratio | cost | its cost | Bal | its Bal |")
        print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
        for r in found["peer"]:
            print(
                f"| {r['rows']} | {r['starts']} | {r['seconds']:.3f} | {r['peer seconds']:.2f} | {r['ratio']:.1f} "
                f"| {r['cost']:.4f} | {r['peer cost']:.4f} | {r['balance']:.3f} "
                f"| {r['peer balance']:.3f} |"
            )
    print("\n" + targets_table(found["must_reach"]))


def picture(found: dict[str, Any], file: Path) -> None:
    """Draw the front beside the paper's points."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from optfair.plots import plot_front

    printed = PRINTED["adult-l2"]
    named = {
        "FCA (paper)": printed["fca"],
        "FCA-C (paper)": printed["fca-c"],
        "FCBC (paper)": printed["fcbc"],
        "FRAC (paper)": printed["frac"],
        "k-means (paper)": printed["kmeans"],
    }
    fig, ax = plt.subplots(figsize=(8, 5), layout="constrained")
    plot_front(
        {f"optfair, {f['kind']}": (f["balance"], f["cost"]) for f in found["front"]},
        references={label: (b, c) for label, (c, b) in named.items()},
        best_balance=10771 / 21790,
        title="Adult, rows of length 1, K = 10",
        ax=ax,
    )
    fig.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    parser.add_argument(
        "--only", nargs="+", choices=["tables", "clusters", "front", "large", "peer"]
    )
    options = parser.parse_args()
    wanted = options.only or (
        ["tables", "large"] if options.quick else ["tables", "clusters", "front", "large", "peer"]
    )
    options.out.mkdir(parents=True, exist_ok=True)
    have = of.datasets.names()
    names = [n for n, (d, _, _) in DATA.items() if have[d] not in ("needs OPTFAIR_DATA",)]
    if not names and {"tables", "clusters", "front"} & set(wanted):
        print("Adult, Bank and Credit are left out: OPTFAIR_DATA is not set", file=sys.stderr)

    def note(what: str) -> None:
        print(f"... {what}", file=sys.stderr, flush=True)

    tables: list[Result] = []
    jobs: list[Callable[[], list[Result]]] = []
    if "tables" in wanted:
        jobs += [
            lambda n=n: table(n, 10, options.quick) for n in (names[:1] if options.quick else names)
        ]
    if "clusters" in wanted and names:
        jobs += [lambda K=K: table("adult-l2", K, options.quick) for K in (5, 20, 40)]
    for i, job in enumerate(jobs):
        note(f"table {i + 1} of {len(jobs)}")
        tables += job()
    found: dict[str, Any] = {"tables": tables, "front": None, "large": None, "peer": []}
    if "front" in wanted and names:
        note("front")
        found["front"] = [in_child(front, "adult-l2", k, 13) for k in ("additive gap", "balance")]
    if "large" in wanted:
        note("large")
        found["large"] = large(200_000 if options.quick else 1_000_000)
    if "peer" in wanted:
        note("peer")
        found["peer"] = peer(options.out)
    found["must_reach"] = targets(found)
    found["environment"] = environment()
    if options.json:
        print(json.dumps(found))
        return
    report(found)
    if found["front"]:
        picture(found, options.out / "fair_clustering.png")
        print(f"\nPicture: {options.out / 'fair_clustering.png'}")


if __name__ == "__main__":
    main()
