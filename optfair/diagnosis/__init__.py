"""Why a problem has no solution: conflicts, least relaxations, rays, witnesses, scaling."""
