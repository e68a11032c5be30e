"""Compute on solutions: residuals, shadow prices, the compiled cone form."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
