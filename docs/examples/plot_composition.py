"""
Certified fair clustering of German Credit
==========================================

Five clusters of the German Credit data, first without a rule, then with the same fraction of
women and of men in each cluster. Every assignment is solved to proven optimality.
"""

# %%
# The rows
# --------
# Seven numeric columns, standardised, and the group of each row.

import matplotlib.pyplot as plt
from sklearn.cluster import kmeans_plusplus

import optfair as of
from optfair.plots import plot_composition

X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
start, _ = kmeans_plusplus(X, 5, random_state=0)
X.shape

# %%
# Without a rule
# --------------
# :func:`optfair.fair_clustering.alternate` alternates the assignment problem with the best centers for its
# assignment. Without fairness this is Lloyd's algorithm for k-means.

plain = of.fair_clustering.alternate(of.FairAssignment(X, groups=sex, centers=start, fairness=None))
plot_composition(sex, plain.labels, title="k-means: the mix differs between clusters")
plt.show()

# %%
# With perfect fairness
# ---------------------
# Starting from the centers of k-means, each assignment now obeys the rule that every group
# sends the same fraction of itself to each cluster.

fair = of.fair_clustering.alternate(of.FairAssignment(X, groups=sex, centers=plain.centers))
plot_composition(sex, fair.labels, title="Perfect fairness: every cluster has the mix of all")
plt.show()

# %%
# What it costs, and what is proved
# ---------------------------------
# The soft assignment obeys the rule to rounding. Hard labels differ from it only in the rows that
# are split between clusters, at most (K - 1)(G - 1).

for name, result in (("plain", plain), ("fair", fair)):
    soft = of.metrics.balance(sex, result.solution["assignment"], soft=True)
    hard = of.metrics.balance(sex, result.labels)
    print(f"{name:<6} cost {result.history[-1]:.4f}, balance {soft:.4f} soft, {hard:.4f} hard")

split = (fair.solution["assignment"] > 1e-9).sum(axis=1) > 1
print(f"{split.sum()} rows are split")

# %%
# The certificate recomputes objective, feasibility and bound from the data. It is about the
# last assignment, for the centers found; the joint problem in assignment and centers is not
# convex, and the alternation is a heuristic for it.

print(fair.solution.certificate)
print(fair.solution.certificate.verify())
