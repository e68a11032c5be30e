"""Entropic transport: an approximation of the Kantorovich problem, never a solution of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, DeclarationError, SolverFailure
from optfair.numbers import real

Floats = NDArray[np.float64]

# Error of the column marginal (summed, total mass 1) at which the steps stop, and the largest
# that is returned.
SMALL, LARGEST = 1e-6, 1e-2
# λ is lowered by this factor from the size of the cost, with so many steps at each value; at the
# last one so many times the steps asked for are run where the error is still too large.
FACTOR, STEPS, MORE = 4.0, 100, 10
# Size of a scaling factor at which it is taken into the potentials.
TINY = 1e-50


def check_regularization(regularization: float) -> float:
    """Return λ, or say that it is not a positive number.

    Raises
    ------
    DeclarationError
    """
    value = real(regularization)
    if not 0.0 < value <= 1e15:
        raise DeclarationError(
            f"regularization={regularization!r} is not a positive number",
            remedy="give e.g. 0.01, in units of the cost",
        )
    return value


def entropic_plan(cost: Floats, regularization: float, *, max_iter: int = 1_000) -> Floats:
    r"""Return the plan of entropic transport between uniform marginals.

    .. math:: \min_\Gamma\; \langle C, \Gamma\rangle + \lambda \textstyle\sum_{ij}
              \Gamma_{ij} (\log \Gamma_{ij} - 1)
              \quad\text{s.t.}\quad \Gamma 1 = 1/n_0,\; \Gamma^T 1 = 1/n_1

    An approximation of the problem with λ = 0: every pair gets some mass. The row marginal
    holds exactly, the column marginal up to an error (summed over columns) of 1e-6, or of what
    ``max_iter`` steps reach, at most 1e-2. Where λ is small beside the cost it is lowered to its
    value step by step, and more steps are run.

    Parameters
    ----------
    cost : array (n0, n1)
        Cost matrix C.
    regularization : float
        λ > 0, in units of the cost.
    max_iter : int
        Largest number of Sinkhorn steps at this λ; ten times as many where the error is above
        1e-2.

    Returns
    -------
    array (n0, n1)

    Raises
    ------
    DeclarationError
        λ that is not positive.
    DataError
        A cost that is not finite.
    SolverFailure
        An error of the column marginal above 1e-2: such a plan does not couple the groups.

    Examples
    --------
    >>> import numpy as np
    >>> entropic_plan(np.array([[0.0, 1.0], [1.0, 0.0]]), 0.1).round(3)
    array([[0.5, 0. ],
           [0. , 0.5]])

    References
    ----------
    Cuturi: Sinkhorn Distances, NIPS 2013.
    """
    strength = check_regularization(regularization)
    if not np.isfinite(cost).all():
        raise DataError("the cost has entries that are not finite", remedy="rescale the rows")
    # a shift of rows and columns changes no plan, and no row or column then underflows at once
    shifted = cost - cost.min(axis=1, keepdims=True)
    shifted = shifted - shifted.min(axis=0)
    plan = _coupled(shifted, strength, max_iter)
    error = column_error(plan)
    if not error <= LARGEST:
        raise SolverFailure(
            f"Sinkhorn did not converge at regularization={strength:g}",
            f"{error:.2%} of the mass is in the wrong columns of the coupling; the mean cost is"
            f" {cost.mean():.3g}",
            "give a larger regularization, e.g. 0.01 of the mean cost, or"
            ' coupling="network-simplex", which is exact',
        )
    return plan


def column_error(plan: Floats) -> float:
    """Return the error of a plan's column marginal, summed; the plan has mass 1."""
    return float(np.abs(plan.sum(axis=0) - 1.0 / plan.shape[1]).sum())


def _coupled(cost: Floats, regularization: float, max_iter: int) -> Floats:
    """Run Sinkhorn's steps from λ near the size of the cost down to the one asked for."""
    potentials = np.zeros(cost.shape[0]), np.zeros(cost.shape[1])
    values = [regularization]
    while values[-1] * FACTOR < cost.max():
        values.append(values[-1] * FACTOR)
    # not POT's: it reports underflow by a warning, which only filters of the process silence
    with np.errstate(all="ignore"):
        for value in values[:0:-1]:
            potentials = _stepped(cost, potentials, value, STEPS, STEPS)
        f, g = _stepped(cost, potentials, regularization, max_iter, MORE * max_iter)
        plan = _kernel(cost, f, g, regularization)
        return np.asarray(plan * (1.0 / (plan.shape[0] * plan.sum(axis=1)))[:, None])


def _stepped(
    cost: Floats, potentials: tuple[Floats, Floats], value: float, few: int, many: int
) -> tuple[Floats, Floats]:
    """Step until the column marginal holds: to ``SMALL``, after ``few`` steps to ``LARGEST``."""
    n0, n1 = cost.shape
    (f, g), u, v = potentials, np.ones(n0), np.ones(n1)
    kernel = _kernel(cost, f, g, value)
    for step in range(many):
        columns = kernel.T @ u
        if step % 10 == 9:
            error = np.abs(v * columns - 1.0 / n1).sum()
            if not error > (SMALL if step < few else LARGEST / 2):  # also when not a number
                break
        v = 1.0 / (n1 * columns)
        u = 1.0 / (n0 * (kernel @ v))
        sizes = u.min(), v.min(), 1.0 / u.max(), 1.0 / v.max()
        if min(sizes) < TINY:  # take the factors into the potentials before they underflow
            f, g, u, v = f + value * np.log(u), g + value * np.log(v), np.ones(n0), np.ones(n1)
            kernel = _kernel(cost, f, g, value)
    return f + value * np.log(u), g + value * np.log(v)


def _kernel(cost: Floats, f: Floats, g: Floats, value: float) -> Floats:
    return np.asarray(np.exp((f[:, None] + g - cost) / value))
