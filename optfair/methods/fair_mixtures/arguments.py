"""Log densities of a Gaussian mixture on rows of a data set, from a [data] table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.arguments import assignment_arguments, bound_arguments

__all__ = ["bound_arguments", "mixture_arguments"]


def mixture_arguments(data: Mapping[str, Any]) -> dict[str, Any]:
    r"""Return the arguments of `FairResponsibilities`.

    With ``dataset``, rows and groups are read as for `FairAssignment`, and ``log_prob`` are

    .. math:: \log\alpha_k - \tfrac\tau2 \|x_i - \mu_k\|^2

    with μ = ``centers``, τ = ``precision`` and α = ``component_weights``, equal by default.
    Any other entry is an argument as it stands.

    Examples
    --------
    >>> sorted(mixture_arguments({"log_prob": [[0.0, 1.0]], "groups": ["a"]}))
    ['groups', 'log_prob']
    """
    arguments = assignment_arguments(data)
    if "dataset" not in data:
        return arguments
    if "precision" not in arguments:
        raise DeclarationError(
            "[data] names a dataset but no precision", remedy="add precision, which is 1/σ²"
        )
    X, centers = arguments.pop("X"), arguments.pop("centers")
    precision = float(arguments.pop("precision"))
    K = len(centers)
    alpha = np.asarray(arguments.pop("component_weights", np.full(K, 1.0 / K)), dtype=float)
    if not (precision > 0.0 and np.isfinite(precision)):
        raise DataError(f"precision = {precision} in [data]", remedy="give a positive number")
    if alpha.shape != (K,) or not (alpha > 0.0).all():
        raise DataError(
            f"component_weights in [data] do not fit {K} centers",
            remedy="give a positive weight for each center",
        )
    squares = ((X[:, None, :] - np.asarray(centers)) ** 2).sum(axis=2)
    return arguments | {"log_prob": np.log(alpha / alpha.sum()) - 0.5 * precision * squares}
