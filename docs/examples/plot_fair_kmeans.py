"""
Fair k-means, from data to new rows
===================================

A fair clustering of German Credit: fit, look at it, read its certificate, and assign applicants
the fit has not seen.
"""

# %%
# Fit
# ---
# Seven standardised columns; the groups are women and men. The rule asks that in every cluster
# either group has at least 0.4 times the weight of the other; the population has 0.449.

import matplotlib.pyplot as plt
import numpy as np

import optfair as of
from optfair.plots import plot_composition, plot_convergence, plot_projection

X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
seen = np.arange(len(X)) % 5 != 0
model = of.FairKMeans(n_clusters=5, fairness=of.balance(0.4), random_state=0)
model.fit(X[seen], groups=sex[seen])
print(f"cost {model.cost_:.4f}, balance {model.balance_:.4f} (hard labels)")
print(f"soft balance {of.metrics.balance(sex[seen], model.soft_assignment_, soft=True):.4f}")
print(model.solution_.certificate.verify())

# %%
# Where the clusters lie
# ----------------------
# A projection on the two directions of largest variance: colour is the cluster, shape the group.

plot_projection(X[seen], model.labels_, sex[seen], centers=model.cluster_centers_)
plt.show()

# %%
# What they are made of
# ---------------------

plot_composition(sex[seen], model.labels_, title="Balance of at least 0.4 in every cluster")
plt.show()

# %%
# How it got there
# ----------------
# The objective of each iteration never rises, because both steps are exact; the gap certifies
# each assignment at its centers. The other starts ended higher.

plot_convergence(model)
plt.show()

# %%
# Applicants the fit has not seen
# -------------------------------
# Each row goes where distance plus the price of its group is least. The nearest center alone
# would ignore the rule.

fair = model.predict(X[~seen], groups=sex[~seen])
nearest = model.transform(X[~seen]).argmin(axis=1)
for name, labels in (("prices", fair), ("nearest center", nearest)):
    gap = of.metrics.additive_gap(sex[~seen], labels)
    cost = of.metrics.cost(X[~seen], model.cluster_centers_, labels)
    print(f"{name:<15} cost {cost:.3f}, additive gap {gap:.3f}")
