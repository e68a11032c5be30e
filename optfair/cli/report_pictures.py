"""The pictures of a report about a clustering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.cli.clustering import Clustering
from optfair.cli.svg import inline_svg
from optfair.plots import plot_composition, plot_convergence, plot_projection
from optfair.plots.axes import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Picture", "compositions", "pictures"]

# Rows drawn in the projection: each is an element of the page.
POINTS = 1500


@dataclass(frozen=True)
class Picture:
    """A drawing with its words; ``svg`` is markup, the rest is text."""

    heading: str
    svg: Any
    caption: str


def _picture(
    name: str, height: float, heading: str, caption: str, draw: Callable[[Axes], object]
) -> Picture:
    from markupsafe import Markup

    # the words are escaped in it, the rest is matplotlib's own
    return Picture(heading, Markup(inline_svg(draw, name, heading, caption, height)), caption)


def compositions(found: Clustering) -> list[Picture]:
    """Return who is in each cluster, with and without the rule; nothing for too many groups."""
    q = found.question
    if len(found.fair.groups_) > len(COLOURS):
        return []
    height = 1.9 + 0.36 * q.clusters

    def of(labels: Any) -> Callable[[Axes], object]:
        hard = np.eye(q.clusters)[labels]  # a cluster without rows has its bar too
        return lambda ax: plot_composition(q.groups, hard, title="", ax=ax)

    return [
        _picture(
            "fair",
            height,
            "Under the rule",
            f"Share of each group in each cluster; balance {found.fair.balance_:.3f}.",
            of(found.labels),
        ),
        _picture(
            "plain",
            height,
            f"For comparison: {q.plain_name}, without a rule",
            f"The same, balance {found.plain.balance_:.3f}. Clusters are numbered by the rows they"
            " share with those under the rule.",
            of(found.plain_labels),
        ),
    ]


def pictures(found: Clustering) -> list[Picture]:
    """Return where the clusters are, unless there are too many groups, and how they were found."""
    q, fair = found.question, found.fair
    drawn = [
        _picture(
            "convergence",
            4.3,
            "How it converged",
            "Above: the cost after each step of the best start. Below: the certified gap of each"
            " step's assignment.",
            lambda ax: plot_convergence(fair, title="", ax=ax),
        )
    ]
    if len(fair.groups_) <= len(COLOURS):
        seen = "" if len(q.columns) < 3 else " Clusters that overlap here may be apart elsewhere."
        projected = _picture(
            "projection",
            5.0,
            "Where they are",
            f"Each point is a row, in the columns as they were clustered.{seen}",
            lambda ax: plot_projection(
                q.X,
                fair.labels_,
                q.groups,
                centers=fair.cluster_centers_,
                columns=q.columns,
                max_points=POINTS,
                random_state=q.seed,
                title="",
                ax=ax,
            ),
        )
        drawn.insert(0, projected)
    return drawn
