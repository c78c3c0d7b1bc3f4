"""The programs of the tutorial, one folder for each step; the pages stand in `docs/tutorial`."""
