"""The two pictures of the README: ``python docs/readme_pictures.py`` draws them anew."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

import optfair as of
from optfair.plots.axes import FAINT, INK, QUIET

OUT = Path(__file__).parent / "_static"
BLUE, SHADE = "#0072B2", "#D55E00"


def prices() -> plt.Figure:
    """Least variance by wanted return, with the bounds that two solved points prove for all others."""
    data = dict(of.library.load("textbook/minimum_variance").data)

    def solved(wanted: float) -> of.Solution:
        return of.textbook.MinimumVariance(**{**data, "wanted": wanted}).solve(tolerance=1e-8)

    returns = np.linspace(4.5, 12.5, 33)
    optima = np.array([solved(float(t)).objective for t in returns])
    tangents = []
    figure, ax = plt.subplots(figsize=(5.6, 3.7), layout="constrained")
    for t in (7.0, 11.0):
        s = solved(t)
        slope = float(s.shadow_price["wanted return"])
        tangents.append(s.objective + slope * (returns - t))
        ax.plot(returns, tangents[-1], color=SHADE, lw=1, zorder=1)
        ax.plot(t, s.objective, "o", color=BLUE, zorder=3)
        ax.annotate(
            f"solved at {t:g} %:\nprice {slope:.1f}",
            (t, s.objective),
            (-8, 8),
            textcoords="offset points",
            ha="right",
            color=INK,
            fontsize=9,
        )
    floor = np.max([*tangents, np.zeros_like(returns)], axis=0)
    ax.fill_between(returns, 0.0, floor, color=SHADE, alpha=0.15, lw=0)
    ax.plot(returns, optima, color=BLUE, lw=2, zorder=2)
    ax.text(
        10.9, 45, "two solutions prove\nthat nothing is below", color=QUIET, fontsize=9, ha="center"
    )
    ax.set(xlabel="wanted return, % a year", ylabel="least variance", ylim=(0, optima.max() * 1.02))
    ax.set_xlim(returns[0], returns[-1])
    ax.set_title("One optimum bounds all others", loc="left", fontsize=11, fontweight="bold")
    ax.grid(axis="y", color=FAINT, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def composition() -> plt.Figure:
    """Shares of the sexes in five clusters, without a rule and with perfect fairness."""
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    figure, axes = plt.subplots(2, 1, figsize=(5.6, 5.6), layout="constrained")
    for ax, fairness, words in zip(
        axes, (None, of.perfect_fairness()), ("k-means", "Fair k-means"), strict=True
    ):
        model = of.FairKMeans(5, fairness=fairness, random_state=0).fit(X, groups=sex)
        of.plots.plot_composition(
            sex, model.labels_, ax=ax, title=f"{words}: cost {model.cost_:.2f}"
        )
    axes[0].get_legend().remove()
    axes[0].set_xlabel("")
    return figure


if __name__ == "__main__":
    for name, draw in (("prices", prices), ("composition", composition)):
        draw().savefig(OUT / f"{name}.png", dpi=120)
        print(f"wrote {OUT / name}.png")
