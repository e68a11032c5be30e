"""
Cost against balance
====================

How much cost does fairness add? A sweep over the tolerance of a rule draws the front of what
can be had, every point a proven optimum.
"""

# %%
# Centers are fixed to those of a fair clustering, so that each point of the front is the
# optimum of one convex problem.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import kmeans_plusplus

import optfair as of
from optfair.plots import plot_front

X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
start, _ = kmeans_plusplus(X, 5, random_state=0)
centers = of.fair_clustering.alternate(of.FairAssignment(X, groups=sex, centers=start)).centers
plain = of.FairAssignment(X, groups=sex, centers=centers, fairness=None)

# %%
# The rule bounds the difference between the groups' fractions, summed over the clusters, by ε.
# ``plain`` is declared once; each point adds its own rule and starts from the prices of the
# previous one.

eps = np.linspace(0.0, 0.6, 16)
costs, balances, solution = [], [], None
for e in eps:
    problem = plain.with_constraints(fairness=of.additive_gap(float(e)))
    solution = problem.solve(warm_start=solution)
    costs.append(solution.objective)
    balances.append(of.metrics.balance(sex, solution["assignment"], soft=True))

# %%
# The least cost is a convex function of ε, because it is the optimal value of a convex problem
# as its right-hand side moves. Its slope is minus the multiplier of the rule.

share = (sex == "female").mean()
best = share / (1.0 - share)
plot_front({"additive gap": (balances, costs)}, best_balance=best, soft=True)
plt.show()

# %%
# The shadow price says the slope without a second solve. Here it is at ε = 0.2, next to a
# difference quotient.

rule = {"fairness": of.additive_gap(0.2)}
at = plain.with_constraints(rule).solve()
further = plain.with_constraints(fairness=of.additive_gap(0.2 + 1e-4)).solve()
print(f"shadow price        {float(at.shadow_price['fairness'].sum()):.6f}")
print(f"difference quotient {(further.objective - at.objective) / 1e-4:.6f}")
