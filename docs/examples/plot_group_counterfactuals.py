"""
A group and its counterfactuals
===============================

One map sends a whole group of rejected applicants to the side of the accepted ones, at least
cost. How far it may stretch or press the group is a bound K, and this bound has a price.
"""

# %%
# A group in two features first, so that everything can be seen. The target is a probability of
# 0.8; the score is linear, so it is a half-plane.

import matplotlib.pyplot as plt
import numpy as np

import optfair as of
from optfair import plots

rng = np.random.default_rng(3)
group = rng.multivariate_normal([-1.5, -0.8], [[1.0, 0.5], [0.5, 0.6]], 60)
score, target = ([1.4, 1.0], 0.0), {"probability": 0.8}

moved = {}
for K in (1.01, 5.0):
    problem = of.PSDMap(group, score=score, K=K, k=K, **target)
    moved[f"K = {K:g}"] = problem.map(problem.solve()).transform(group)

plots.plot_groups(group, moved, score=score, **target)
plt.show()

# %%
# With K = 1.01 the group keeps its shape, and all go as far as the last one must. With K = 5 it
# is pressed together along the way. Without a bound it would be pressed flat on the line.

# %%
# Real applicants have more features. The map is a table: how far the mean moves, in standard
# deviations of the group, and how the new value of each feature depends on the old values.

data = of.datasets.load("german_credit")
X, risk = data.numeric("credit_risk", standardize=True)
names = ["duration", "amount", "rate", "residence", "age", "credits", "liable"]
score = of.features.LinearScore([-0.31, -0.2, -0.23, -0.04, 0.24, 0.09, -0.05], 0.9, names=names)
bad = X[risk == "2"][:120]

problem = of.PSDMap(bad, score=score, K=3.0, k=3.0, **target)
solution = problem.solve()
found = problem.map(solution)
plots.plot_map(found)
plt.show()

# %%
# The same map, member by member, in the two features that move most.

plots.plot_arrows(
    bad, found.transform(bad), features=("duration", "rate"), names=names, title="Credit applicants"
)
plt.show()

# %%
# What does the shape cost? A sweep of K draws the front for several families of maps, every
# point a proven optimum. NSGA-II finds its points by search and knows nothing of the score but
# its probabilities.

fronts = [
    of.group_counterfactuals.counterfactual_front(
        bad, score, family=family, K=np.geomspace(1.01, 5, 12), **target
    )
    for family in ("psd", "diagonal", "scaled")
]
fronts.append(
    of.group_counterfactuals.counterfactual_front(
        bad, score, method="nsga2", background=X, generations=150, **target
    )
)
alone = of.group_counterfactuals.IndependentCounterfactuals(bad, score=score, **target).solve()
nearest = (alone.objective, of.metrics.distortion(bad, alone["counterfactuals"]))
plots.plot_counterfactual_front(fronts, references={"each by itself": nearest})
plt.show()

# %%
# Members the map has never seen: the bounds hold for them, the target only mostly.

for K in (1.01, 1.5, 5.0):
    held_out = of.group_counterfactuals.cross_validate_map(
        of.PSDMap, bad, score=score, K=K, k=K, **target
    ).mean()
    print(
        f"K = {K:<5g} cost {held_out['transport_cost']:6.3f}   "
        f"distortion {held_out['distortion']:.3f}   validity {held_out['validity']:.3f}"
    )
