"""Problems of textbooks: small, known, and solved by hand somewhere."""
