"""Compute on solutions: residuals, shadow prices, the compiled cone form."""
