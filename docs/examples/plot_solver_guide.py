"""
Which solver takes what
=======================

Ten small problems, one of each class, and every solver that is installed. Each solver is asked
at the same tolerance, and what it returns is measured on the problem as it was declared. The
page :doc:`/solvers` says what each of them is.
"""

# %%
# The problems come from the library: one name for each class.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LogNorm

import optfair as of

names = [
    "diet",
    "minimum_variance",
    "ball_projection",
    "risk_budget",
    "lovasz_pentagon",
    "dice_entropy",
    "knapsack",
    "cardinality_portfolio",
    "robust_knapsack",
    "trust_region_concave",
]
problems = {n: of.library.load(f"textbook/{n}").problem() for n in names}
for name, p in problems.items():
    print(f"{name:<24}{p.problem_class}")

# %%
# A solver says no before it runs, with the reason and what would help:

try:
    problems["risk_budget"].solve(solver="highs")
except of.UnsupportedProblem as refusal:
    print(refusal)

# %%
# Every problem to every solver
# -----------------------------
# A result is kept when each residual is at most the tolerance. A solver that does not meet it
# leads to an error that says by how much; nothing is passed off as solved.

TOLERANCE = 1e-8


def asked(p: of.Problem, solver: str) -> tuple[str, of.Solution | str]:
    """Return what happened, and the solution or the reason why there is none."""
    try:
        s = p.solve(solver=solver, tolerance=TOLERANCE)
    except of.UnsupportedProblem as e:
        return "refused", e.cause
    except of.OptfairError as e:
        return "not met", e.evidence
    return s.status.termination, s


solvers = [row["solver"] for row in of.solvers().to_list() if row["usable"]]
found = {(n, s): asked(p, s) for n, p in problems.items() for s in solvers}
# those that need a structure of the problem take none of these
solvers = [s for s in solvers if any(found[n, s][0] != "refused" for n in names)]
solvers.sort(key=lambda s: -sum(found[n, s][0] != "refused" for n in names))

for (name, solver), (outcome, why) in found.items():
    if outcome == "not met":
        print(f"{name}, {solver}: {why}")

# %%
# What each returns
# -----------------
# Multipliers prove a continuous optimum. Branch and bound reports a bound instead, and a local
# solver has neither.

for solver in solvers:
    got = [s for n in names for o, s in [found[n, solver]] if isinstance(s, of.Solution)]
    returned = {
        "multipliers": sum(bool(s.multipliers) for s in got),
        "bound": sum(bool(np.isfinite(s.bound)) for s in got),
        "local point only": sum(s.status.termination == "local" for s in got),
    }
    text = ", ".join(f"{what} {n}" for what, n in returned.items() if n)
    print(f"{solver:<10} solutions {len(got)}: {text or 'none'}")

# %%
# The picture: the largest residual of each result. Blank cells were refused.

fig, ax = plt.subplots(figsize=(12.5, 6.2), layout="constrained")
worst = np.full((len(names), len(solvers)), np.nan)
for (i, j), _ in np.ndenumerate(worst):
    outcome, s = found[names[i], solvers[j]]
    if outcome == "optimal":
        r = s.residuals()
        worst[i, j] = max(r.feasibility, r.dual, r.gap, 1e-16)
    elif outcome != "refused":
        ink = "#6B6B6B" if outcome == "local" else "#B3261E"
        ax.text(j, i, outcome, ha="center", va="center", fontsize=7.5, color=ink)
shades = plt.get_cmap("Blues_r").copy()
image = ax.imshow(worst, cmap=shades, norm=LogNorm(1e-19, 1e-6), aspect="auto")
for (i, j), r in np.ndenumerate(worst):
    if np.isfinite(r):
        exact = r <= 1e-16
        ink = "white" if r < 3e-13 else "#1B1B1B"
        power = r"$\leq 10^{-16}$" if exact else rf"$10^{{{int(np.ceil(np.log10(r)))}}}$"
        ax.text(j, i, power, ha="center", va="center", fontsize=7.5, color=ink)
ax.set_xticks(range(len(solvers)), solvers, rotation=45, ha="left")
ax.set_yticks(
    range(len(names)),
    [f"{problems[n].problem_class}: {n.replace('_', ' ')}" for n in names],
)
ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
ax.set_xticks(np.arange(-0.5, len(solvers)), minor=True)
ax.set_yticks(np.arange(-0.5, len(names)), minor=True)
ax.grid(which="minor", color="#E3E3E3", linewidth=0.8)
ax.tick_params(which="minor", length=0)
ax.spines[:].set_visible(False)
ax.set_xlabel(f"largest residual at tolerance {TOLERANCE:g}; blank: the solver does not take it")
plt.show()
