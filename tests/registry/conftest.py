"""What lies in `installed` is imported as somebody's package, not collected."""

collect_ignore = ["installed"]
