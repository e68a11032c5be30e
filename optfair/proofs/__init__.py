"""What a bound is worth: arithmetic that is valid for the declared floats."""
