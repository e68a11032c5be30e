"""Divergences of many lines of outputs from one target, as along a growing budget of edits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError, nearest

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

__all__ = [
    "DIVERGENCES",
    "kernel_bandwidth",
    "mmd_of_changes",
    "mmd_of_lines",
    "path_divergences",
]

DIVERGENCES = ("ot", "mmd", "mean", "median")
# Entries of a temporary array.
CHUNK = 4_000_000
# Squared discrepancies below this are sums of kernels that cancel: measured as a whole.
CANCELLED = 1e-9


def path_divergences(
    outputs: Floats, target: Floats, divergence: str, bandwidth: float | None = None
) -> Floats:
    """Return the divergence of each line of outputs (c, n) from the target (m,).

    Parameters
    ----------
    outputs, target : arrays (c, n), (m,)
        Lines of outputs, and what they must be.
    divergence : {"ot", "mmd", "mean", "median"}
        Which.
    bandwidth : float, optional
        Of "mmd"; that of the first line and the target by default.

    Raises
    ------
    DeclarationError
        An unknown name.
    """
    if divergence not in DIVERGENCES:
        raise DeclarationError(
            f"unknown divergence {divergence!r}", remedy=nearest(str(divergence), DIVERGENCES)
        )
    if divergence == "mean":
        return np.asarray(np.abs(outputs.mean(axis=1) - target.mean()))
    if divergence == "median":
        return np.asarray(np.abs(np.median(outputs, axis=1) - np.median(target)))
    if divergence == "mmd":
        together = np.concatenate([outputs[0], target])
        h = kernel_bandwidth(together) if bandwidth is None else bandwidth
        return mmd_of_lines(outputs, target, h)
    n, m = outputs.shape[1], target.size
    # both quantile functions are constant between the multiples of 1/n and of 1/m, counted
    # here in units of 1/(nm)
    steps = np.union1d(np.arange(n + 1) * m, np.arange(m + 1) * n)
    own, other = steps[:-1] // m, steps[:-1] // n
    apart = np.abs(np.sort(outputs, axis=1)[:, own] - np.sort(target)[other])
    return np.asarray(apart @ (np.diff(steps) / (n * m)))


def mmd_of_lines(outputs: Floats, target: Floats, bandwidth: float) -> Floats:
    """Return the maximum mean discrepancy of each line (c, n) from the target (m,)."""
    among = float(_kernel(target[:, None], target, bandwidth).mean())
    found = np.empty(outputs.shape[0])
    n = outputs.shape[1]
    step = max(1, CHUNK // (n * max(n, target.size)))
    for at in range(0, outputs.shape[0], step):
        part = outputs[at : at + step, :, None]
        own = _kernel(part, outputs[at : at + step, None, :], bandwidth).mean(axis=(1, 2))
        found[at : at + step] = own - 2.0 * _kernel(part, target, bandwidth).mean(axis=(1, 2))
    return _root(found + among)


def mmd_of_changes(lines: Floats, places: Indices, target: Floats, bandwidth: float) -> Floats:
    """Return the discrepancy of each line from the target where one output changes at a time.

    With sums of kernels that follow the changes a line costs n kernels, not n².

    Parameters
    ----------
    lines : array (c + 1, n)
        Outputs; line t + 1 is line t with another output in ``places[t]``.
    places : int array (c,)
        Where.
    target : array (m,)
        y*.
    bandwidth : float
        h.

    Returns
    -------
    array (c + 1,)

    Examples
    --------
    >>> lines = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> mmd_of_changes(lines, np.array([1, 0]), np.array([1.0]), 1.0).round(4).tolist()
    [0.8871, 0.4435, 0.0]
    """
    (n, m), at = (lines.shape[1], target.size), np.arange(places.size)
    old, new, others = lines[at, places][:, None], lines[at + 1, places][:, None], lines[:-1]
    # the changed output is one of the others in both sums: it is taken out
    gain = _kernel(new, others, bandwidth).sum(axis=1) - _kernel(new, old, bandwidth)[:, 0]
    loss = _kernel(old, others, bandwidth).sum(axis=1) - 1.0
    drift = _kernel(new, target, bandwidth) - _kernel(old, target, bandwidth)
    first = lines[0][:, None]
    own = np.append(_kernel(first, lines[0], bandwidth).sum(), 2.0 * (gain - loss)).cumsum()
    cross = np.append(_kernel(first, target, bandwidth).sum(), drift.sum(axis=1)).cumsum()
    among = float(_kernel(target[:, None], target, bandwidth).mean())
    squared = own / n**2 - 2.0 * cross / (n * m) + among
    found = _root(squared)
    near = squared < CANCELLED
    found[near] = mmd_of_lines(lines[near], target, bandwidth)
    return found


def kernel_bandwidth(values: Floats) -> float:
    """Return the median distance between different values, 1 where all are equal."""
    from scipy.spatial.distance import pdist

    apart = pdist(values[:, None])
    apart = apart[apart > 0]
    return float(np.median(apart)) if apart.size else 1.0


def _kernel(u: Floats, y: Floats, bandwidth: float) -> Floats:
    return np.asarray(np.exp(-0.5 * ((u - y) / bandwidth) ** 2))


def _root(squared: Floats) -> Floats:
    # rounding of kernels that cancel
    return np.asarray(np.sqrt(np.where(squared > 1e-14, squared, 0.0)))
