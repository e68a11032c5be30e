"""Scores and rules on features: what counterfactuals of points and of groups share."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
