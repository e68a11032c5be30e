"""Problem -> problem, each with the way back."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
