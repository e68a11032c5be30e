"""Models of affine maps."""
