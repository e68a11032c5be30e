"""Counterfactuals refined to few edits: coupling, attribution, values, selection."""
