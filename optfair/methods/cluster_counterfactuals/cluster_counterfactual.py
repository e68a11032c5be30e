"""The nearest point of another cluster."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.composition import Parts, Rule, stated
from optfair.core.problem import Declaration
from optfair.errors import DataError, DeclarationError, Infeasible
from optfair.features.feature_problem import checked_names
from optfair.methods.cluster_counterfactuals.choices import ONE_HOT_CHOICES, choices_loss
from optfair.methods.cluster_counterfactuals.partition import Partition, read_clusters
from optfair.methods.cluster_counterfactuals.point_problem import PointProblem
from optfair.methods.cluster_counterfactuals.rules import (
    AtMostChanges,
    check_cluster,
    check_factual,
    check_mask,
    check_metric,
    check_plausibility,
    option_rules,
)
from optfair.numbers import check_choice, check_names, check_text, checked, floats

NEAREST = "nearest other"


class ClusterCounterfactual(PointProblem):
    r"""The point nearest to a row that belongs to another cluster.

    .. math::
        \min_z\; \|z - y\|^2 \quad\text{s.t.}\quad s_t(z) \ge s_k(z) + \text{margin}
        \;\;(k = s, \text{ or every } k \ne t),\quad z_j = y_j \;(j \notin F)

    with the scores :math:`s_k(z) = -\tfrac12\|z - m_k\|^2` of k-means, or
    :math:`s_k(z) = \log\pi_k + \log N(z; m_k, \Sigma_k)` of Gaussian clusters.

    Class: QP for k-means and for Gaussian clusters of one covariance, where each boundary is a
    hyperplane. Else a boundary is a quadratic with curvature
    :math:`\Sigma_t^{-1} - \Sigma_k^{-1}`, in general indefinite: nonconvex QCQP, with a
    witness. One such constraint is nevertheless solved to a proven global optimum (S-lemma).
    Several are solved pair by pair, by their relaxation, and by branch and bound, which may take
    long: give a ``time_limit``, or ask `best_known` for value, bound and gap.
    LP with ``distance="l1"``; MILP, MIQP ... with whole features or counted changes.

    Features that are held fixed are substituted into target and distance, so class and
    evidence are those of the free features; their multipliers are 0.

    Parameters
    ----------
    clusters : Partition
        Made by the constructors `kmeans`, `gaussian` and `from_estimator`.
    factual : array-like (d,)
        The row y.
    target : int
        Cluster to reach. The constructors also take "nearest other": the one, other than the row's
        own, whose counterfactual is nearest under these options. The nearest point outside a
        cluster lies in the cluster it borders on, so for ``plausibility=0`` and l2 the pair form
        is then enough.
    source : int, optional
        Cluster to leave; the one the row belongs to by default.
    against : {"pair", "all"}
        The target must beat the source only, as in the paper, or every other cluster. The
        answer to the pair form may lie in a third cluster.
    mask : array-like (d,), optional
        1 for features that may change, 0 for others, as in the paper.
    immutable : features, optional
        Names or columns of features that stay.
    plausibility : float
        ε >= 0: how far beyond the boundary. :math:`p_t \ge (1 + \varepsilon) p_k` for Gaussian
        clusters, :math:`\|z - m_k\|^2 - \|z - m_t\|^2 \ge \varepsilon \|m_t - m_k\|^2` for
        k-means.
    density : float, optional
        Least density of the target, a bound beside ε; Gaussian clusters only.
    distance : {"l2", "l1", "changes"}
        Squared distance, absolute distance, or number of changed features.
    weights : array-like (d,), optional
        A positive price per feature.
    metric : array-like (d, d), optional
        Positive definite W in :math:`(z - y)^T W (z - y)`, in place of weights.
    lower, upper : array-like (d,) or number or dict, optional
        Bounds, by column or by name; None or infinite where there is none.
    increasing, decreasing : features, optional
        Features that only grow, or only shrink.
    whole : features, optional
        Features that take whole numbers.
    one_hot : groups of features, optional
        Each group keeps exactly one 1.
    max_changes : int, optional
        Largest number of features that change; needs bounds, which features of ``one_hot`` have.
    features : sequence of str, optional
        Names; ``x0`` ... by default.

    Attributes
    ----------
    variables : ``point`` (d,)
    factual : array (d,)
    source, target : int
    inside : bool
        Whether the row itself satisfies the target: then it is its own counterfactual.

    Raises
    ------
    DataError
        NaN, sizes that do not fit, a covariance that is not positive definite, free features
        that do not tell the clusters apart.
    DeclarationError
        Unknown options, a mask that frees nothing, a target that is the source.

    Examples
    --------
    >>> p = ClusterCounterfactual.kmeans(
    ...     centers=[[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]], factual=[1.0, 2.0], target=1,
    ... )
    >>> p
    ClusterCounterfactual: QP
      variables    point 2
      minimize     distance
      constraints  'target.0'
    >>> s = p.solve()
    >>> s["point"].tolist(), s.objective, s.is_optimal(1e-9)
    ([2.0, 2.0], 1.0, True)

    That point is in cluster 2, because the pair form looks at two clusters only:

    >>> int(p.clusters.labels(s["point"]))
    2
    >>> p.against_all().solve()["point"].round(9).tolist()
    [2.0, 1.5]

    A wider target surrounds a narrow source: nonconvex, and still solved to a proven optimum.

    >>> from optfair.transforms.exactness import Exactness
    >>> q = ClusterCounterfactual.gaussian(
    ...     means=[[0.0, 0.0], [1.0, 0.0]], covariances=[0.4, 1.0], factual=[-0.5, 0.2], target=1,
    ... )
    >>> q.problem_class, q.certificate.verify()
    (nonconvex QCQP, verified)
    >>> s = q.solve()
    >>> s.solver, Exactness(q, s.values, s.multipliers).verify()
    ('secular-equation', verified)

    References
    ----------
    Vardakas, Karra, Pitoura, Likas: Counterfactual Explanations for k-Means and Gaussian
    Clustering, eq. (9) and sections 5-6 (their pair form).
    Pólik, Terlaky: A Survey of the S-Lemma, SIAM Review 49 (2007).
    """

    own_rules: Mapping[str, Rule]

    @checked(distance=check_text, against=check_text, features=check_names)
    def __init__(
        self,
        clusters: Partition,
        *,
        factual: Any,
        target: Any,
        source: int | None = None,
        against: str = "pair",
        mask: Any = None,
        plausibility: float = 0.0,
        distance: str = "l2",
        weights: Any = None,
        metric: Any = None,
        features: Any = None,
        **options: Any,
    ) -> None:
        d, K = clusters.dimension, clusters.size
        names = checked_names(features, d)
        y = check_factual(factual, d, names)
        kept = check_mask(mask, d)
        check_choice(against, "against", ("pair", "all"))
        own = int(clusters.labels(y)) if source is None else check_cluster(source, K, "source")
        common = {
            "clusters": clusters,
            "factual": y,
            "source": own,
            "against": against,
            "plausibility": check_plausibility(plausibility, clusters.kind),
            "distance": distance,
            "metric": check_metric(weights, metric, distance, d),
            "features": names,
        }
        rules = option_rules(d, names, kept, options)
        goal = check_cluster(target, K, "target")
        if goal == own and source is not None:
            raise DeclarationError(
                f"source and target are both cluster {goal}",
                remedy="leave source out: then it is asked only that the target beats the others",
            )
        if goal == own:
            # already there: what must be beaten is the next best
            scores = clusters.scores(y)
            scores[goal] = -np.inf
            common["source"] = int(scores.argmax())
        if distance == "changes":
            rules = {"changes": AtMostChanges(), **rules}
        # changes are counted between the bounds: these must stand first
        ordered = {n: rules[n] for n in sorted(rules, key=lambda name: name == "changes")}
        self._set(free=np.arange(d), anchor=y, own_rules=ordered)
        super().__init__(common | {"target": goal})
        self._substituted()
        self._refuse_idle()

    # --- constructors --------------------------------------------------------------------

    @classmethod
    @checked(centers=floats)
    def kmeans(cls, *, centers: Any, **options: Any) -> ClusterCounterfactual:
        """Return the problem for rows that belong to the nearest of these centers (K, d).

        The other parameters are those of the class.
        """
        names = getattr(centers, "columns", None)
        return cls.of(Partition.kmeans(centers), **{"features": names, **options})

    @classmethod
    @checked(means=floats, covariances=floats, weights=floats, covariance_type=check_text)
    def gaussian(
        cls,
        *,
        means: Any,
        covariances: Any,
        weights: Any = None,
        covariance_type: str | None = None,
        prices: Any = None,
        **options: Any,
    ) -> ClusterCounterfactual:
        """Return the problem for Gaussian clusters.

        Parameters
        ----------
        means : array-like (K, d)
            Means.
        covariances : array-like
            (K, d, d) full, (d, d) tied, (K, d) diagonal, (K,) spherical.
        weights : array-like (K,), optional
            Weights of the clusters, rescaled to sum 1; equal by default.
        covariance_type : {"full", "tied", "diag", "spherical"}, optional
            Needed only where the shape leaves a doubt.
        prices : array-like (d,), optional
            What ``weights`` is elsewhere: a positive price per feature.
        **options
            Those of the class.
        """
        names = getattr(means, "columns", None)
        clusters = Partition.gaussian(means, covariances, weights, covariance_type)
        return cls.of(clusters, **{"features": names, "weights": prices, **options})

    @classmethod
    def from_estimator(cls, model: Any, **options: Any) -> ClusterCounterfactual:
        """Return the problem for the clusters of a fitted model.

        Parameters
        ----------
        model : estimator
            A fitted KMeans, MiniBatchKMeans, BisectingKMeans or GaussianMixture of scikit-learn,
            or a FairKMeans or Gaussian mixture of optfair.
        **options
            Those of the class; ``weights`` are prices of features.
        """
        clusters, names = read_clusters(model)
        return cls.of(clusters, **{"features": names, **options})

    @classmethod
    def of(cls, clusters: Partition, *, target: Any, **options: Any) -> ClusterCounterfactual:
        """Return the problem of a target, or of the cluster whose counterfactual is nearest.

        Parameters
        ----------
        clusters : Partition
            The clusters.
        target : int or "nearest other"
            For the latter the problems of all other clusters are solved.
        **options
            The other parameters of the class.

        Raises
        ------
        Infeasible
            No other cluster can be reached.
        """
        if not isinstance(target, str) or target != NEAREST:
            return cls(clusters, target=target, **options)
        names = checked_names(options.get("features"), clusters.dimension)
        y = check_factual(options["factual"], clusters.dimension, names)
        source = options.get("source")
        own = int(clusters.labels(y)) if source is None else source
        reached: list[tuple[float, int, ClusterCounterfactual]] = []
        reasons = []
        for k in range(clusters.size):
            try:
                if k != own:
                    p = cls(clusters, target=k, **options)
                    reached.append((p.solve().objective, k, p))
            except (DataError, Infeasible) as e:
                reasons.append(f"cluster {k}: {(e.evidence or e.cause).split(';')[0]}")
        if not reached:
            raise Infeasible(
                "no other cluster can be reached", "; ".join(reasons), "free more features"
            )
        return min(reached)[2]

    def against_all(self) -> ClusterCounterfactual:
        """Return this problem with the target beating every cluster; added terms stay."""
        if self.data["against"] == "all":
            return self
        others = [k for k in range(self.clusters.size) if k != self.target]
        sides = {t.name: t for t in (self._side(k) for k in others)}
        old = {n: t for n, t in self.constraints.items() if n not in sides}
        child: ClusterCounterfactual = self._child(
            data=MappingProxyType({**self.data, "against": "all"}),
            constraints=MappingProxyType({**sides, **old}),
        )
        return child

    # --- declaring -----------------------------------------------------------------------

    def declare(self) -> Declaration:
        """Declare the point, its distance, and the sides it must be on."""
        z = cp.Variable(self.factual.size, name="point")
        self._set(variables=MappingProxyType({"point": z}), _names={z.id: "point"}, _aliases={})
        pair = self.data["against"] == "pair"
        others = [self.source] if pair else list(range(self.clusters.size))
        sides = (self._side(k) for k in others if k != self.target)
        # the number of changes is counted by a rule that comes with its flags
        goal = () if self.data["distance"] == "changes" else (self._distance({"point": z}),)
        terms: dict[str, Any] = {t.name: t for t in sides}
        integers: frozenset[str] = frozenset()
        for name, rule in self.own_rules.items():
            self._set(constraints=MappingProxyType(terms))
            parts = Parts.of(self.bound_parts(name, rule))
            variables = {**self.variables, **parts.variables}
            integers |= parts.integers
            self._set(
                variables=MappingProxyType(variables),
                _names={v.id: name for name, v in variables.items()},
            )
            terms = {**terms, **stated(self, {name: rule}, parts)}
        return Declaration(self.variables, "minimize", goal, tuple(terms.values()), integers)

    def structure_refusal(self, name: str) -> str:
        """Return why a special algorithm does not apply, empty if it does."""
        if name == ONE_HOT_CHOICES:
            return choices_loss(self)
        return super().structure_refusal(name)

    def _refuse_idle(self) -> None:
        """Say at once when nothing that may change leads to the target."""
        if self.inside:
            return
        short = np.array([t.section.level > 0.0 for t in self.sides], dtype=float)
        pinned = any(b.relation != "==" for b in self.bounds)
        if not self.free.size and pinned and short.any():
            from optfair.methods.cluster_counterfactuals.evidence import unreachable

            raise unreachable(self, short)
        if not self.free.size and not pinned:
            raise DeclarationError(
                "every feature is held fixed, and the row is not in the target",
                remedy="free at least one feature",
            )
        for t in self.sides:
            if t.section.constant and t.section.level > 0.0:
                free = ", ".join(repr(self.features[j]) for j in self.free[:10])
                raise DataError(
                    f"the free features do not tell clusters {t.against} and {self.target} apart",
                    f"along {free} the boundary does not move; the row is"
                    f" {t.section.level:.3g} on the wrong side",
                    "free a feature in which the clusters differ",
                )

    def __repr__(self) -> str:
        text = super().__repr__()
        return f"{text}\n  the row is already there: distance 0" if self.inside else text
