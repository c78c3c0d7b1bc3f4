"""Step 5: a process over three services, with a way back."""
