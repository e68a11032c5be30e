"""Declare and classify: knows NumPy and CVXPY expressions only."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
