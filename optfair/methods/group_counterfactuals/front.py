"""The front of transport cost against distortion: by sweeping K, or by a search for any classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair import registry
from optfair.errors import DataError, DeclarationError, Tabled, data_frame
from optfair.features.linear_score import LinearScore
from optfair.methods.group_counterfactuals.map_search import FAMILIES, MapSearch, hypervolume
from optfair.methods.group_counterfactuals.metrics import Target, distortion, transport_cost
from optfair.methods.group_counterfactuals.transport_map import TransportMap
from optfair.numbers import (
    Floats,
    check_choice,
    check_count,
    check_matrix,
    check_seconds,
    check_seed,
    check_text,
    checked,
    floats,
)

# The problem that is solved for each K of a sweep.
MODELS = {
    "psd": "PSDMap",
    "diagonal": "DiagonalMap",
    "commutative": "CommutativeGaussianMap",
    "scaled": "ScaledMap",
}
SWEPT = (1.01, 1.1, 1.25, 1.5, 2.0, 2.5, 3.5, 5.0)


@dataclass(frozen=True, eq=False, repr=False)
class CounterfactualFront(Tabled):
    """Maps of a group that trade transport cost against distortion.

    Attributes
    ----------
    label : str
        What the front is called.
    method : str
        "sweep" (one solved problem per K) or "nsga2" (a heuristic).
    family : str
        "psd", "diagonal", "commutative", "scaled", or "members".
    transport_cost : array (m,)
        Mean squared distance: rising, or in the order of K.
    distortion : array (m,)
        Of the members, 1 − 1/max(K̂, k̂).
    operator_distortion : array (m,)
        1 − 1/max(σ_max, 1/σ_min) of A, what bounds K and k bound; NaN without a map.
    K : array (m,)
        Bound of each problem of a sweep; NaN for a search.
    gap : array (m,)
        Certified relative gap of each problem of a sweep; NaN for a search.
    counterfactuals : array (m, n, d)
        Where the members go.
    maps : tuple of TransportMap
        Empty for "members", which moves every member by itself.
    complete : bool
        False after Ctrl-C or a time limit.
    """

    label: str
    method: str
    family: str
    transport_cost: Floats
    distortion: Floats
    operator_distortion: Floats
    K: Floats
    gap: Floats
    counterfactuals: Floats
    maps: tuple[TransportMap, ...]
    complete: bool = True

    def __len__(self) -> int:
        return int(self.transport_cost.size)

    def hypervolume(self, reference: tuple[float, float]) -> float:
        """Return the area dominated up to a reference (cost, distortion); larger is better.

        Compare fronts with one reference that all of them dominate, in the units of the cost.

        Raises
        ------
        NotInstalled
            pymoo is missing.
        """
        points = np.column_stack([self.transport_cost, self.distortion])
        return hypervolume(points, (float(reference[0]), float(reference[1])))

    def to_frame(self) -> Any:
        """Return the numbers as a pandas DataFrame, one row per map.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        names = ("transport_cost", "distortion", "operator_distortion", "K", "gap")
        return data_frame({name: getattr(self, name) for name in names})

    def __repr__(self) -> str:
        cut = "" if self.complete else ", interrupted"
        proof = (
            "each optimal for its K in this family"
            if self.method == "sweep"
            else "best found by a search, nothing proven"
        )
        lines = [f"CounterfactualFront {self.label!r}: {len(self)} maps{cut}; {proof}"]
        lines.append(f"  {'K':>8}{'cost':>14}{'distortion':>14}{'of the map':>14}{'gap':>12}")
        bent = (self.distortion, self.operator_distortion)
        rows = zip(self.K, self.transport_cost, *bent, self.gap, strict=True)
        lines += ["  {:>8.4g}{:>14.6g}{:>14.6g}{:>14.6g}{:>12.1e}".format(*row) for row in rows]
        return "\n".join(lines)


@checked(
    K=floats,
    population=check_count,
    generations=check_count,
    time_limit=check_seconds,
    random_state=check_seed,
    family=check_text,
    method=check_text,
)
def counterfactual_front(
    X: Any,
    score: Any,
    *,
    probability: float | None = None,
    threshold: float | None = None,
    target_class: Any = None,
    family: str = "psd",
    method: str = "auto",
    K: Any = None,
    background: Any = None,
    population: int = 100,
    generations: int = 200,
    time_limit: float | None = None,
    random_state: int | None = 0,
    label: str = "",
) -> CounterfactualFront:
    r"""Return maps that no other found one beats in both transport cost and distortion.

    .. math:: \min_g \ \big( W_2^2(g),\ \hat D(g) \big) \quad \text{s.t. } P(c \mid g(x_i)) \ge \alpha

    ``method="sweep"`` takes a linear score and solves one convex problem per K. Its front is
    exact for the distortion 1 − 1/K *of the operator* within one family; the distortion
    :math:`\hat D` of the members is smaller, so for :math:`\hat D` the sweep is only
    achievable and a search may beat it. ``method="nsga2"`` asks any classifier for its
    probabilities only, and is a heuristic.

    Parameters
    ----------
    X : array-like (n, d)
        Members of the group.
    score : classifier
        Anything with ``predict_proba``; or a linear score as `LinearScore.of` takes it.
    probability, threshold, target_class
        The target, as for the models.
    family : {"psd", "diagonal", "commutative", "scaled", "members"}
        A symmetric with eigenvalues in [1/K, K]; the same with A diagonal, diagonal in the
        principal axes of the group, or a multiple of I. "members" moves every member by
        itself, the paper's baseline without a map.
    method : {"auto", "sweep", "nsga2"}
        By default the sweep for a linear score, else the search.
    K : sequence of float, or float
        Bounds to sweep; for a search the largest one it may use (5 by default).
    background : array-like (m, d), optional
        Further rows, such as the training data; those that reach the target show a search
        where to go.
    population, generations : int
        Size of the search.
    time_limit : float, optional
        Seconds of the search, or of the sweep.
    random_state : int, optional
        Seed of the search.
    label : str
        What to call the front.

    Returns
    -------
    CounterfactualFront
        From cheap to dear, or by K.

    Raises
    ------
    DeclarationError
        Unknown family or method, a sweep of a score that is not linear.
    Infeasible
        The search found no translation that reaches the target.
    NotInstalled
        pymoo is missing, for the search.

    Examples
    --------
    >>> import numpy as np
    >>> from optfair.methods.group_counterfactuals.front import counterfactual_front
    >>> X = np.random.default_rng(0).normal(size=(30, 2)) - 2.0
    >>> front = counterfactual_front(X, ([1.0, 1.0], 0.0), K=[1.01, 2.0, 5.0])
    >>> bool((np.diff(front.transport_cost) < 0).all()), bool((front.gap < 1e-7).all())
    (True, True)

    References
    ----------
    Valero-Leal et al., Optimal transport group counterfactual explanations, Section C.5.
    """
    check_choice(family, "family", FAMILIES)
    check_choice(method, "method", ("auto", "sweep", "nsga2"))
    members = check_matrix(X, "X")
    aim = {"probability": probability, "threshold": threshold, "target_class": target_class}
    if method == "auto":
        method = "sweep" if family in MODELS and _linear(score) else "nsga2"
    if method == "sweep":
        if family not in MODELS:
            raise DeclarationError(
                f"the family {family!r} has no bound to sweep", remedy="give method='nsga2'"
            )
        return _sweep(members, X, score, aim, family, _bounds(K), time_limit, label)
    target = Target(score, **aim)
    if np.ndim(K) > 0:
        raise DeclarationError(
            f"K is {K!r}", "a search has one largest K", "give one number, or method='sweep'"
        )
    rest = None if background is None else check_matrix(background, "background")
    largest = 5.0 if K is None else _bounds([K])[0]
    search = MapSearch(target, members, family, largest, random_state)
    images, matrices, offsets, complete = search.run(rest, population, generations, time_limit)
    known: dict[str, Any] = {
        "features": getattr(X, "columns", None),
        "mean": search.group.center,
        "covariance": search.group.covariance,
    }
    maps = [TransportMap(A, b, **known) for A, b in zip(matrices, offsets, strict=True)]
    none = np.full(len(images), np.nan)
    front = (label or f"{family}, NSGA-II", method, family)
    return _front(front, members, maps, images, (none, none), complete)


def _linear(score: Any) -> bool:
    try:
        LinearScore.of(score)
    except DeclarationError:
        return False
    return True


def _bounds(K: Any) -> tuple[float, ...]:
    values = floats(SWEPT if K is None else K, "K").ravel()
    if values.size == 0 or not np.isfinite(values).all() or (values < 1).any():
        raise DeclarationError(
            f"K is {K!r}", "a map that keeps distances has K = 1", "give numbers of at least 1"
        )
    return tuple(sorted(float(v) for v in values))


def _sweep(
    members: Floats,
    X: Any,
    score: Any,
    aim: dict[str, Any],
    family: str,
    bounds: Sequence[float],
    time_limit: float | None,
    label: str,
) -> CounterfactualFront:
    import time

    model = registry.load("models", MODELS[family])
    begin, complete = time.perf_counter(), True
    maps: list[TransportMap] = []
    gaps: list[float] = []
    for bound in bounds:
        if time_limit is not None and maps and time.perf_counter() - begin > time_limit:
            complete = False
            break
        problem = model(X, score=score, K=bound, k=bound, **aim)
        solution = problem.solve()
        maps.append(problem.map(solution))
        gaps.append(solution.gap)
    done = np.array(bounds[: len(maps)])
    images = np.array([m.transform(members) for m in maps])
    front = (label or f"{family}, sweep of K", "sweep", family)
    return _front(front, members, maps, images, (done, np.array(gaps)), complete)


def _front(
    names: tuple[str, str, str],
    members: Floats,
    maps: Sequence[TransportMap],
    images: Floats,
    numbers: tuple[Floats, Floats],
    complete: bool,
) -> CounterfactualFront:
    """Measure every map on all members; of a search, keep what nothing beats, by cost."""
    if not len(images):
        raise DataError(
            "the search found no map that sends every member to the target",
            remedy="give more generations, or background= rows",
        )
    label, method, family = names
    K, gaps = numbers
    cost = np.array([transport_cost(members, Z) for Z in images])
    bent = np.array([distortion(members, Z) for Z in images])
    order = np.arange(cost.size)
    if method == "nsga2":  # pairs may have been sampled, so dominance is looked at again
        order = np.lexsort((bent, cost))
        order = order[bent[order] <= np.minimum.accumulate(bent[order])]
        _, first = np.unique(np.column_stack([cost, bent])[order], axis=0, return_index=True)
        order = order[np.sort(first)]
    operator = np.array([m.distortion for m in maps] or np.full(cost.size, np.nan))
    return CounterfactualFront(
        label=label,
        method=method,
        family=family,
        transport_cost=cost[order],
        distortion=bent[order],
        operator_distortion=operator[order],
        K=K[order],
        gap=gaps[order],
        counterfactuals=images[order],
        maps=tuple(maps[int(i)] for i in order) if maps else (),
        complete=complete,
    )
