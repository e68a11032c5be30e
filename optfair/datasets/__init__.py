"""Data sets by name, with licence and citation."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
