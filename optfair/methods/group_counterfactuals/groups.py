"""Groups of similar rows, around medoids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, NotInstalled
from optfair.numbers import check_count, check_labels, check_matrix, check_seed, checked

Indices = NDArray[np.intp]

__all__ = ["MedoidGroup", "medoid_groups"]

# The search keeps the distances of all pairs: 5,000 rows take 200 MB.
MOST_ROWS = 5_000


@dataclass(frozen=True, eq=False)
class MedoidGroup:
    """Rows around a medoid.

    Attributes
    ----------
    label : object
        Label that all members share; None without labels.
    medoid : int
        Row of the medoid.
    members : array (m,) of int
        Rows of the members, ascending.
    size : int
        Rows of the cluster, before it was cut or filled up.
    """

    label: Any
    medoid: int
    members: Indices
    size: int


@checked(n_groups=check_count, min_size=check_count, max_size=check_count, random_state=check_seed)
def medoid_groups(
    X: Any,
    *,
    labels: Any = None,
    n_groups: int = 10,
    min_size: int = 20,
    max_size: int | None = 200,
    random_state: Any = None,
) -> tuple[MedoidGroup, ...]:
    r"""Return clusters of each label around their medoids, of at least and at most some size.

    .. math:: \min_{M \subseteq X_c,\ |M| = k} \sum_{i \in X_c} \min_{m \in M} \|x_i - m\|

    A heuristic: FasterPAM ends where no exchange of a medoid for another row helps. Beyond
    5,000 rows of a label the medoids are those of 5,000 drawn ones, and every row goes to the
    nearest. A cluster that is too large is cut to rows drawn from it; one that is too small is
    filled up with the nearest other rows of its label, which then are in two groups.

    Parameters
    ----------
    X : array-like (n, d)
        Rows.
    labels : array-like (n,), optional
        Clusters never mix labels.
    n_groups : int
        Clusters per label; fewer come back where there are fewer different rows.
    min_size, max_size : int
        Members of a group; no upper limit if None.
    random_state : int or Generator, optional
        For the rows drawn.

    Returns
    -------
    tuple of MedoidGroup
        By label, then by medoid.

    Raises
    ------
    DataError
        Fewer rows of a label than groups or than the least size.
    NotInstalled
        The package kmedoids is missing.

    Examples
    --------
    >>> import numpy as np
    >>> from optfair.methods.group_counterfactuals.groups import medoid_groups
    >>> X = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]])
    >>> [g.members.tolist() for g in medoid_groups(X, n_groups=2, min_size=1)]
    [[0, 1, 2], [3, 4, 5]]

    References
    ----------
    Schubert, Rousseeuw: Fast and eager k-medoids clustering, Information Systems 101, 2021.
    Valero-Leal et al., Optimal transport group counterfactual explanations, Section 4.1.
    """
    points = check_matrix(X, "X")
    found = (
        np.zeros(points.shape[0], dtype=int) if labels is None else check_labels(labels, "labels")
    )
    if found.shape != (points.shape[0],):
        raise DataError(
            "labels does not fit the rows",
            f"shape {found.shape} for {points.shape[0]} rows",
            "give one label per row",
        )
    if max_size is not None and not 1 <= min_size <= max_size:
        raise DataError(
            f"min_size is {min_size}, max_size {max_size}", remedy="give 1 <= min_size <= max_size"
        )
    rng = np.random.default_rng(random_state)
    groups: list[MedoidGroup] = []
    for label in np.unique(found):
        rows = np.flatnonzero(found == label)
        if rows.size < max(n_groups, min_size) or n_groups < 1:
            raise DataError(
                f"{rows.size} rows {'of label ' + str(label) if labels is not None else ''}"
                f" for {n_groups} groups of at least {min_size}",
                remedy="ask for fewer or smaller groups",
            )
        name = None if labels is None else label.item()
        groups += _around(points, rows, name, n_groups, (min_size, max_size), rng)
    return tuple(groups)


def _around(
    points: NDArray[np.float64],
    rows: Indices,
    label: Any,
    n_groups: int,
    sizes: tuple[int, int | None],
    rng: np.random.Generator,
) -> list[MedoidGroup]:
    from scipy.spatial.distance import cdist

    drawn = rows
    if rows.size > MOST_ROWS:
        drawn = np.sort(rng.choice(rows, MOST_ROWS, replace=False))
    medoids = drawn[_medoids(cdist(points[drawn], points[drawn]), n_groups)]
    far = cdist(points[rows], points[medoids])
    nearest = far.argmin(axis=1)
    # a medoid that equals another one keeps itself
    nearest[np.searchsorted(rows, medoids)] = np.arange(medoids.size)
    least, most = sizes
    groups = []
    for k, medoid in enumerate(medoids):
        own = rows[nearest == k]
        members = own
        if most is not None and own.size > most:
            members = rng.choice(own, most, replace=False)
        elif own.size < least:
            others = np.flatnonzero(nearest != k)
            order = np.argsort(far[others, k], kind="stable")
            members = np.concatenate([own, rows[others[order[: least - own.size]]]])
        groups.append(MedoidGroup(label, int(medoid), np.sort(members), int(own.size)))
    return groups


def _medoids(distances: NDArray[np.float64], count: int) -> Indices:
    try:
        import kmedoids
    except ImportError as e:
        raise NotInstalled(
            "kmedoids is not installed", str(e), 'pip install "optfair[groups]"'
        ) from None
    # greedy start: the same medoids on every machine, without a seed
    found = kmedoids.fasterpam(distances, count, init="build", n_cpu=1)
    return np.sort(np.asarray(found.medoids, dtype=np.intp))
