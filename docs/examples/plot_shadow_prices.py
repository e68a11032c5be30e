"""
A shadow price is a slope
=========================

The optimum of a convex problem is a convex function of its right-hand side, and the shadow price
is the slope of that function. Here it is drawn for the portfolio of least variance: how much
variance does each further percent of return cost?
"""

# %%
# Five assets, and the least variance for a range of wanted returns. Each point is a proven
# optimum, and brings its own price.

import matplotlib.pyplot as plt
import numpy as np

import optfair as of

data = dict(of.library.load("textbook/minimum_variance").data)


def solved(wanted: float) -> of.Solution:
    return of.textbook.MinimumVariance(**{**data, "wanted": wanted}).solve(
        "clarabel", tolerance=1e-8
    )


returns = np.linspace(4.5, 12.5, 41)
solutions = [solved(float(t)) for t in returns]
variances = [s.objective for s in solutions]
prices = [float(s.shadow_price["wanted return"]) for s in solutions]

# %%
# The price predicts what happens next to a point. Tangents at three returns touch the frontier
# and stay below it, because it is convex: the price at one point bounds the optimum everywhere.

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(returns, variances, color="#0072B2")
for t, color in ((6.0, "#009E73"), (8.5, "#E69F00"), (11.0, "#D55E00")):
    s = solved(t)
    slope = float(s.shadow_price["wanted return"])
    near = np.array([t - 2.0, t + 1.5])
    left.plot(near, s.objective + slope * (near - t), color=color, lw=1.2)
    left.plot(t, s.objective, "o", color=color, label=f"price {slope:.1f} at {t:g} %")
left.set(xlabel="wanted return, % a year", ylabel="least variance", ylim=(0, None))
left.legend(frameon=False)

# difference quotients of neighbouring points lie between the prices at their ends
middle = (returns[1:] + returns[:-1]) / 2
right.plot(returns, prices, color="#0072B2", label="shadow price")
right.plot(middle, np.diff(variances) / np.diff(returns), "k.", ms=4, label="difference quotient")
right.set(xlabel="wanted return, % a year", ylabel="variance per % of return")
right.legend(frameon=False)
for ax in (left, right):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()

# %%
# For small returns the constraint has slack and the price is 0: the portfolio of least variance
# earns that much anyway. Where another asset leaves the portfolio the price has a kink.

first = returns[np.argmax(np.array(prices) > 1e-3)]
print(f"the first return with a price: {first:.1f} %")
