"""Problems of many rows of which few are active: generate those, check all."""
