"""One service that reads the state of deliveries and acts on it."""
