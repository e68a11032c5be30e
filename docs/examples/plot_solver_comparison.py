"""
Solvers side by side
====================

Which solver for these problems, at this accuracy? Every run has a process of its own, and what
counts is what can be recomputed from the point a solver returns.
"""

# %%
# Instances by name or pattern, solvers by name; without names, every open solver that is
# installed.

import cvxpy as cp
import matplotlib.pyplot as plt

import optfair as of
from optfair.comparison import compare_solvers
from optfair.plots.profile import plot_profile

names = ["diet", "minimum_variance", "ridge_regression", "simplex_regression", "smallest_ball"]
c = compare_solvers(names, ["highs", "clarabel", "scs"], tolerance=1e-8, time_limit=10)
print(c)

# %%
# The performance profile: at 1 how often a solver is the fastest, at the right how often it
# solves a problem at all. A solver is judged on the problems it takes.

plot_profile(c, title="Five textbook problems at 1e-8")
plt.show()

# %%
# What was refused, and why.

for run in c.refusals():
    print(f"{run.problem}: {run.reason}")

# %%
# A problem of one's own goes the same way. Ridge regression with a bound on every coefficient, at
# two accuracies:

ridge = of.library.load("textbook/ridge_regression").problem()
name = next(iter(ridge.variables))
mine = {"bounded ridge": ridge.with_constraints(box=cp.abs(ridge[name]) <= 0.5)}
for tolerance in (1e-5, 1e-9):
    print(compare_solvers(mine, ["clarabel", "scs"], tolerance=tolerance, time_limit=10))
