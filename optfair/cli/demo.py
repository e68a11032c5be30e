"""A tour in a few seconds: declare, classify, solve, verify, compose, alternate, sweep, draw."""

from __future__ import annotations

import importlib.util
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from rich.console import Console

from optfair import datasets, metrics, registry
from optfair.core.solution import Solution
from optfair.errors import NotInstalled
from optfair.plots import plot_composition, plot_front
from optfair.storage import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLUSTERS, SEED, TOLERANCE = 5, 0, 1e-9


class Say(Protocol):
    """Prints a line, or the title of a step."""

    def __call__(self, text: object, *, title: bool = False) -> None:
        """Print it as it is, without markup or wrapping."""


def demo(out: Path, quick: bool = False) -> dict[str, Any]:
    """Cluster German Credit fairly by sex, and show each step.

    Parameters
    ----------
    out : Path
        Folder for two pictures; made if it is not there.
    quick : bool
        Fewer points in the sweep.

    Returns
    -------
    dict
        The numbers that were printed: ``class``, ``solver``, ``objective``, ``bound``,
        ``gap``, ``verified``, ``grade``, ``population_balance``, ``balance_soft``, ``balance_hard``,
        ``composed``, ``alternation``, ``front``, ``files`` and ``seconds``.

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    """
    begin = time.perf_counter()
    _need_matplotlib()
    say = _speaker()
    X, sex = datasets.load("german_credit").numeric("sex", standardize=True)
    problem = _declared(say, X, sex)
    solution = problem.solve(tolerance=TOLERANCE)
    verdict = solution.certificate.verify()
    population = float(problem.shares.min() / problem.shares.max())
    numbers = {
        "class": str(problem.problem_class),
        "solver": solution.solver,
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "verified": bool(verdict),
        "grade": str(solution.grade),
        "population_balance": population,
        "balance_soft": metrics.balance(sex, solution["assignment"], soft=True),
        "balance_hard": metrics.balance(sex, solution["assignment"]),
    }
    say("Solve and verify", title=True)
    say(solution)
    say(f"  certificate  {verdict}: {solution.certificate}")
    say(
        f"  balance      {numbers['balance_soft']:.4f} soft, {numbers['balance_hard']:.4f} of the"
        f" hard labels; the population has {population:.4f}"
    )
    numbers["composed"] = _composed(say, problem, solution)
    fair = registry.load("estimators", "alternate")(problem, tolerance=TOLERANCE)
    numbers["alternation"] = _alternated(say, fair, sex)
    plain = fair.problem.without("fairness").solve(tolerance=TOLERANCE)
    front = _swept(say, fair.problem, plain, sex, points=6 if quick else 15)
    numbers["front"] = front
    figures = {
        "composition.png": _composition(sex, plain, fair),
        "front.png": _front(front, population),
    }
    numbers["files"] = _saved(say, figures, Path(out))
    numbers["seconds"] = time.perf_counter() - begin
    say(f"\nDone in {numbers['seconds']:.1f} s.")
    return numbers


def _need_matplotlib() -> None:
    """Fail before anything is solved, not after."""
    if importlib.util.find_spec("matplotlib") is None:
        raise NotInstalled(
            "matplotlib is not installed",
            "the tour ends in two pictures",
            'pip install "optfair[plot]"',
        )


def _speaker() -> Say:
    """Return a function that prints lines as they are, and titles bold."""
    console = Console(highlight=False)

    def say(text: object, *, title: bool = False) -> None:
        lead = "\n" if title else ""
        console.print(
            f"{lead}{text}", markup=False, soft_wrap=True, style="bold" if title else None
        )

    return say


def _declared(say: Say, X: Any, sex: Any) -> Any:
    from sklearn.cluster import kmeans_plusplus

    centers, _ = kmeans_plusplus(X, CLUSTERS, random_state=SEED)
    problem = registry.load("models", "FairAssignment")(X, groups=sex, centers=centers)
    say("Declare and classify", title=True)
    say(
        f"German Credit: {X.shape[0]} applicants, {X.shape[1]} standardised columns, groups by"
        f" sex ({', '.join(map(str, problem.group_names))}), {CLUSTERS} k-means++ centers"
    )
    say(problem)
    say("\nWhy this class:")
    say(problem.explain())
    return problem


def _composed(say: Say, problem: Any, solution: Solution) -> dict[str, Any]:
    """Add a rule, solve on the same route, and ask what integrality would change."""
    share = problem.with_constraints(share=registry.load("rules", "cluster_share")(lower=0.15))
    again = share.solve(tolerance=TOLERANCE, warm_start=solution)
    sizes = np.asarray(again["masses"]).sum(axis=0)
    integral = share.with_integrality("assignment")
    say("Compose", title=True)
    say("every cluster gets at least 15% of the rows: share=cluster_share(lower=0.15)")
    say(f"  class        {share.explain_change(problem)}")
    say(
        f"  solved by    {again.solver}, cost {solution.objective:.4f} -> {again.objective:.4f},"
        f" smallest cluster {sizes.min():.1%}"
    )
    say(f"  whole rows   {integral.explain_change(share)}")
    return {
        "class": str(share.problem_class),
        "integral_class": str(integral.problem_class),
        "solver": again.solver,
        "objective": again.objective,
        "smallest_share": float(sizes.min()),
        "verified": bool(again.certificate.verify()),
    }


def _alternated(say: Say, fair: Any, sex: Any) -> dict[str, Any]:
    balance = metrics.balance(sex, fair.labels)
    say("Alternate assignment and centers to a fair clustering", title=True)
    say(fair)
    say(f"  balance    {balance:.4f} of the hard labels")
    return {
        "status": fair.status,
        "n_iter": fair.n_iter,
        "cost_before": fair.history[0],
        "cost_after": fair.history[-1],
        "history": list(fair.history),
        "balance_hard": balance,
        "gap": fair.solution.gap,
        "verified": bool(fair.solution.certificate.verify()),
    }


def _swept(
    say: Say, problem: Any, plain: Solution, sex: Any, points: int
) -> dict[str, list[float]]:
    """Return cost and soft balance over tolerances from perfectly fair to plain."""
    widest = metrics.additive_gap(sex, plain["assignment"], soft=True)
    additive_gap = registry.load("rules", "additive_gap")
    unruled = problem.without("fairness")
    eps = np.linspace(0.0, widest, points).tolist()
    solutions: list[Solution] = []
    for e in eps:
        ruled = unruled.with_constraints(fairness=additive_gap(e))
        solutions.append(
            ruled.solve(tolerance=TOLERANCE, warm_start=solutions[-1] if solutions else plain)
        )
    front = {
        "eps": eps,
        "cost": [s.objective for s in solutions],
        "balance": [metrics.balance(sex, s["assignment"], soft=True) for s in solutions],
    }
    say("Sweep the tolerance of additive_gap at the final centers", title=True)
    say(
        f"  {points} problems in {sum(sum(s.seconds.values()) for s in solutions):.2f} s: cost"
        f" {front['cost'][-1]:.4f} at balance {front['balance'][-1]:.4f} (plain) to"
        f" {front['cost'][0]:.4f} at {front['balance'][0]:.4f} (perfectly fair)"
    )
    return front


def _figure(height: float) -> Figure:
    """Return a figure that needs no screen and is not kept by pyplot."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    roomy = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, hspace=0.06)
    return Figure(figsize=(7.2, height), layout=roomy)


def _composition(sex: Any, plain: Solution, fair: Any) -> Figure:
    figure = _figure(7.4)
    above, below = figure.subplots(2, 1)
    plot_composition(sex, plain["assignment"], ax=above, title="Nearest center: clusters differ")
    plot_composition(sex, fair.labels, ax=below, title="Fair: each cluster mirrors the population")
    legend = above.get_legend()
    if legend is not None:  # the one below serves both
        legend.remove()
    above.set_xlabel("")
    return figure


def _front(front: dict[str, list[float]], best: float) -> Figure:
    figure = _figure(4.6)
    more = front["cost"][0] / front["cost"][-1] - 1.0
    sweep = SimpleNamespace(label="additive gap", parameter="eps", values=front["eps"], **front)
    plot_front(
        sweep,
        best_balance=best,
        soft=True,
        units="mean squared distance, standardised",
        title=f"At these centers, perfect balance of the sexes costs {more:.1%} more",
        ax=figure.subplots(),
    )
    return figure


def _saved(say: Say, figures: dict[str, Figure], out: Path) -> list[str]:
    out.mkdir(parents=True, exist_ok=True)
    say("Pictures", title=True)
    files = []
    for name, figure in figures.items():
        write_whole(out / name, partial(figure.savefig, dpi=150))
        files.append(str(out / name))
        say(f"  {out / name}")
    return files
