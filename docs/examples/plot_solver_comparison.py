"""
Solvers side by side
====================

Which solver for these problems, at this accuracy? Every run has a process of its own, and what
counts is what can be recomputed from the point a solver returns. The page
:doc:`/comparing_solvers` says what is measured.
"""

# %%
# Fair assignments of German Credit, with different rules, and a transport problem. Instances go by name or pattern,
# solvers by name; without names, every open solver that is installed takes part.

import matplotlib.pyplot as plt

import optfair as of
from optfair.plots import plot_accuracy, plot_profile

names = ["german_k3", "german_k5", "german_balance", "three_groups", "transport"]
c = of.compare_solvers(names, ["mass-dual", "highs", "clarabel"], tolerance=1e-8, time_limit=20)
print(c)

# %%
# What was refused, and why: the special algorithm knows assignments with rules on masses, and
# nothing else. A refusal counts against nobody.

for run in c.refusals():
    print(f"{run.problem}: {run.reason}")

# %%
# Where the time goes
# -------------------
# The time of a run is that of the whole call. Ours is in it too: compiling for the solver, reading
# back, and verifying.

words = ["compile", "solve", "recover", "verify"]
for run in c.runs:
    if run.problem.endswith("german_k5"):
        parts = ", ".join(f"{w} {1e3 * run.phases.get(w, 0.0):.0f}" for w in words)
        print(f"{run.solver:<10} {1e3 * run.seconds:.0f} ms: {parts}")

# %%
# The same solver at two accuracies
# ---------------------------------
# A first-order method is quick to a rough answer and slow to an exact one. The question "which is
# faster" has no answer without a tolerance.

rough, exact = (
    of.compare_solvers("german_balance", ["clarabel", "scs"], tolerance=t) for t in (1e-3, 1e-7)
)
print(rough)
print(exact)
plot_accuracy([rough, exact])
plt.show()

# %%
# The picture
# -----------
# At the left every run, in the colours of the legend. At the right the performance profile: at 1 how often a solver is the
# fastest, at the right edge how often it solves a problem at all, of those it takes.

COLOURS = {"clarabel": "#0072B2", "highs": "#E69F00", "mass-dual": "#009E73"}
fig, (each, profile) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
short = [name.split("/")[1].replace("_", " ") for name in c.problems]
times = c.values()
for i, name in enumerate(c.problems):
    row = [times[s][name] for s in c.solvers if times[s].get(name)]
    each.plot([min(row), max(row)], [i, i], color="#D5D5D5", lw=2, zorder=1)
for solver in c.solvers:
    solved = [(t, c.problems.index(n)) for n, t in times[solver].items() if t]
    each.scatter(*zip(*solved, strict=True), s=60, color=COLOURS[solver], zorder=2)
each.set_xscale("log")
each.set_yticks(range(len(short)), short)
each.invert_yaxis()
each.tick_params(axis="y", length=0)
each.set_xlabel("seconds of the whole call, log scale")
each.set_title("Every run", loc="left", fontweight="bold")
each.spines[["top", "right"]].set_visible(False)
plot_profile(c, title="Performance profile at 1e-8", ax=profile)
plt.show()
