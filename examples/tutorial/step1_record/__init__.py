"""Step 1: the order and its event are one write."""
