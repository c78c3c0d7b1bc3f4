"""Sagas: a process over several services, step by step, with a way back."""
