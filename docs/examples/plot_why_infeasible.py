"""
Why is it infeasible?
=====================

A bank spreads its customers over five advisers so that each adviser serves customers who resemble
each other. Then three departments add a rule each, and nothing is left. Which rules are to blame,
by how much would they have to give, and what would each way out cost? The page
:doc:`/why_infeasible` explains the proofs.
"""

# %%
# The rules
# ---------
# A thousand customers of German Credit, 310 of them women. Each adviser is a cluster; the
# centers are those of k-means.

import matplotlib.pyplot as plt
import numpy as np

import optfair as of

X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
start = of.FairAssignment(X, groups=sex, centers=X[:5], fairness=None)
centers = of.fair_clustering.alternate(start).centers

p = of.FairAssignment(X, groups=sex, centers=centers, fairness=None)
women = 0  # row of the masses: groups are sorted by name
rules = {
    "smallest": of.cluster_share(lower=0.1),  # nobody without work
    "mix": of.fair_clustering.proportion(upper={"female": 0.4}),  # no adviser for women only
    "capacity": of.cluster_share(upper=0.24),  # nobody with too much work
    "desk": p["masses"][women, 0] >= 0.155,  # half of the women at the new desk
}
q = p.with_constraints(**rules)
try:
    q.solve()
except of.Infeasible as e:
    print(e)

# %%
# The diagnosis
# -------------
# Of the four rules three are needed for the conflict. It is proved by a Farkas certificate, and each
# smaller set of rules has a feasible point.

d = q.diagnose()
print(d)

# %%
# Everything in it can be recomputed from the data, without the solver that found it.

print(d["conflict"].verify(), d["relaxation"].verify())

# %%
# What each way out costs
# -----------------------
# The relaxation says by how much one rule would have to give if it gives alone. It does not say
# what the customers lose, so each of the three repaired problems is solved.

gives = d["relaxation"].numbers["alone_largest"]
first = np.array([1.0, 0, 0, 0, 0])
share = 0.155 / 0.24  # what the mix of the first adviser becomes
repairs = {
    f"mix: {share:.0%} women": (
        gives["mix.upper"],
        {"mix": of.fair_clustering.proportion(upper={"female": share})},
    ),
    f"capacity: {240 + 1000 * gives['capacity.upper']:.0f} customers": (
        gives["capacity.upper"],
        {"capacity": of.cluster_share(upper=0.24 + gives["capacity.upper"] * first)},
    ),
    f"desk: {155 - 1000 * gives['desk']:.0f} women": (
        gives["desk"],
        {"desk": p["masses"][women, 0] >= 0.155 - gives["desk"]},
    ),
}
unruled = p.solve().objective
costs = {}
for name, (_, rule) in repairs.items():
    s = p.with_constraints(**{**rules, **rule}).solve()
    costs[name] = s.objective / unruled - 1.0
    print(f"{name:<28} cost +{costs[name]:.1%}, optimal: {s.is_optimal(1e-7)}")

# %%
# The picture
# -----------
# The conflict concerns the first adviser alone, so it can be drawn in the plane. Each line is a
# rule, and the side it allows is tinted. Every two tints overlap; the red triangle, where all
# three would have to meet, lies outside of each. At a dot two rules hold and the third, whose
# colour it has, gives just enough.

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#B3261E"
fig, (plane, amount, cost) = plt.subplots(
    1, 3, figsize=(11, 4.6), width_ratios=[1.7, 1, 1], layout="constrained"
)
w = np.linspace(0.0, 310.0, 311)
plane.fill_between(w, 1.5 * w, 470, color=BLUE, alpha=0.13, lw=0)
plane.fill_between(w, 0, np.maximum(240 - w, 0), color=ORANGE, alpha=0.2, lw=0)
plane.fill_between([155, 310], 0, 470, color=GREEN, alpha=0.13, lw=0)
plane.plot(w, 1.5 * w, color=BLUE)
plane.plot([0, 240], [240, 0], color=ORANGE)
plane.plot([155, 155], [0, 470], color=GREEN)
corners = np.array([[155, 85], [155, 232.5], [96, 144]])  # mix, capacity, desk gives
plane.fill(*corners.T, color=RED, alpha=0.7, lw=0)
plane.scatter(*corners.T, c=[BLUE, ORANGE, GREEN], s=70, edgecolors="white", zorder=4)
plane.text(8, 455, "mix\nat most 40% women", color=BLUE, va="top")
plane.text(66, 12, "capacity\nat most 240\ncustomers", color="#8A5F00", va="bottom")
plane.text(302, 12, "desk\nat least\n155 women", color="#00704F", ha="right", va="bottom")
plane.annotate(
    "all three\nare broken",
    (150, 160),
    (200, 190),
    color=RED,
    va="center",
    arrowprops={"arrowstyle": "-", "color": RED},
)
plane.set(xlim=(0, 310), ylim=(0, 470), xlabel="women at the first desk", ylabel="men")
plane.set_title("Three rules, no common point", loc="left", fontweight="bold", fontsize=11)

names, colours = [n.replace(": ", "\n") for n in repairs], [BLUE, ORANGE, GREEN]
amount.barh(names, [1000 * g for g, _ in repairs.values()], color=colours, height=0.6)
amount.set_xlabel("customers")
amount.set_title("What it must give, alone", loc="left", fontweight="bold", fontsize=11)
cost.barh(names, [100 * c for c in costs.values()], color=colours, height=0.6)
cost.set_xlabel("cost above that without rules, %")
cost.set_title("What that costs", loc="left", fontweight="bold", fontsize=11)
cost.set_yticks([])
amount.tick_params(axis="y", length=0)
for ax, fmt in ((amount, "{:.0f}"), (cost, "{:.1f}%")):
    ax.invert_yaxis()
    ax.bar_label(ax.containers[0], fmt=fmt, padding=3)
    ax.margins(x=0.2)
for ax in fig.axes:
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# *mix* and *desk* must give by the same number of customers, but not at the same price: to let the
# desk have 96 women is much the cheapest. A least relaxation says what is possible; what it is
# worth only the problem itself can say.
