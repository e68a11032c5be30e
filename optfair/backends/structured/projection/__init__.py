"""Nearest points of half-spaces, polyhedra and quadratics, for many rows at once."""
