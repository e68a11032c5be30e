"""Declare and classify: knows NumPy and CVXPY expressions only."""
