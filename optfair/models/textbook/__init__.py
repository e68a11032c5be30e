"""Small classical problems, one per class, for teaching and for testing solvers."""
