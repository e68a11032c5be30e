"""Solvers side by side: every run in a process of its own, judged by our residuals."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
