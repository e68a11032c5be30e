r"""How far refined counterfactuals are from the outputs they must have, and what they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError
from optfair.methods.sparse_counterfactuals.tables import Cells
from optfair.numbers import (
    LARGEST,
    Flags,
    Floats,
    Indices,
    check_choice,
    check_matrix,
    check_table,
    check_text,
    check_vector,
    checked,
    floats,
    real,
)
from optfair.rows.frames import in_one_order

# Divergences of many lines of outputs from one target, as along a growing budget of edits.

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
    check_choice(divergence, "divergence", DIVERGENCES)
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
    distances = np.empty(outputs.shape[0])
    n = outputs.shape[1]
    step = max(1, CHUNK // (n * max(n, target.size)))
    for at in range(0, outputs.shape[0], step):
        part = outputs[at : at + step, :, None]
        own = _kernel(part, outputs[at : at + step, None, :], bandwidth).mean(axis=(1, 2))
        distances[at : at + step] = own - 2.0 * _kernel(part, target, bandwidth).mean(axis=(1, 2))
    return _root(distances + among)


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
    distances = _root(squared)
    near = squared < CANCELLED
    distances[near] = mmd_of_lines(lines[near], target, bandwidth)
    return distances


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


# How far refined counterfactuals are from the outputs they must have, and what they change.
#
# Notation: outputs :math:`u_i = f(z_i)` of n rows and the m outputs :math:`y^*_j` to have. The
# divergences compare the two sets of numbers, not row by row:
#
# .. math::
#     \mathrm{OT} = \int_0^1 |F_u^{-1}(t) - F_{y^*}^{-1}(t)|\, dt, \qquad
#     \mathrm{MMD}^2 = \overline{k(u, u')} - 2\,\overline{k(u, y)} + \overline{k(y, y')}, \\
#     \mathrm{MeanD} = |\bar u - \bar y^*|, \qquad
#     \mathrm{MedianD} = |\operatorname{med} u - \operatorname{med} y^*| .


def output_transport(outputs: Any, target: Any) -> float:
    r"""Return the optimal transport cost between outputs, with the cost \|u − y\|.

    .. math:: W_1(u, y^*) = \int_0^1 |F_u^{-1}(t) - F_{y^*}^{-1}(t)|\, dt

    On a line the quantiles are coupled, so nothing has to be solved.

    Parameters
    ----------
    outputs, target : array-like (n,), (m,)
        Outputs and what they must be; a single number is a target for all.

    Returns
    -------
    float
        In units of the outputs.

    Raises
    ------
    DataError
        Entries that are no finite numbers.

    Examples
    --------
    >>> output_transport([0.0, 1.0], [1.0, 1.0, 1.0])
    0.5

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, Theorem 4.1 and Section 6.
    """
    return output_divergence(outputs, target, "ot")


def output_mmd(outputs: Any, target: Any, *, bandwidth: float | None = None) -> float:
    r"""Return the maximum mean discrepancy between outputs under a Gaussian kernel.

    .. math:: k(u, y) = \exp(-(u - y)^2 / (2 h^2))

    The square root of the biased estimate, which is 0 for equal samples and never negative.

    Parameters
    ----------
    outputs, target : array-like (n,), (m,)
        Outputs and what they must be.
    bandwidth : float, optional
        h; by default the median distance between different outputs and targets together, 1
        where all are equal.

    Raises
    ------
    DataError, DeclarationError
        Entries that are no finite numbers; a bandwidth that is not positive.

    Examples
    --------
    >>> output_mmd([0.2, 0.4], [0.4, 0.2]), round(output_mmd([0.0], [1.0], bandwidth=1.0), 4)
    (0.0, 0.8871)
    """
    u, y = _outputs(outputs, "outputs"), _outputs(target, "target")
    h = kernel_bandwidth(np.concatenate([u, y])) if bandwidth is None else real(bandwidth)
    if not 0.0 < h <= LARGEST:
        raise DeclarationError(
            f"bandwidth={bandwidth!r} is not a positive number", remedy="give one"
        )
    return float(mmd_of_lines(u[None, :], y, h)[0])


def mean_difference(outputs: Any, target: Any) -> float:
    r"""Return \|mean u − mean y*\|.

    Examples
    --------
    >>> mean_difference([0.0, 1.0], [1.0])
    0.5
    """
    return output_divergence(outputs, target, "mean")


def median_difference(outputs: Any, target: Any) -> float:
    r"""Return \|median u − median y*\|.

    Examples
    --------
    >>> median_difference([0.0, 0.0, 1.0], [1.0])
    1.0
    """
    return output_divergence(outputs, target, "median")


def output_divergence(outputs: Any, target: Any, divergence: str = "ot") -> float:
    """Return one of the divergences by name.

    Parameters
    ----------
    outputs, target : array-like (n,), (m,)
        Outputs and what they must be.
    divergence : {"ot", "mmd", "mean", "median"}
        Which.

    Raises
    ------
    DataError, DeclarationError
        Entries that are no finite numbers; an unknown name.
    """
    u, y = _outputs(outputs, "outputs"), _outputs(target, "target")
    return float(path_divergences(u[None, :], y, divergence)[0])


@checked(divergence=check_text)
def counterfactual_effect(
    outputs: Any, factual: Any, target: Any, *, divergence: str = "ot"
) -> float:
    r"""Return the share of the divergence to the target that an edit removed.

    .. math:: 1 - D(f(z), y^*) / D(f(x), y^*)

    Parameters
    ----------
    outputs, factual, target : array-like (n,), (n,), (m,)
        Outputs of the refined rows, of the rows as they were, and what they must be.
    divergence : {"ot", "mmd", "mean", "median"}
        D.

    Returns
    -------
    float
        1 where the target is met, 0 for no effect, negative where it got worse.

    Raises
    ------
    DataError
        The factual outputs are at the target already: no share of nothing is defined.

    Examples
    --------
    >>> counterfactual_effect([0, 1, 1, 1], [0, 0, 0, 0], [1.0])
    0.75

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, footnote of Section 6, Result I.
    """
    return effect_from(factual, target, divergence)(_outputs(outputs, "outputs"))


def effect_from(factual: Any, target: Any, divergence: str) -> Callable[[Floats], float]:
    """Return the counterfactual effect as a function of the outputs, prepared for many of them.

    "mmd" has the bandwidth of the factual outputs and the target, whatever the edits.

    Parameters
    ----------
    factual, target : array-like (n,), (m,)
        Outputs of the rows as they were, and what they must be.
    divergence : {"ot", "mmd", "mean", "median"}
        D.

    Raises
    ------
    DataError
        The factual outputs are at the target already.
    """
    u, y = _outputs(factual, "factual"), _outputs(target, "target")
    h = kernel_bandwidth(np.concatenate([u, y])) if divergence == "mmd" else None
    before = float(path_divergences(u[None, :], y, divergence, h)[0])
    if not before > 0.0:
        raise DataError(
            "the factual outputs are at the target",
            "an effect is a share of their divergence from it, which is 0",
            "nothing has to be edited; measure the divergence instead",
        )
    return lambda outputs: (
        1.0 - float(path_divergences(outputs[None, :], y, divergence, h)[0]) / before
    )


@checked(factuals=check_table, refined=check_table)
@in_one_order("factuals", "refined")
def edit_mask(factuals: Any, refined: Any) -> Flags:
    """Return which cells of refined rows differ from the factual ones (n, d).

    Parameters
    ----------
    factuals, refined : arrays or data frames (n, d)
        Rows before and after, in the same order.

    Raises
    ------
    DataError
        Shapes or columns that do not fit, missing entries.

    Examples
    --------
    >>> edit_mask([[1.0, 2.0], [3.0, 4.0]], [[1.0, 5.0], [3.0, 4.0]]).sum()
    np.int64(1)
    """
    return Cells.of(factuals, refined).differ


@in_one_order("factuals", "refined")
def distance_ratio(factuals: Any, refined: Any, counterfactuals: Any) -> float:
    r"""Return how far refined rows are, as a share of the way to the counterfactuals.

    .. math:: \|z - x\|_F / \|r - x\|_F

    The ratios printed next to the edits in Table 3 of the paper are quotients of numbers of
    edits: 3.13 / 44.9 % and 1.70 / 24.3 % are the same 7.0 edits per row.

    Parameters
    ----------
    factuals, refined, counterfactuals : array-like (n, d)
        Numbers in comparable units, aligned row by row.

    Raises
    ------
    DataError
        Shapes that do not fit, entries that are no finite numbers, counterfactuals equal to
        the factuals.

    Examples
    --------
    >>> distance_ratio([[0.0, 0.0]], [[0.0, 3.0]], [[4.0, 3.0]])
    0.6

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, Table 3.
    """
    x, z, r = (
        check_matrix(rows, what)
        for rows, what in (
            (factuals, "factuals"),
            (refined, "refined"),
            (counterfactuals, "counterfactuals"),
        )
    )
    if not x.shape == z.shape == r.shape:
        raise DataError(
            "the rows do not fit",
            f"shapes {x.shape}, {z.shape} and {r.shape}",
            "give them aligned row by row, with the same features",
        )
    whole = float(np.linalg.norm(r - x))
    if whole == 0.0:
        raise DataError("the counterfactuals are the factuals", remedy="nothing has to be edited")
    return float(np.linalg.norm(z - x)) / whole


def _outputs(values: Any, what: str) -> Floats:
    return check_vector(np.atleast_1d(floats(values, what)), what)
