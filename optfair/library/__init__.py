"""Instances from the folder of problems: load, solve, certify."""
