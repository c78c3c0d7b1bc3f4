"""How Hypothesis runs here: an example that waited for the machine is no finding."""

from hypothesis import settings

settings.register_profile("pillarbox", deadline=None)
settings.load_profile("pillarbox")
