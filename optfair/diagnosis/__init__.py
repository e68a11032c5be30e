"""Why a problem has no solution: conflicts, least relaxations, rays, witnesses, scaling."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
