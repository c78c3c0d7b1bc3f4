"""Step 2: a projector moves the recorded events to the broker."""
