"""Instances from the folder of problems: load, solve, certify."""

from __future__ import annotations

from optfair.library.catalogue import load, names
from optfair.library.certification import Certification, Check, certify
from optfair.library.instance import Instance, Optimum

__all__ = ["Certification", "Check", "Instance", "Optimum", "certify", "load", "names"]
