"""Problem <-> file: MPS, LP and CBF."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
