"""Parts for frameworks; each imports its framework, which is an extra."""
