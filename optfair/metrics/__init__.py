"""Numbers that describe clusterings; each says whether it is of soft or hard assignments."""

from __future__ import annotations

from optfair.metrics.clustering import additive_gap, balance, composition, cost, max_gap
from optfair.metrics.silhouette import silhouette

__all__ = ["additive_gap", "balance", "composition", "cost", "max_gap", "silhouette"]
