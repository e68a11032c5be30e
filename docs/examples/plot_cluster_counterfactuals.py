"""
Counterfactuals of a clustering
===============================

Which smallest change would put a row into another cluster? For k-means and Gaussian mixtures the
answer is computed to a proven optimum, with features that may not change, and for whole tables.
"""

# %%
# Two features
# ------------
# Three Gaussian clusters of different shapes, and one row of the first.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

import optfair as of
from optfair.plots import (
    plot_cluster_counterfactuals,
    plot_distances,
    plot_image_counterfactuals,
    plot_separability,
)

rng = np.random.default_rng(0)
X = np.vstack(
    [
        rng.multivariate_normal([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]], 150),
        rng.multivariate_normal([4.5, 3.0], [[0.5, -0.2], [-0.2, 1.5]], 150),
        rng.multivariate_normal([4.5, -2.5], [[0.5, 0.2], [0.2, 0.5]], 100),
    ]
)
factual = np.array([0.8, 1.6])

# %%
# The plausibility factor ε moves the counterfactual past the boundary: for k-means ε = 1 is the
# bisector moved through the target's center. A mask says which features may change.


def series(model, target, levels, **options):
    """Return one counterfactual per plausibility."""
    found = [
        of.ClusterExplainer(model, plausibility=e, **options).explain(factual, target).best.point
        for e in levels
    ]
    return np.array(found)


masks = {"both features": {}, "only x0": {"immutable": ["x1"]}, "only x1": {"immutable": ["x0"]}}
kmeans = KMeans(3, n_init=3, random_state=0).fit(X)
target = int(kmeans.predict([[4.5, 3.0]])[0])
levels = (0.0, 0.2, 0.4)
plot_cluster_counterfactuals(
    kmeans,
    factual,
    {label: series(kmeans, target, levels, **options) for label, options in masks.items()},
    X=X,
    levels=[f"ε = {e:g}" for e in levels],
    title="k-means: the way into a Voronoi cell",
)
plt.show()

# %%
# Between Gaussian clusters the boundary is a quadratic, and the problem is not convex. Each point
# is a global optimum all the same, and carries the multiplier that proves it.

mixture = GaussianMixture(3, random_state=0).fit(X)
target = int(mixture.predict([[4.5, 3.0]])[0])
levels = (0.0, 1e2, 1e4)
plot_cluster_counterfactuals(
    mixture,
    factual,
    {label: series(mixture, target, levels, **options) for label, options in masks.items()},
    X=X,
    levels=["ε = 0", "ε = 100", "ε = 10,000"],
    title="Gaussian clusters: proved across a curved boundary",
)
plt.show()

# %%
c = of.ClusterExplainer(mixture).explain(factual, target).best
print(c)
print(c.certificate)
print(c.certificate.verify())

# %%
# Digits
# ------
# A zero, and the nearest images that k-means puts into the cluster of twos. Intensities stay
# between 0 and 16, so that every counterfactual is an image.

digits = of.datasets.load("digits")
images, labels = digits.numeric("digit")
model = KMeans(10, n_init=3, random_state=0).fit(images)
clusters = model.labels_
source, goal = (
    int(np.bincount(clusters[labels == digit], minlength=10).argmax()) for digit in ("0", "2")
)
zero = images[(clusters == source) & (labels == "0")][0]
pixels = {
    f"ε = {e:g}": of.ClusterExplainer(model, plausibility=e, lower=0.0, upper=16.0)
    .explain(zero, goal)
    .best.point
    for e in (0.0, 0.25, 0.5, 0.75, 0.95)
}
plot_image_counterfactuals(
    zero,
    pixels,
    centers={
        "center, zeros": model.cluster_centers_[source],
        "center, twos": model.cluster_centers_[goal],
    },
    title="From a zero to a two",
)
plt.show()

# %%
# How far apart are the clusters?
# -------------------------------
# The distances of all rows to their counterfactuals in every other cluster, in one call. In
# parentheses: the digit that most images of a cluster show.

apart = of.ClusterExplainer(model).separability(images)
print(apart)
mostly = [max(set(labels[clusters == k]), key=list(labels[clusters == k]).count) for k in range(10)]
names = [f"{k} ({digit})" for k, digit in enumerate(mostly)]
plot_separability(apart, names=names, title="Which images are easily turned into which")
plt.show()

# %%
# The distributions behind the row of the zeros, the closest clusters first:

near = np.argsort(apart.matrix()[source])[:5]
plot_distances(
    {f"to {names[k]}": apart.pair(source, int(k)) for k in near},
    title="From the cluster of zeros",
    note="one distance per image",
)
plt.show()
