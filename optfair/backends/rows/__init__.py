"""Problems of many rows, solved with a few of them."""
