"""Clusters as models see them: scores, boundaries between them, terms on a point."""
