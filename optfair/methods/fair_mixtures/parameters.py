"""What the parameters of a `FairMixture` say: its rules, and the components it starts from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, nearest, no_number
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.single_start import INITS, check_distinct, starting_centers
from optfair.methods.fair_mixtures.components import Components, Multinoullis
from optfair.methods.fair_mixtures.expectation import Gaps, Penalty, Sample
from optfair.methods.fair_mixtures.fair_em import mass_program, named_rules
from optfair.methods.fair_mixtures.fitted_mixture import Intake
from optfair.methods.fair_mixtures.gaussians import SHAPES, Gaussians
from optfair.numbers import (
    LARGEST,
    Floats,
    check_choice,
    check_level,
    check_matrix,
    check_seed,
    real,
    whole,
)
from optfair.rows.frames import Columns

# Parameters of FairMixture, checked before anything is computed.

KNOWN = {
    "covariance_type": SHAPES,
    "algorithm": ("em", "gradient"),
    "label_rule": ("argmax", "fair", "hard"),
    "start": ("estimated", "soft"),
    "keep": ("last", "best balance"),
}
FAIRNESS = ("constraint", "penalty")
RANGES = {
    "lam": (0.0, np.inf, "0 is no penalty, and larger is fairer; give e.g. 10"),
    "size_penalty": (0.0, np.inf, "0 is none, and larger keeps clusters larger; give e.g. 0.02"),
    "eps": (0.0, 2.0, "0 is perfect fairness, None leaves rules= alone; give e.g. 0.02"),
    "reg_covar": (0.0, np.inf, 'a least variance; give e.g. 1e-6, or "auto"'),
    "tol": (0.0, 1.0, "a gain per row and column; give e.g. 1e-6"),
    "min_probability": (0.0, 0.1, "give e.g. 1e-6"),
}


def check_settings(model: Any) -> None:
    """Raise on the first parameter that cannot be used.

    Raises
    ------
    DeclarationError
        Naming the parameter.
    """
    for name, known in KNOWN.items():
        check_choice(getattr(model, name), name, known)
    if model.fairness is not None and not (
        isinstance(model.fairness, str) and model.fairness in FAIRNESS
    ):
        raise DeclarationError(
            f"unknown fairness {model.fairness!r}",
            remedy='give "constraint", "penalty" or None; rules on masses go in rules=',
        )
    for name in ("n_components", "max_iter", "inner_steps"):
        _whole(model, name)
    if not (isinstance(model.n_init, str) and model.n_init == "auto"):
        _whole(model, "n_init")
    if not (model.n_jobs is None or (whole(model.n_jobs) and model.n_jobs == -1)):
        _whole(model, "n_jobs")
    for name, (least, most, remedy) in RANGES.items():
        free = {"eps": None, "reg_covar": "auto"}
        value = getattr(model, name)
        if name not in free or not (value is None or isinstance(value, str)) or value != free[name]:
            _between(model, name, least, most, remedy)
    if not model.min_probability > 0.0:
        raise DeclarationError(
            "min_probability=0 lets a probability be zero",
            "one row in an unseen combination would have no density in any component",
            "give e.g. 1e-6",
        )
    if model.time_limit is not None and not (_real(model.time_limit) and model.time_limit > 0):
        raise DeclarationError(
            f"time_limit={model.time_limit!r} is not a positive number",
            remedy="give seconds, or None for no limit",
        )
    for name in ("batch_size", "delta_rows", "learn_rows"):
        rows_of(getattr(model, name), 10, name)
    if model.fairness != "constraint" and model.rules is not None:
        raise DeclarationError(
            "rules= needs the fair E-step",
            f"fairness is {model.fairness!r}",
            'give fairness="constraint"',
        )
    _check_parity(model)
    check_seed(model.random_state, "random_state")
    check_level(model.verbose, "verbose")


def _check_parity(model: Any) -> None:
    """Raise where an option of the paper's code meets a fit that has no use for it."""
    asked = {
        f"size_penalty={model.size_penalty:g}": model.size_penalty > 0.0,
        f"keep={model.keep!r}": model.keep != "last",
    }
    for what, given in asked.items():
        if given and model.fairness != "penalty":
            raise DeclarationError(
                f"{what} needs the penalty",
                f"fairness is {model.fairness!r}",
                'give fairness="penalty"; with a constraint, rules=of.cluster_share(lower=...)'
                " keeps clusters large",
            )
    if model.keep != "last" and model.batch_size is not None:
        raise DeclarationError(
            f"keep={model.keep!r} and batch_size exclude each other",
            "the labels of an iterate are those of all rows, and a batch has a few",
            'give batch_size=None, or keep="last"',
        )
    if model.start == "soft" and isinstance(model.init, Components):
        raise DeclarationError(
            'start="soft" and components as init exclude each other',
            "both say what variances, weights and probabilities the fit starts from",
            'give means or a name as init, or start="estimated"',
        )


def rows_of(value: Any, rows: int, name: str) -> int | None:
    """Return a number of rows from a number, a share of them, or None.

    Parameters
    ----------
    value : int, float in (0, 1], or None
        What was given.
    rows : int
        Number of rows there are.
    name : str
        Of the parameter.
    """
    if value is None:
        return None
    if whole(value) and int(value) >= 1:
        return min(int(value), rows)
    if _real(value) and not whole(value) and 0.0 < float(value) <= 1.0:
        return max(1, round(float(value) * rows))
    raise DeclarationError(
        f"{name}={value!r} is no number of rows",
        remedy="give a positive integer, a share in (0, 1], or None for all rows",
    )


def _whole(model: Any, name: str) -> None:
    value = getattr(model, name)
    if not whole(value) or value < 1:
        why = no_number(value)
        raise DeclarationError(f"{name}={value!r} is not a positive integer", why, _other(name))


def _other(name: str) -> str:
    others = {"n_init": 'give one, or "auto"', "n_jobs": "give one, -1 for all cores, or None"}
    return others.get(name, "give one, such as 5")


def _between(model: Any, name: str, least: float, most: float, remedy: str) -> None:
    value = getattr(model, name)
    if not _real(value) or not least <= float(value) <= most:
        range_ = f"from {least:g} to {most:g}" if np.isfinite(most) else f"of at least {least:g}"
        raise DeclarationError(f"{name}={value!r} is not a number {range_}", remedy=remedy)


def _real(value: Any) -> bool:
    return abs(real(value)) <= LARGEST


# Components that a fit starts from.

# Rows that the k-means of a start runs on.
SAMPLED = 50_000
# Factor on the deviations that a penalised fit starts from: tight components die under λ.
SOFTER = 4.0
# Weight that other components get in a start with categories: no probability starts at zero.
SOFT = 0.1


def check_start(init: Any, clusters: int, columns: int) -> str | Floats | Components:
    """Return a way to start, means, or components.

    Raises
    ------
    DeclarationError, DataError
        An unknown name, means of another shape.
    """
    if isinstance(init, str):
        if init not in INITS:
            raise DeclarationError(f"unknown init {init!r}", remedy=nearest(init, INITS))
        return init
    if isinstance(init, Components):
        if init.clusters != clusters or init.means.shape[1] != columns:
            raise DataError(
                "init does not fit",
                f"{init.clusters} components in {init.means.shape[1]} numeric columns,"
                f" for n_components={clusters} and {columns} columns",
                "give components of a fit on the same columns",
            )
        return init
    means = check_matrix(init, "init")
    if means.shape != (clusters, columns):
        raise DataError(
            f"init has shape {means.shape}",
            f"n_components={clusters}, and the rows have {columns} numeric columns",
            "give one row of means per component",
        )
    return means


def empty_components(
    sample: Sample, clusters: int, shape: str, floor: float, offsets: NDArray[np.intp], least: float
) -> Components:
    """Return equal components that carry shape, floors and origin; see `first_components`."""
    X = sample.rows.numeric
    d = X.shape[1]
    gaussians = None
    if d:
        origin = sample.weights @ X
        scale = {
            "shared": np.ones(()),
            "spherical": np.ones(clusters),
            "diag": np.ones((clusters, d)),
            "tied": np.eye(d),
            "full": np.tile(np.eye(d), (clusters, 1, 1)),
        }[shape]
        gaussians = Gaussians(shape, np.zeros((clusters, d)), scale, origin, floor)
    multinoullis = None
    if offsets.size > 1:
        even = np.concatenate([np.full(n, 1.0 / n) for n in np.diff(offsets)])
        multinoullis = Multinoullis(np.tile(even, (clusters, 1)), offsets, least)
    return Components(np.full(clusters, 1.0 / clusters), gaussians, multinoullis)


def first_components(
    sample: Sample,
    empty: Components,
    init: str | Floats | Components,
    *,
    scale: float,
    seed: int,
    soft: bool = False,
) -> Components:
    """Return the components of a start.

    Rows get the cluster of the nearest start center, numeric columns as they are; with
    categorical columns, numeric ones standardised beside indicators. Components are estimated
    from these clusters.

    Parameters
    ----------
    sample : Sample
        Rows.
    empty : Components
        Shape, floors and origin.
    init : str, means (K, d) or Components
        As checked.
    scale : float
        Factor on the estimated standard deviations; larger ones start softer.
    seed : int
        Seed of the draw.
    soft : bool
        Only the means are those of the clusters: variances are 1, and probabilities of
        categories the softmax of uniform numbers, as the paper starts.
    """
    if isinstance(init, Components):
        return init
    rng = np.random.default_rng(seed)
    few = sample.drawn(rng, SAMPLED)
    K = empty.clusters
    if isinstance(init, str):
        features = _features(few, empty)
        check_distinct(features[few.weights > 0], K, "n_components")
        centers = starting_centers(
            features, few.weights, K, init=init, metric="sqeuclidean", seed=seed
        )
    else:
        features, centers = few.rows.numeric, init
    far = (centers**2).sum(axis=1) - 2.0 * features @ centers.T
    R = np.zeros((few.count, K))
    R[np.arange(few.count), far.argmin(axis=1)] = 1.0
    if empty.multinoullis is not None:
        R = (1.0 - SOFT) * R + SOFT / K
    components = empty.estimated(few.statistics(empty, R))
    # even weights, as the paper starts; a center that no row is near stays where it was
    components = components.with_weights(np.full(K, 1.0 / K))
    g, m = components.gaussians, components.multinoullis
    if g is not None:
        if not isinstance(init, str):
            g = g.at(centers)
        g = g.scaled(scale)
    if soft:
        if g is not None and empty.gaussians is not None:
            g = replace(g, scale=empty.gaussians.scale * max(1.0, g.floor**0.5))
        if m is not None:
            p = m.probabilities
            m = m.moved(rng.random(p.shape) - np.log(p))
    return Components(components.weights, g, m)


def _features(sample: Sample, empty: Components) -> Floats:
    """Return what k-means starts on."""
    X = sample.rows.numeric
    m = empty.multinoullis
    if m is None:
        return X
    w = sample.weights
    if X.shape[1]:
        middle = w @ X
        spread = np.sqrt(w @ (X - middle) ** 2)
        X = (X - middle) / np.where(spread > 0.0, spread, 1.0)
    flags = np.zeros((sample.count, int(m.offsets[-1])))
    for j, start in enumerate(m.offsets[:-1]):
        known = sample.rows.codes[:, j] >= 0
        flags[known, start + sample.rows.codes[known, j]] = np.sqrt(0.5)
    return np.hstack([X, flags])


# What the parameters of a `FairMixture` say about its rules and components.


def empty_of(model: Any, sample: Sample, columns: Columns) -> Components:
    """Return equal components that carry shape, floors and origin.

    Parameters
    ----------
    model : FairMixture
        Its parameters.
    sample : Sample
        Rows, for the origin.
    columns : Columns
        Which are categories.
    """
    return empty_components(
        sample,
        model.n_components,
        model.covariance_type,
        _least_variance(model, sample),
        columns.offsets,
        model.min_probability,
    )


def rules_of(model: Any) -> dict[str, Any]:
    """Return the rules by name; without a constraint, those of fair labels: perfect fairness."""
    return named_rules(model.eps if model.fairness == "constraint" else 0.0, model.rules)


def program_of(model: Any, data: Intake) -> MassProgram | None:
    """Return the rules as the program that projections read, None without a constraint."""
    if model.fairness != "constraint":
        return None
    return mass_program(data.names, data.sample.shares, model.n_components, rules_of(model))


def penalty_of(model: Any, groups: int) -> Penalty | None:
    """Return the penalty on fractions of groups, None where there is none."""
    if model.fairness != "penalty" or not (model.lam or model.size_penalty):
        return None
    return Penalty(Gaps(groups), float(model.lam), float(model.size_penalty))


def start_scale(model: Any) -> float:
    """Return the factor on the standard deviations that a fit starts from."""
    return SOFTER if model.fairness == "penalty" and model.lam > 0.0 else 1.0


# Share of the variance of the rows that a component's is at least, by default.
LEAST = 1e-6


def _least_variance(model: Any, sample: Sample) -> float:
    """Return the least variance in any direction, by default that share of the least column's."""
    if not isinstance(model.reg_covar, str):
        return float(model.reg_covar)
    X = sample.rows.numeric
    variances = sample.weights @ (X - sample.weights @ X) ** 2
    return LEAST * float(variances[variances > 0.0].min()) if variances.any() else LEAST
