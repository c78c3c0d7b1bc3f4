"""The shop: four services with a database each, that tell one another by events."""
