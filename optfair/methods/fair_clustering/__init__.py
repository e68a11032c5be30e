"""Fair clustering: assignments under rules on the masses of groups, and centers."""

from optfair.registry import attach

__all__, __getattr__, __dir__ = attach(__name__)
