"""Counterfactuals of a group under a linear score: by member, or by one map."""
