"""Problems, solutions and proofs from files and to files."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
