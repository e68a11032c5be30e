"""Scores and rules on features: what counterfactuals of points and of groups share."""
