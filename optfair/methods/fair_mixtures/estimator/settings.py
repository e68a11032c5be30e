"""Parameters of FairMixture, checked before anything is computed."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from optfair.errors import DeclarationError, nearest
from optfair.methods.fair_mixtures.estimator.gaussians import SHAPES

__all__ = ["check_settings", "rows_of"]

KNOWN = {
    "covariance_type": SHAPES,
    "algorithm": ("em", "gradient"),
    "label_rule": ("argmax", "fair"),
}
FAIRNESS = ("constraint", "penalty")
RANGES = {
    "lam": (0.0, np.inf, "0 is no penalty, and larger is fairer; give e.g. 10"),
    "eps": (0.0, 2.0, "0 is perfect fairness, None leaves rules= alone; give e.g. 0.02"),
    "reg_covar": (0.0, np.inf, "a least variance; give e.g. 1e-6"),
    "tol": (0.0, 1.0, "a share of the objective; give e.g. 1e-6"),
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
        value = getattr(model, name)
        if not isinstance(value, str) or value not in known:
            raise DeclarationError(f"unknown {name} {value!r}", remedy=nearest(str(value), known))
    if model.fairness is not None and model.fairness not in FAIRNESS:
        raise DeclarationError(
            f"unknown fairness {model.fairness!r}",
            remedy='give "constraint", "penalty" or None; rules on masses go in rules=',
        )
    for name in ("n_components", "max_iter", "inner_steps"):
        _whole(model, name)
    if model.n_init != "auto":
        _whole(model, "n_init")
    if model.n_jobs is not None and model.n_jobs != -1:
        _whole(model, "n_jobs")
    for name, (least, most, remedy) in RANGES.items():
        if name != "eps" or model.eps is not None:
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
    if model.verbose not in (0, 1, 2):
        raise DeclarationError(f"verbose={model.verbose!r} is not 0, 1 or 2", remedy="0 is silent")


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
    if _integer(value) and int(value) >= 1:
        return min(int(value), rows)
    if _real(value) and not _integer(value) and 0.0 < float(value) <= 1.0:
        return max(1, round(float(value) * rows))
    raise DeclarationError(
        f"{name}={value!r} is no number of rows",
        remedy="give a positive integer, a share in (0, 1], or None for all rows",
    )


def _whole(model: Any, name: str) -> None:
    value = getattr(model, name)
    if not _integer(value) or value < 1:
        raise DeclarationError(f"{name}={value!r} is not a positive integer", remedy=_other(name))


def _other(name: str) -> str:
    others = {"n_init": 'give one, or "auto"', "n_jobs": "give one, -1 for all cores, or None"}
    return others.get(name, "give one, such as 5")


def _between(model: Any, name: str, least: float, most: float, remedy: str) -> None:
    value = getattr(model, name)
    if not _real(value) or not least <= float(value) <= most:
        range_ = f"from {least:g} to {most:g}" if np.isfinite(most) else f"of at least {least:g}"
        raise DeclarationError(f"{name}={value!r} is not a number {range_}", remedy=remedy)


def _integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not _flag(value)


def _real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not _flag(value) and bool(np.isfinite(float(value)))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)
