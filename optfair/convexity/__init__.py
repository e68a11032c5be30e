"""Proofs of curvature beyond composition rules: on expressions alone, below problems."""
