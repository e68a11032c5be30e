"""
Fair mixtures of numbers and categories
=======================================

Applicants of German Credit in four clusters, by three numeric columns and four categorical ones,
with women and men in equal parts in each: what a constraint guarantees, and what a penalty does.
"""

# %%
# Rows
# ----
# Numeric columns are skewed; their logarithms are standardised, because units matter. Columns
# that are not numbers are categories.

import matplotlib.pyplot as plt
import numpy as np

import optfair as of
from optfair.plots import plot_category_profiles, plot_composition, plot_mixture_front

table = of.datasets.load("german_credit").frame()
sex = table["sex"].to_numpy()
rows = table[["purpose", "property", "housing", "job"]].copy()
for name in ("age_in_years", "duration_in_month", "credit_amount"):
    logs = np.log(table[name])
    rows[name] = (logs - logs.mean()) / logs.std()

# %%
# Three mixtures
# --------------
# Without fairness; with the fair E-step; with a penalty on the difference Δ of the groups' mean
# responsibilities. Δ is reported three times: of the responsibilities that count, of the plain
# ones, and of the labels. Only the first is guaranteed, and only by the constraint.

settings = {"covariance_type": "diag", "random_state": 0}
plain = of.FairMixture(4, fairness=None, **settings).fit(rows, groups=sex)
constraint = of.FairMixture(4, eps=0.0, label_rule="fair", **settings).fit(rows, groups=sex)
penalty = of.FairMixture(4, fairness="penalty", lam=5.0, **settings).fit(rows, groups=sex)
print("              Δ        Δ of ψ   Δ of labels   balance   log-likelihood")
for name, m in (("plain", plain), ("constraint", constraint), ("penalty", penalty)):
    print(
        f"{name:<12}  {m.delta_:.1e}  {m.delta_plain_:.4f}   {m.delta_labels_:.4f}"
        f"        {m.balance_:.3f}     {m.log_likelihood_:.3f}"
    )

# %%
# What the clusters are made of
# -----------------------------
# Labels by the rule "fair" obey the constraint themselves, but for a few rows.

plot_composition(sex, constraint.labels_, title="Perfect fairness, labels by the same rule")
plt.show()

# %%
# What the clusters mean
# ----------------------
# Probabilities of categories in each cluster, against those of all applicants. The codes are
# UCI's: A122 is a building society agreement or life insurance, A124 no property, A153 free
# housing, A174 management or self-employed.

plot_category_profiles(constraint, columns=["property", "housing", "job"])
plt.show()

# %%
# An applicant the fit has not seen
# ---------------------------------
# A category that is missing, or was never seen, says nothing; the group has a price in every
# cluster, and ψ is what the mixture says without it.

someone = rows.iloc[[0]].assign(job="astronaut", housing=None)
with np.printoptions(precision=3, suppress=True):
    for group in ("female", "male"):
        print(f"R if {group:<7}", constraint.predict_proba(someone, groups=[group])[0])
    print("ψ           ", constraint.responsibilities(someone)[0])

# %%
# What fairness costs
# -------------------
# A sweep of ε and one of λ for each of three starts. Lines are medians over starts, bands reach
# from the best to the worst. Only numeric columns have a cost, so only they are taken.

numbers = rows[["age_in_years", "duration_in_month", "credit_amount"]].to_numpy()
tight, soft = [], []
for seed in range(3):
    model = of.FairMixture(4, init="random", tol=1e-4, random_state=seed)
    fair = of.FairMixture(4, init="random", tol=1e-4, label_rule="fair", random_state=seed)
    tight.append(
        of.fair_mixtures.eps_path(fair, numbers, groups=sex, eps=[0.0, 0.02, 0.05, 0.1, 0.2])
    )
    soft.append(
        of.fair_mixtures.lambda_path(
            model, numbers, groups=sex, lams=[5.0, 2.0, 1.0, 0.5, 0.2, 0.0]
        )
    )
ax = plot_mixture_front(
    {"constraint, fair labels": tight, "penalty, λ from 5 to 0": soft},
    units="mean squared distance, standardised",
)
plt.show()

# %%
# The same without holding the rows
# ---------------------------------
# `fit_stream` reads chunks as often as it has to. Up to 200,000 rows the result is that of `fit`.


def read():
    """Return a new iterator over all rows, for one pass."""
    for start in range(0, len(rows), 250):
        yield rows[start : start + 250], sex[start : start + 250]


streamed = of.FairMixture(4, eps=0.0, **settings).fit_stream(read)
print(f"{streamed.n_rows_} rows, never held: Δ = {streamed.delta_:.1e}")
print(f"means differ by {np.abs(streamed.means_ - constraint.means_).max():.1e}")
