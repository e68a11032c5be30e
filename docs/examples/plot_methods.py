"""
Fair clustering methods side by side
====================================

K-means, fairlets, the largest balance within a budget, and the whole front of exact fair
clusterings, on the same rows; and for a few rows a bound on what any method can reach.
"""

# %%
# The front
# ---------
# One clustering per tolerance of the rule, each the best found of its own starts and of its
# neighbours' centers.

import matplotlib.pyplot as plt

import optfair as of
from optfair.plots import plot_front

X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
model = of.FairKMeans(n_clusters=5, n_init=3, random_state=0)
rules = [of.additive_gap(eps) for eps in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 2.0)]
front = of.fair_clustering.fairness_front(model, X, groups=sex, rules=rules)
print(front)

# %%
# The others
# ----------
# Fairlets couple women and men once, without regard to clusters. The bounded-cost method keeps the
# centers of k-means and buys as much balance as the budget allows.

lets = of.fair_clustering.fairlet_clustering(X, groups=sex, n_clusters=5, random_state=0)
bounded = of.fair_clustering.bounded_cost_kmeans(
    X, groups=sex, n_clusters=5, price_of_fairness=1.05, random_state=0
)
centers = bounded.problem.cost.centers
points = {
    "fairlets": (lets.balance, lets.cost),
    "5 % over k-means": (
        of.metrics.balance(sex, bounded.labels),
        of.metrics.cost(X, centers, bounded.labels),
    ),
}
plot_front(
    front,
    references=points,
    best_balance=front.best_balance,
    units="mean squared distance, standardised",
    title="Exact alternation and two other methods",
)
plt.show()

# %%
# How far from the best
# ---------------------
# For a few rows a semidefinite relaxation bounds every fair clustering from below.

few, groups = X[:24], sex[:24]
clustering = of.FairKMeans(n_clusters=3, random_state=0).fit(few, groups=groups)
bound = of.fair_clustering.FairKMeansBound(few, groups=groups, n_clusters=3).solve()
print(f"cost {clustering.objective_:.4f}, no fair clustering below {bound.bound:.4f}")
print(f"certified gap of the clustering {of.fair_clustering.optimality_gap(clustering, bound):.1%}")
