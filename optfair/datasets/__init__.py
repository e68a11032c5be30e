"""Data sets by name, with licence and citation."""

from __future__ import annotations

from optfair.datasets.catalogue import load, names
from optfair.datasets.dataset import Dataset

__all__ = ["Dataset", "load", "names"]
