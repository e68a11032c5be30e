"""Instances from the folder of problems: load, solve, certify."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
