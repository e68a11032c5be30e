"""Pictures of the README and of the page on sweeps: ``python docs/readme_pictures.py`` draws them anew."""

from __future__ import annotations

from pathlib import Path

import cvxpy as cp
import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

import optfair as of
from optfair.plots import FAINT, INK, QUIET

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


def price_of_fairness() -> plt.Figure:
    """Cost by the difference of shares that is let pass, with the band that is proved between points."""
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    model = of.FairKMeans(5, fairness=None, random_state=0).fit(X, groups=sex)
    p = of.FairAssignment(X, groups=sex, centers=model.cluster_centers_, fairness=of.max_gap(0.05))
    front = of.sweep(p, "eps", (0.0005, 0.3), width=0.12)
    figure, ax = plt.subplots(figsize=(5.6, 3.7), layout="constrained")
    front.plot(ax)
    ax.lines[-1].set(color=BLUE, markersize=5)
    ax.collections[0].set(facecolor=SHADE, alpha=0.35)
    ends = front.band(0.1)
    ax.annotate(
        f"at 0.1, not solved:\nproved between\n{ends[0]:.4f} and {ends[1]:.4f}",
        (0.1, ends[1]),
        (60, 45),
        textcoords="offset points",
        color=INK,
        fontsize=9,
        arrowprops={"arrowstyle": "-", "color": QUIET},
    )
    ax.set(xlabel="difference of shares that is let pass, ε", ylabel="mean squared distance")
    title = f"The price of fairness: {len(front)} solves, proved between them"
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold")
    ax.grid(axis="y", color=FAINT, lw=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def controller() -> plt.Figure:
    """A cart that is brought to rest by solving again at every step, with a push on the way."""
    horizon, steps, A, B = 15, 40, np.array([[1.0, 0.2], [0.0, 1.0]]), np.array([0.02, 0.2])
    states, force = cp.Variable((2, horizon + 1), name="states"), cp.Variable(horizon, name="force")
    now = cp.Parameter(2, name="now", value=[-3.0, 0.0])
    rows = {
        "now": states[:, 0] == now,
        "motion": states[:, 1:]
        == A @ states[:, :-1] + B[:, None] @ cp.reshape(force, (1, horizon), "C"),
        "force": cp.abs(force) <= 2.0,
        "speed": states[1] <= 1.2,
    }
    goal = (
        cp.sum_squares(states[0]) + 0.2 * cp.sum_squares(states[1]) + 0.05 * cp.sum_squares(force)
    )
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), list(rows.values())), list(rows))
    at, path, forces, proved = np.array([-3.0, 0.0]), [], [], 0
    for k in range(steps):
        s = p.at(now=at).solve()
        path.append(at)
        forces.append(float(s["force"][0]))
        proved += s.grade.word == "proved"
        at = A @ at + B * forces[-1] + (np.array([0.0, 0.9]) if k == 22 else 0.0)
    time = 0.2 * np.arange(steps)
    figure, axes = plt.subplots(2, 1, figsize=(5.6, 4.4), sharex=True, layout="constrained")
    position, speed = np.array(path).T
    axes[0].plot(time, position, color=BLUE, lw=2)
    axes[0].plot(time, speed, color=SHADE, lw=1.5)
    axes[0].axhline(1.2, color=QUIET, lw=0.8, ls="--")
    axes[0].text(time[-1], 1.28, "speed limit", color=QUIET, fontsize=9, ha="right")
    axes[0].text(1.5, -2.3, "position", color=BLUE, fontsize=9)
    axes[0].text(1.3, 0.75, "speed", color=SHADE, fontsize=9)
    axes[0].axvline(0.2 * 23, color=FAINT, lw=6, zorder=0)
    axes[0].text(0.2 * 23.6, -1.6, "a push", color=QUIET, fontsize=9)
    axes[1].step(time, forces, where="post", color=INK, lw=1.5)
    for limit in (-2.0, 2.0):
        axes[1].axhline(limit, color=QUIET, lw=0.8, ls="--")
    axes[1].set(xlabel="seconds", ylabel="force", ylim=(-2.4, 2.4))
    axes[0].set_title(
        f"{steps} steps of a controller, {proved} optima proved",
        loc="left",
        fontsize=11,
        fontweight="bold",
    )
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure


PICTURES = (prices, composition, price_of_fairness, controller)

if __name__ == "__main__":
    for draw in PICTURES:
        name = draw.__name__
        draw().savefig(OUT / f"{name}.png", dpi=120)
        print(f"wrote {OUT / name}.png")
