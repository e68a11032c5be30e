"""Counterfactuals of a group under a linear score: by member, or by one map."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
