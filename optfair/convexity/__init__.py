"""Proofs of curvature beyond composition rules: on expressions alone, below problems."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
