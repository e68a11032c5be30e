"""Problem <-> file: MPS, LP and CBF."""
