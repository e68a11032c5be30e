"""The mass-dual algorithm, piece by piece."""
