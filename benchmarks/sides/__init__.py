"""Programs that a suite runs in a process of their own: ours, the references, the writers.

Each prints JSON, one object a line; what runs until it is told to end does so on SIGTERM.
"""
