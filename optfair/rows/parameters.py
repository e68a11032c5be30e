"""Parameters of FairKMeans, checked before anything is computed."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from optfair.errors import DeclarationError, nearest

__all__ = ["check_parameters", "generator", "start_seeds"]

KNOWN = {
    "algorithm": ("exact", "paper"),
    "coupling": ("network-simplex", "sinkhorn"),
    "metric": ("sqeuclidean", "l1"),
}
# Starts by default, where centers are not given.
STARTS = 10


def check_parameters(model: Any) -> None:
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
    for name in ("n_clusters", "max_iter", "partition_size"):
        if not _whole(getattr(model, name)) or getattr(model, name) < 1:
            raise DeclarationError(
                f"{name}={getattr(model, name)!r} is not a positive integer", remedy="correct"
            )
    if model.n_init != "auto" and (not _whole(model.n_init) or model.n_init < 1):
        raise DeclarationError(
            f"n_init={model.n_init!r} is not a positive integer", remedy='give one, or "auto"'
        )
    if model.n_jobs is not None and (
        not _whole(model.n_jobs) or (model.n_jobs < 1 and model.n_jobs != -1)
    ):
        raise DeclarationError(
            f"n_jobs={model.n_jobs!r} is neither a positive integer nor -1", remedy="correct"
        )
    if not _real(model.tol) or not 0 <= model.tol < 1:
        raise DeclarationError(f"tol={model.tol!r} is outside [0, 1)", remedy="give e.g. 1e-6")
    for name in ("time_limit", "regularization"):
        value = getattr(model, name)
        if (name == "regularization" or value is not None) and not (_real(value) and value > 0):
            raise DeclarationError(f"{name}={value!r} is not a positive number", remedy="correct")
    if model.verbose not in (0, 1, 2):
        raise DeclarationError(f"verbose={model.verbose!r} is not 0, 1 or 2", remedy="correct")


def _whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, numbers.Real) and bool(np.isfinite(float(value)))


def start_seeds(random_state: Any, n_init: Any, *, given: bool) -> list[int]:
    """Return one seed per start; given centers need one start only.

    Parameters
    ----------
    random_state : int, Generator, RandomState or None
        Where seeds come from.
    n_init : int or "auto"
        Starts.
    given : bool
        Whether the centers are given.
    """
    count = 1 if given else (STARTS if n_init == "auto" else int(n_init))
    if isinstance(random_state, np.random.RandomState):
        return [int(s) for s in random_state.randint(2**31 - 1, size=count)]
    children = generator(random_state).spawn(count)
    return [int(child.integers(2**31 - 1)) for child in children]


def generator(random_state: Any) -> np.random.Generator:
    """Return a generator of random numbers.

    Parameters
    ----------
    random_state : int, Generator, RandomState or None
        Where its seed comes from.

    Raises
    ------
    DeclarationError
        Nothing that seeds a generator.
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(int(random_state.randint(2**31 - 1)))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as e:
        raise DeclarationError(
            f"random_state={random_state!r} seeds nothing", str(e), "give an integer from 0 on"
        ) from None
