"""Data sets by name, with licence and citation."""
