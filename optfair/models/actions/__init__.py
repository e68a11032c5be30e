"""Which edits to make in which row: tables of the choices, their cells, and what rules leave out."""
